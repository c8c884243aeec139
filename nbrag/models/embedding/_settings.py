"""What a model's own files say about how its vectors are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbrag.errors import ModelInvalid
from nbrag.models.files import ModelFiles

__all__ = ["POOLINGS", "EmbeddingSettings", "read_settings"]

POOLINGS = ("mean", "cls", "last", "max", "none")
#: sentence-transformers writes one truth value per way of pooling.
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
#: Families whose position numbers start behind the padding id.
_OFFSET_POSITIONS = frozenset(("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"))
#: Tokenizers without a limit state a huge number.
_NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """How texts become vectors.

    Attributes
    ----------
    pooling
        ``mean``, ``cls``, ``last``, ``max``; ``none`` when the graph gives one vector per text;
        None when the files don't say.
    dimension
        Length of a vector, None when the files don't say.
    max_tokens
        The most tokens of a text, None when the files don't say.
    query_prefix, document_prefix
        Text put before a query or a document.
    lower_case
        Whether texts are lowered before they are cut into tokens.
    """

    pooling: str | None
    dimension: int | None
    max_tokens: int | None
    query_prefix: str
    document_prefix: str
    lower_case: bool


def read_settings(files: ModelFiles) -> EmbeddingSettings:
    """Read a model's settings from its own files.

    Raises
    ------
    ModelInvalid
        When the files ask for something that isn't supported.
    """
    extra_layers = _layers(files) - {"Transformer", "Pooling", "Normalize"}
    prompts = _prompts(files.description("config_sentence_transformers.json"))
    pooling = "none" if extra_layers else _pooling(files)
    dimension = None if extra_layers else _number(files.description("config.json"), "hidden_size")
    return EmbeddingSettings(
        pooling=pooling,
        dimension=dimension,
        max_tokens=_max_tokens(files),
        query_prefix=prompts[0],
        document_prefix=prompts[1],
        lower_case=bool(files.description("sentence_bert_config.json").get("do_lower_case")),
    )


def _layers(files: ModelFiles) -> set[str]:
    modules = files.descriptions.get("modules.json")
    if not isinstance(modules, list):
        return set()
    return {str(module.get("type", "")).rpartition(".")[2] for module in modules}


def _pooling(files: ModelFiles) -> str | None:
    described = files.description("1_Pooling/config.json")
    if not described:
        return None
    if described.get("include_prompt") is False:
        raise ModelInvalid(
            f"the model {files.name} leaves its prompt out of the pooling, which is not supported."
        )
    stated = described.get("pooling_mode")
    if isinstance(stated, str):
        chosen = [{"lasttoken": "last"}.get(stated, stated)]
    else:
        chosen = [name for flag, name in _POOLING_FLAGS.items() if described.get(flag)]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ModelInvalid(
            f"the model {files.name} pools by {' and '.join(chosen) or 'nothing'}, "
            "which is not supported.",
            hint=f"supported are one of {', '.join(POOLINGS[:-1])}",
        )
    return chosen[0]


def _prompts(described: Mapping[str, Any]) -> tuple[str, str]:
    """Return the prefixes for (queries, documents)."""
    prompts = described.get("prompts") or {}
    default = str(prompts.get(described.get("default_prompt_name"), ""))
    query = prompts.get("query", default)
    document = default
    for name in ("document", "passage", "corpus"):
        if name in prompts:
            document = prompts[name]
            break
    return str(query or ""), str(document or "")


def _max_tokens(files: ModelFiles) -> int | None:
    config = files.description("config.json")
    positions = _number(config, "max_position_embeddings")
    if positions is not None and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= (_number(config, "pad_token_id") or 0) + 1
    stated = _number(files.description("sentence_bert_config.json"), "max_seq_length")
    if stated is None:
        stated = _number(files.description("tokenizer_config.json"), "model_max_length")
    limits = [limit for limit in (stated, positions) if limit and limit < _NO_LIMIT]
    return min(limits, default=None)


def _number(described: Mapping[str, Any], key: str) -> int | None:
    value = described.get(key)
    return int(value) if isinstance(value, int | float) else None
