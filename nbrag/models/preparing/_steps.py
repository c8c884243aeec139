"""The steps from a model's file to a prepared graph."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from nbrag.errors import MissingDependency, ModelInvalid
from nbrag.models.files import ModelFiles
from nbrag.models.graph_files import check_graph
from nbrag.models.preparing._quantising import OPSET
from nbrag.models.purpose import Purpose
from nbrag.models.sessions import open_session

__all__ = [
    "attention_heads",
    "folded",
    "modern",
    "purpose_by_outputs",
    "require_onnx",
    "saved",
]

#: One Protocol Buffers message holds no more.
_LARGEST = 2**31 - 1


def require_onnx() -> None:
    """Raise MissingDependency when the package onnx is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MissingDependency("preparing a model", "onnx", "prepare") from None


def folded(source: Path, target: Path) -> Any:
    """Return a model with everything computed that doesn't depend on a text.

    Weights that are stored in fewer bits and widened in the graph become float32 by it.

    Parameters
    ----------
    source
        The model's graph.
    target
        A file for the runtime to write to.

    Raises
    ------
    ModelInvalid
        When the model is larger than 2 GB, or can't be opened.
    """
    import onnx
    import onnxruntime

    parts = (source, *check_graph(source))
    if sum(part.stat().st_size for part in parts) > _LARGEST:
        raise ModelInvalid(
            f"{source} can't be prepared: with its weights it has more than 2 GB.",
            hint="use a smaller model, or nbrag[openvino], which needs no preparation",
        )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        model = onnx.load(target)
    except OSError:
        raise  # a full disk, told by whoever gave the folder
    except Exception as error:  # the runtime's errors share no base class
        if "serialization failed" in str(error):
            # So the runtime says that it can't write.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        lines = str(error).splitlines()
        raise ModelInvalid(
            f"{source} can't be prepared: {lines[0] if lines else type(error).__name__}",
            hint="use it as it is, or take another export of the model",
        ) from error
    return model


def purpose_by_outputs(files: ModelFiles) -> Purpose:
    """Return what a model is for as its graph's outputs tell: one number or two, or vectors."""
    outputs = open_session(files.model).get_outputs()
    if any(len(entry.shape or ()) == 3 for entry in outputs):
        return "embedding"
    scores = [e for e in outputs if e.name == "logits" and (e.shape or [0])[-1] in (1, 2)]
    return "reranking" if scores else "unknown"


def modern(model: Any) -> Any | None:
    """Return a model in operators that can be quantised by rows; None when that can't be done."""
    if next((int(entry.version) for entry in model.opset_import if not entry.domain), 1) >= OPSET:
        return model
    try:
        return _newer(model)
    except Exception:  # noqa: BLE001 - whatever the converter stumbles over, the caller says so
        return None


def _newer(model: Any) -> Any:
    import onnx
    from onnx import version_converter

    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    # The converter knows the standard's operators only, and the runtime lists all its domains.
    used = {node.domain for node in plain.graph.node}
    kept = [entry for entry in plain.opset_import if entry.domain in ("", *used)]
    del plain.opset_import[:]
    plain.opset_import.extend(kept)
    return version_converter.convert_version(plain, 17)


def saved(model: Any, target: Path) -> Path:
    """Write a model; return the file."""
    target.write_bytes(model.SerializeToString())
    return target


def attention_heads(files: ModelFiles) -> int | None:
    """Return how many attention heads a model's own description says it has."""
    config = files.description("config.json")
    for key in ("num_attention_heads", "n_heads", "num_heads"):
        if isinstance(config.get(key), int):
            return int(config[key])
    return None
