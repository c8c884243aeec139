"""Well-known models that exist as ONNX files on the Hugging Face hub, and how to get them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from nbrag.errors import closest

__all__ = ["BUILT_IN", "KNOWN_MODELS", "KnownModel", "nearest_model"]

#: The embedder that is installed with nbrag.
BUILT_IN = "minilm"


class KnownModel(NamedTuple):
    """A model of the hub.

    Attributes
    ----------
    name
        ``owner/name``.
    purpose
        What it is for.
    megabytes
        Size of its full-precision ONNX graph, about.
    licence
        As its model card says, an SPDX identifier.
    remark
        Languages and what sets it apart.
    """

    name: str
    purpose: Literal["embedding", "reranking"]
    megabytes: int
    licence: str
    remark: str

    @property
    def how(self) -> str:
        """How to get and use it."""
        use = (
            f"%rag_config embedder={self.name}"
            if self.purpose == "embedding"
            else f"rerank model={self.name} in a pipeline"
        )
        return f"pip install 'nbrag[hub]', then {use}"


KNOWN_MODELS = (
    KnownModel("BAAI/bge-small-en-v1.5", "embedding", 133, "mit", "English, 512 tokens"),
    KnownModel(
        "Snowflake/snowflake-arctic-embed-xs", "embedding", 90, "apache-2.0", "English, 512 tokens"
    ),
    KnownModel(
        "intfloat/multilingual-e5-small", "embedding", 470, "mit", "100 languages, 512 tokens"
    ),
    KnownModel(
        "nomic-ai/nomic-embed-text-v1.5", "embedding", 547, "apache-2.0", "English, 8192 tokens"
    ),
    KnownModel(
        "cross-encoder/ms-marco-MiniLM-L6-v2", "reranking", 91, "apache-2.0", "English, 512 tokens"
    ),
    KnownModel("BAAI/bge-reranker-base", "reranking", 1110, "mit", "English and Chinese"),
)


def nearest_model(name: str) -> str:
    """Return a hint for a model's name that nothing has: the nearest of those that are known.

    Looked at are the built-in model, the well-known ones and those in the hub's cache, with and
    without their owners.
    """
    from nbrag.models.hub_cache import cached_models

    names = [BUILT_IN, *(m.name for m in KNOWN_MODELS), *(m.name for m in cached_models())]
    # Names without an owner are what people remember.
    short = {known.rpartition("/")[2]: known for known in reversed(names)}
    near = closest(name, names) or short.get(closest(name.rpartition("/")[2], short) or "")
    if near is not None and near != name:
        return f"did you mean '{near}'?"
    return f"known are {', '.join(dict.fromkeys(names))}; or give a folder with model.onnx"
