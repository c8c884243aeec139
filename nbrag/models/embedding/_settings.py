"""What a model's own files say about how its vectors are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbrag.errors import ModelInvalid
from nbrag.models.embedding._families import family_of
from nbrag.models.files import ModelFiles

__all__ = ["POOLINGS", "EmbeddingSettings", "read_settings"]

POOLINGS = ("mean", "cls", "last", "max", "weightedmean", "none")
#: sentence-transformers writes one truth value per way of pooling.
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
    # Another length of the same direction, and all vectors are scaled to length 1.
    "pooling_mode_mean_sqrt_len_tokens": "mean",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
#: The names under which files keep the prefixes for search; the first that is there counts.
_QUERY_PROMPTS = ("query", "retrieval.query", "Retrieval-query", "s2p_query", "web_search_query")
_DOCUMENT_PROMPTS = ("document", "passage", "corpus", "retrieval.passage", "Retrieval-document")
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
        ``mean``, ``cls``, ``last``, ``max``, ``weightedmean``; ``none`` when the graph gives one
        vector per text; None when neither the files nor the model's family say.
    dimension
        Length of a vector, None when the files don't say.
    max_tokens
        The most tokens of a text, None when the files don't say.
    query_prefix, document_prefix
        Text put before a query or a document.
    lower_case
        Whether texts are lowered before they are cut into tokens.
    pools_prefix
        Whether the prefix's own token vectors count in the pooling.
    pads_left
        Whether shorter texts of a batch are filled up at their beginning.
    """

    pooling: str | None
    dimension: int | None
    max_tokens: int | None
    query_prefix: str
    document_prefix: str
    lower_case: bool
    pools_prefix: bool = True
    pads_left: bool = False


def read_settings(files: ModelFiles) -> EmbeddingSettings:
    """Read a model's settings from its own files.

    Pooling and prefixes that the files don't name are those of the model's family, where it is a
    well-known one (see :mod:`nbrag.models.embedding._families`).

    Raises
    ------
    ModelInvalid
        When the files ask for something that isn't supported.
    """
    extra_layers = _layers(files) - {"Transformer", "Pooling", "Normalize"}
    family = family_of(files.name)
    prompts = _prompts(files.description("config_sentence_transformers.json"))
    if prompts is None:
        prompts = (family.query_prefix, family.document_prefix) if family else ("", "")
    pooling = "none" if extra_layers else _pooling(files)
    if pooling is None and family is not None:
        pooling = family.pooling
    dimension = None if extra_layers else _number(files.description("config.json"), "hidden_size")
    return EmbeddingSettings(
        pooling=pooling,
        dimension=dimension,
        max_tokens=_max_tokens(files),
        query_prefix=prompts[0],
        document_prefix=prompts[1],
        lower_case=bool(files.description("sentence_bert_config.json").get("do_lower_case")),
        pools_prefix=files.description("1_Pooling/config.json").get("include_prompt") is not False,
        pads_left=files.description("tokenizer_config.json").get("padding_side") == "left",
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
    stated = described.get("pooling_mode")
    if isinstance(stated, str):
        chosen = [{"lasttoken": "last", "mean_sqrt_len_tokens": "mean"}.get(stated, stated)]
    else:
        flagged = [name for flag, name in _POOLING_FLAGS.items() if described.get(flag)]
        chosen = list(dict.fromkeys(flagged))
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ModelInvalid(
            f"the model {files.name} pools by {' and '.join(chosen) or 'nothing'}, "
            "which is not supported.",
            hint=f"supported are one of {', '.join(POOLINGS[:-1])}",
        )
    return chosen[0]


def _prompts(described: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the prefixes for (queries, documents); None when the files don't say.

    Prompts that are all empty say nothing: some tools write them for every model.
    """
    prompts = described.get("prompts")
    if not isinstance(prompts, Mapping) or not any(prompts.values()):
        return None
    default = str(prompts.get(described.get("default_prompt_name")) or "")

    def first(names: tuple[str, ...]) -> str:
        return next((str(prompts[name] or "") for name in names if name in prompts), default)

    return first(_QUERY_PROMPTS), first(_DOCUMENT_PROMPTS)


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
