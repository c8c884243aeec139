"""The process in which llama.cpp serves a model: started, watched and stopped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from nbrag.errors import MissingDependency, ModelInvalid

__all__ = ["LocalServer"]

_SCRIPT = Path(__file__).with_name("_llama_server.py")
#: Seconds until a model must be loaded; large ones on slow disks take minutes.
_START_LIMIT = 600.0
#: Seconds that the process gets to end by itself.
_STOP_LIMIT = 5.0
#: Lines of llama.cpp's log that say why a file can't be loaded, most telling first.
_REASONS = (
    re.compile(r"gguf_init_\w+: (.+)"),
    re.compile(r"error loading model: (.+)"),
    re.compile(r"(?m)^\S+ E (.+)"),
)


class LocalServer:
    """A running server of one model, stopped by :meth:`stop` or with the interpreter.

    Parameters
    ----------
    model
        The GGUF file.
    context
        Tokens of one request and its answer.
    threads
        Threads that compute.

    Attributes
    ----------
    address
        Where it listens, e.g. ``http://127.0.0.1:40001``.
    process
        The process's id.

    Raises
    ------
    ModelInvalid
        When the server can't load the file; the message gives llama.cpp's reason.
    MissingDependency
        When llama.cpp's package is not installed.
    """

    def __init__(self, model: Path, *, context: int, threads: int) -> None:
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a file of ours
                [sys.executable, "-P", _SCRIPT, model, str(context), str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C and a kernel's interrupt reach the whole group: not this process.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
            self._stop = weakref.finalize(self, _stopped, self._process, os.getpid())
            answer = _first_line(self._process)
            if "address" not in answer:
                self.stop()
                raise _failure(model, answer, self._process.returncode, log)
        self.address: str = answer["address"]
        self.process = self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._stop.alive and self._process.poll() is None

    def stop(self) -> None:
        """End the process and wait for its end; does nothing when it has ended."""
        self._stop()


def _first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return what the process reports; nothing when it ends or takes too long before."""
    if process.stdout is None:
        return {}
    clock = threading.Timer(_START_LIMIT, process.kill)
    clock.daemon = True
    clock.start()
    try:
        line = process.stdout.readline()
    finally:
        clock.cancel()
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


def _failure(
    model: Path, answer: dict[str, Any], code: int | None, log: IO[bytes]
) -> ModelInvalid | MissingDependency:
    if "missing" in answer:
        return MissingDependency("a chat model on this machine", "xllamacpp", "local")
    log.seek(0)
    text = log.read().decode("utf-8", "replace")
    found = (reason.search(text) for reason in _REASONS)
    stated = next((match.group(1).strip() for match in found if match), "")
    ended = "" if "error" in answer else f"the server ended with code {code}"
    reason = stated or ended or answer.get("error", "")
    return ModelInvalid(
        f"llama.cpp can't load {model}: {reason[:300].rstrip('.')}.",
        hint="give a whole GGUF file of a chat model; a download may have been cut short",
    )


def _stopped(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child, which does not own the server
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
