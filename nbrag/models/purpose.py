"""What a model is for, as far as its own files and its name tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from nbrag.models.files import ModelFiles
from nbrag.models.known import KNOWN_MODELS

__all__ = ["Purpose", "purpose_of"]

Purpose = Literal["embedding", "reranking", "unknown"]

#: Encoders that give a vector per token and nothing else.
_ENCODER = re.compile(
    r"(\w*Bert|\w*Roberta|RoFormer|MPNet|Electra|Qwen\d|Gemma\d(Text)?|New|Deberta(V2)?|Nomic\w*)Model"
)
_UNNAMED_LABEL = re.compile(r"LABEL_\d+")


def purpose_of(files: ModelFiles) -> Purpose:
    """Return what a model is for.

    A model with pooling is an embedder. A sequence classifier with one label, or with two that
    have no names, is a reranker; one whose labels have names judges something else. Where the
    files say nothing, the name decides.

    Parameters
    ----------
    files
        The model's files; its graph is not opened.
    """
    sentence = files.description("config_sentence_transformers.json")
    if sentence.get("model_type") == "CrossEncoder":
        return "reranking"
    layers = files.descriptions.get("modules.json")
    if layers or files.description("1_Pooling/config.json"):
        return "embedding"
    config = files.description("config.json")
    architectures = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return "reranking" if _has_plain_labels(config) else "unknown"
    return _by_name(files.name, encoder=any(_ENCODER.fullmatch(name) for name in architectures))


def _has_plain_labels(config: Mapping[str, object]) -> bool:
    labels = config.get("id2label")
    if not isinstance(labels, Mapping):
        return config.get("num_labels", 1) in (1, 2)
    if len(labels) == 1:
        return True
    return len(labels) == 2 and all(
        _UNNAMED_LABEL.fullmatch(str(label)) for label in labels.values()
    )


def _by_name(name: str, *, encoder: bool) -> Purpose:
    from nbrag.models.embedding._families import family_of

    for known in KNOWN_MODELS:
        if name == known.name:
            return known.purpose
    if re.search(r"rerank|cross-encoder", name, re.IGNORECASE):
        return "reranking"
    return "embedding" if encoder or family_of(name) is not None else "unknown"
