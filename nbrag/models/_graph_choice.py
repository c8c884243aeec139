"""Which graph of a model is taken, where its folder holds several variants of it."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from nbrag.errors import ConfigurationError, ModelNotFound, did_you_mean

__all__ = ["MAIN_GRAPHS", "choose_graph", "graph_missing", "is_graph", "ranked_graphs", "within"]

#: The graph of full precision, where exporters put it.
MAIN_GRAPHS = ("model.onnx", "onnx/model.onnx")
#: Variants in the order in which they are taken: first the same arithmetic with fused operators,
#: then 8-bit weights, then half precision (slow on CPUs), then 4-bit weights.
_VARIANTS = (
    "model_optimized",
    "model_O3",
    "model_O2",
    "model_O1",
    "model_quantized",
    "model_int8",
    "model_uint8",
    "model_fp16",
    "model_O4",
    "model_q4",
    "model_q4f16",
    "model_bnb4",
)
#: 8-bit variants that are made for one family of processors, by the machine's name.
_FOR_MACHINE = {
    "x86_64": ("model_quint8_avx2",),
    "amd64": ("model_quint8_avx2",),
    "aarch64": ("model_qint8_arm64",),
    "arm64": ("model_qint8_arm64",),
}
#: Weights that only a training framework reads; pickled ones could run code.
_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".h5", ".msgpack")


def is_graph(name: str) -> bool:
    """Return whether a file's name is that of an ONNX graph."""
    return name.endswith(".onnx")


def within(name: str, *, what: str = "file") -> str:
    """Return a path inside a model's folder, with forward slashes.

    Raises
    ------
    ConfigurationError
        When the path is absolute or leaves the folder.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts:
        raise ConfigurationError(
            f"{what} '{name}' is not inside the model's folder.",
            hint="name it from the model's folder on, e.g. file='onnx/model_int8.onnx'",
        )
    return str(path)


def ranked_graphs() -> list[str]:
    """Return the names that a model's graph may have, the preferred ones first.

    Full precision comes first, because its vectors are what the model was measured with; a
    smaller variant is taken by itself only where that is not there.
    """
    own = _FOR_MACHINE.get(platform.machine().lower(), ())
    place = _VARIANTS.index("model_quantized")
    stems = [*_VARIANTS[:place], *own, *_VARIANTS[place:]]
    return [*MAIN_GRAPHS, *(f"{folder}{stem}.onnx" for stem in stems for folder in ("onnx/", ""))]


def choose_graph(names: Collection[str], file: str | None) -> str | None:
    """Return the graph to take of those that are there, None when there is none to take."""
    if file is not None:
        return file if file in names else None
    return next((graph for graph in ranked_graphs() if graph in names), None)


def graph_missing(
    what: str, names: Iterable[str], file: str | None, *, looked_at: str = ""
) -> ModelNotFound:
    """Return the error for a model without a graph to take, with what to do instead.

    Parameters
    ----------
    what
        The model, e.g. ``"the folder models/e5"``.
    names
        The files that it has, from its folder on.
    file
        The graph that was asked for.
    looked_at
        Where graphs were looked for.
    """
    there = sorted(names)
    graphs = [name for name in there if is_graph(name)]
    if file is not None:
        hint = did_you_mean(file, graphs, what="graphs") if graphs else _export_hint(what)
        return ModelNotFound(f"{what} has no file {file}.", hint=hint)
    if graphs:
        return ModelNotFound(
            f"{what} has no ONNX model of a usual name"
            + (f"; looked at {looked_at}." if looked_at else "."),
            hint=f"name one of its graphs with file=, e.g. file='{graphs[0]}'",
        )
    pickled = [name for name in there if name.endswith(_PICKLED)]
    tensors = [name for name in there if name.endswith((".safetensors", ".gguf"))]
    if pickled and not tensors:
        return ModelNotFound(
            f"{what} has no ONNX model, only weights for a training framework "
            f"({pickled[0]}), which may hold code and are never loaded.",
            hint=_export_hint(what),
        )
    if tensors:
        return ModelNotFound(
            f"{what} has no ONNX model, only weights of another format ({tensors[0]}).",
            hint=_export_hint(what),
        )
    return ModelNotFound(
        f"no ONNX model found in {what}" + (f"; looked at {looked_at}." if looked_at else "."),
        hint="export the model to ONNX, or give another folder",
    )


def _export_hint(what: str) -> str:
    name = what.rpartition(" ")[2].strip("'")
    return (
        "look for an ONNX export of it on the hub, or make one: pip install optimum[onnx], then "
        f"optimum-cli export onnx --model {name} FOLDER, and give that folder"
    )
