"""ONNX Runtime sessions: opened with the settings that pay, and checked.

One session with a single thread inside, called from several worker threads, embeds about a
quarter more than one session with several threads inside (measured on two cores: 27 against 18
to 22 documents of 240 tokens per second), because the many small operators of an encoder don't
share well. A session may be called from several threads at once, so that a second session of the
same graph would only take its memory again.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from nbrag.errors import ConfigurationError, ModelInvalid, did_you_mean
from nbrag.models.graph_files import check_graph

__all__ = [
    "DEFAULT_PROVIDERS",
    "is_loaded",
    "open_session",
    "provider_mark",
    "run_session",
    "runs_prepared",
    "usable_cpus",
]

DEFAULT_PROVIDERS = ("CPUExecutionProvider",)
#: Providers by short names; OpenVINO then computes in bfloat16 where the processor can, which
#: is what makes it faster than the runtime's own operators.
_SHORT = {
    "cpu": "CPUExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "cuda": "CUDAExecutionProvider",
}
_OPENVINO = {
    "device_type": "CPU",
    "load_config": json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}),
}
#: Its operator takes 1.0 ms where the three that it stands for take 0.22 ms (2 x 256 tokens of
#: 384 numbers, one thread, ONNX Runtime 1.32).
_SLOW_FUSIONS = ("SkipLayerNormFusion",)
#: More workers than this gain little and take memory for each batch in flight.
_MOST_WORKERS = 8
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
#: Sessions that somebody holds, with their file; one that is let go of leaves by itself.
_open: weakref.WeakKeyDictionary[Any, Path] = weakref.WeakKeyDictionary()


def usable_cpus() -> int:
    """Return how many CPUs this process may use, at most 8.

    A container's share counts: on a large host with a limit of two CPUs the answer is 2.
    """
    available = getattr(os, "sched_getaffinity", None)
    count = len(available(0)) if available else os.cpu_count() or 1
    try:
        quota, period = _CGROUP_LIMIT.read_text("ascii").split()[:2]
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # no such limit on this system
    return min(count, _MOST_WORKERS)


def open_session(
    path: Path, *, threads: int = 1, providers: Sequence[str] = DEFAULT_PROVIDERS
) -> Any:
    """Open an ONNX graph.

    Parameters
    ----------
    path
        The graph.
    threads
        Threads inside one call; 1 when several workers call at once.
    providers
        ONNX Runtime execution providers, in order of preference; ``cpu``, ``cuda`` and
        ``openvino`` (in bfloat16) for short.

    Returns
    -------
    onnxruntime.InferenceSession

    Raises
    ------
    ModelNotFound
        When the file is not there.
    ModelInvalid
        When it is not an ONNX graph, is truncated, or needs what this runtime doesn't have, such
        as operators from a library of their own: those are code, and never loaded.
    ConfigurationError
        When an execution provider is not available.
    """
    import onnxruntime

    check_graph(path)
    available = onnxruntime.get_available_providers()
    for provider in providers:
        if _SHORT.get(provider, provider) not in available:
            raise ConfigurationError(
                f"the ONNX Runtime provider '{provider}' is not available here.",
                hint=_provider_hint(provider, available),
            )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            str(path),
            options,
            providers=[
                (_SHORT.get(name, name), _OPENVINO if name == "openvino" else {})
                for name in providers
            ],
            disabled_optimizers=_SLOW_FUSIONS if runs_prepared(providers) else (),
        )
    except Exception as error:  # the runtime's errors share no base class
        reason = _first_line(error)
        hint = "get the file again; it may be truncated or not an ONNX graph"
        if "not a registered function/op" in reason or "No Op registered" in reason:
            hint = "take another graph of this model: libraries of operators are never loaded"
        raise ModelInvalid(
            f"{path} can't be opened as an ONNX model: {reason}", hint=hint
        ) from error
    _open[session] = path.resolve()
    return session


def _provider_hint(provider: str, available: Sequence[str]) -> str:
    """Return what to do about a provider that is not there."""
    if _SHORT.get(provider, provider) != _SHORT["openvino"]:
        return did_you_mean(provider, [*available, *_SHORT], what="providers")
    try:
        metadata.version("onnxruntime-openvino")
    except metadata.PackageNotFoundError:
        return "pip install 'nbrag[openvino]', and start Python again"
    # Both packages write into the same folder: the one that was installed last is there.
    return "pip install --force-reinstall --no-deps onnxruntime-openvino, and start Python again"


def runs_prepared(providers: Sequence[str]) -> bool:
    """Return whether graphs run on the CPU's own operators, which prepared ones are made of."""
    return all(_SHORT.get(name, name) == DEFAULT_PROVIDERS[0] for name in providers)


def provider_mark(providers: Sequence[str]) -> str:
    """Return what tells vectors of a less precise provider from others; empty for most."""
    return "-bf16" if "openvino" in providers else ""


def is_loaded(path: Path) -> bool:
    """Return whether a graph is open in this process."""
    return path.resolve() in set(_open.values())


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def run_session(session: Any, output: str, feeds: Mapping[str, Any]) -> Any:
    """Run a graph for one output; a failure of the runtime becomes a ModelInvalid."""
    try:
        return session.run([output], dict(feeds))[0]
    except Exception as error:  # the runtime's errors share no base class
        shapes = ", ".join(f"{name} {value.shape}" for name, value in feeds.items())
        raise ModelInvalid(f"the model failed on {shapes}: {_first_line(error)}") from error
