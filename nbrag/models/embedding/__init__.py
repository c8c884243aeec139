"""Embedders: ONNX models on this machine, and any provider through LiteLLM."""

from __future__ import annotations

import threading
from pathlib import Path

from nbrag.errors import ConfigurationError
from nbrag.models.embedding._reference import split_reference
from nbrag.models.embedding.late import LateEmbedder, SpanEmbedder
from nbrag.models.embedding.litellm import LiteLLMEmbedder
from nbrag.models.embedding.onnx import OnnxEmbedder
from nbrag.protocols import Embedder

__all__ = [
    "LateEmbedder",
    "LiteLLMEmbedder",
    "OnnxEmbedder",
    "SpanEmbedder",
    "default_embedder",
    "forget_default",
    "resolve_embedder",
]

_DEFAULT_NAMES = ("minilm", "default")
_lock = threading.Lock()
_default: OnnxEmbedder | None = None


def default_embedder() -> OnnxEmbedder:
    """Return the embedder that is installed with nbrag, one and the same for the process.

    Raises
    ------
    ModelNotFound
        When the package that carries the model is missing.
    """
    global _default  # noqa: PLW0603 - one loaded model for the process is the point
    with _lock:
        if _default is None:
            _default = OnnxEmbedder()
        return _default


def forget_default() -> None:
    """Have :func:`default_embedder` make a new one: the model's files have changed."""
    global _default  # noqa: PLW0603 - as above
    with _lock:
        _default = None


def resolve_embedder(reference: str | Path | Embedder | None = None) -> Embedder:
    """Return the embedder that a setting names.

    Parameters
    ----------
    reference
        ``minilm`` or None for the default one; a folder or an ``.onnx`` file; a hub name
        ``owner/name`` or ``owner/name@revision``; ``litellm:provider/model`` for a provider; or
        an embedder, which is returned. Behind a name may stand options of
        :class:`OnnxEmbedder`: ``owner/name dimension=256 file=onnx/model_int8.onnx``; those are
        file, pooling, dimension, max_tokens, query_prefix, document_prefix, threads, providers
        (``openvino``, or several with commas) and prepared (``true`` or ``false``).

    Raises
    ------
    ModelNotFound, ModelInvalid, MissingDependency
        When the model is not there or can't be used.
    ConfigurationError
        When the reference is empty or neither text, a path nor an embedder, or when an option
        can't be used.
    """
    if reference is None or reference in _DEFAULT_NAMES:
        return default_embedder()
    if isinstance(reference, Path):
        return OnnxEmbedder(reference)
    if isinstance(reference, str):
        if not reference.strip():
            raise ConfigurationError(
                "the embedder's name is empty.", hint="use 'minilm' for the default one"
            )
        name, options = split_reference(reference)
        kind, colon, model = name.partition(":")
        if colon and kind == "litellm":
            return LiteLLMEmbedder(model, **options)
        return OnnxEmbedder(None if name in _DEFAULT_NAMES else name, **options)
    if isinstance(reference, Embedder):
        return reference
    raise ConfigurationError(
        f"a {type(reference).__name__} is not an embedder.",
        hint="an embedder has the methods of nbrag.protocols.Embedder",
    )
