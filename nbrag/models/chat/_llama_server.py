"""Runs llama.cpp's server; a script for a process of its own, which imports nothing of nbrag.

A damaged model file may end the whole process, and llama.cpp writes to the terminal: neither
should happen to a notebook. The process ends when its standard input does, so that it never
outlives the one that started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import sys

__all__ = ["main"]


def main(path: str, context: int, threads: int) -> None:
    """Serve a model on a free port of the loopback address until standard input ends.

    One JSON line on standard output says where: ``{"address": "http://127.0.0.1:..."}``, or why
    not: ``{"error": "..."}``. All else that is printed goes to standard error.

    Parameters
    ----------
    path
        The GGUF file.
    context
        Tokens of one request and its answer.
    threads
        Threads that compute.
    """
    report = os.dup(1)
    os.dup2(2, 1)
    try:
        import xllamacpp
    except ImportError as error:
        _tell(report, {"missing": str(error)})
        return
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = context
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.ui = False
    # Pages in a browser may not talk to it.
    parameters.cors_origins = "http://127.0.0.1"
    parameters.verbosity = 2
    for processors in (parameters.cpuparams, parameters.cpuparams_batch):
        processors.n_threads = threads
        # Threads that spin while they wait take the time of all others on the machine.
        processors.poll = 0
    try:
        server = xllamacpp.Server(parameters)
    except Exception as error:  # noqa: BLE001 - the starter makes one readable error of it
        _tell(report, {"error": str(error)})
        return
    _tell(report, {"address": server.listening_address})
    sys.stdin.buffer.read()
    # Answers that are being computed are not waited for.
    os._exit(0)


def _tell(report: int, message: dict[str, str]) -> None:
    os.write(report, f"{json.dumps(message)}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
