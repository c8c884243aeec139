"""What a classifier's own files say: labels, limit, segments, special tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbrag.errors import ConfigurationError, ModelInvalid
from nbrag.models.files import ModelFiles

__all__ = ["ClassifierSettings", "read_classifier_settings"]

#: Families whose position numbers start behind the padding id.
_OFFSET_POSITIONS = frozenset(("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"))
#: Families that put two separators between the texts of a pair.
_DOUBLE_SEPARATORS = frozenset(("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"))
#: Tokenizers without a limit state a huge number.
_NO_LIMIT = 1_000_000
#: Fewer tokens leave no room for a question and a passage.
_LEAST_TOKENS = 16
_RELEVANT = frozenset(
    ("relevant", "positive", "true", "yes", "match", "entailment", "duplicate", "related", "1")
)
_IRRELEVANT = frozenset(
    ("irrelevant", "negative", "false", "no", "contradiction", "unrelated", "0")
)


@dataclass(frozen=True, slots=True)
class ClassifierSettings:
    """How pairs of texts are read, and which label is wanted.

    Attributes
    ----------
    labels
        The labels' names in the order of the logits; empty when the files don't say.
    relevant
        Of two labels, the place of the one that means relevant.
    max_tokens
        The most tokens of a pair, special ones included.
    segments
        How many segment ids the model knows; None when the files don't say.
    pad_id
        Token id that fills up shorter pairs, None when the files don't say.
    special
        Names of the special tokens ``cls`` and ``sep``, where the files have them.
    double_separators
        Whether the family puts two separators between the texts.
    """

    labels: tuple[str, ...]
    relevant: int
    max_tokens: int
    segments: int | None
    pad_id: int | None
    special: Mapping[str, str]
    double_separators: bool


def read_classifier_settings(
    files: ModelFiles, *, max_tokens: int | None = None, relevant_label: int | str | None = None
) -> ClassifierSettings:
    """Read the settings of a classifier from its files.

    Parameters
    ----------
    files
        The model's files.
    max_tokens
        The most tokens of a pair; None takes what the files say.
    relevant_label
        Name or place of the label that means relevant; None goes by the labels' names, and takes
        the second one where they say nothing.

    Raises
    ------
    ModelInvalid
        When the files don't say how long a pair may be, or name three labels or more.
    ConfigurationError
        When the limit or the label can't be used.
    """
    config = files.description("config.json")
    labels = _labels(config)
    if len(labels) > 2:
        raise ModelInvalid(
            f"the model {files.name} has {len(labels)} labels ({', '.join(labels[:6])}), and a "
            "reranker has one, or two.",
            hint="take a model that was trained to tell relevant passages from others",
        )
    family = str(config.get("model_type", ""))
    return ClassifierSettings(
        labels=labels,
        relevant=_relevant(labels, relevant_label),
        max_tokens=_max_tokens(files, family, max_tokens),
        segments=_number(config, "type_vocab_size"),
        pad_id=_number(config, "pad_token_id"),
        special=_special(files.description("tokenizer_config.json")),
        double_separators=family in _DOUBLE_SEPARATORS,
    )


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    named = config.get("id2label")
    if isinstance(named, Mapping) and all(str(key).isdecimal() for key in named):
        return tuple(str(named[key]) for key in sorted(named, key=int))
    count = _number(config, "num_labels") or 0
    return tuple(f"LABEL_{place}" for place in range(min(count, 100)))


def _relevant(labels: tuple[str, ...], wanted: int | str | None) -> int:
    if isinstance(wanted, str):
        if wanted not in labels:
            raise ConfigurationError(
                f"the model has no label '{wanted}'.",
                hint=f"its labels are {', '.join(labels) or 'not named; give 0 or 1'}",
            )
        return labels.index(wanted)
    if wanted is not None:
        if wanted not in (0, 1):
            raise ConfigurationError(f"relevant_label must be 0, 1 or a name, not {wanted}.")
        return int(wanted)
    names = [label.casefold().removeprefix("label_").replace("-", "_") for label in labels]
    if len(names) == 2:
        first = names[0] in _RELEVANT and names[1] not in _RELEVANT
        second = names[1] in _IRRELEVANT or names[1].startswith(("not_", "non_", "ir"))
        if first or (second and names[0] not in _IRRELEVANT):
            return 0
    return 1


def _max_tokens(files: ModelFiles, family: str, wanted: int | None) -> int:
    config = files.description("config.json")
    positions = _number(config, "max_position_embeddings")
    if positions is not None and family in _OFFSET_POSITIONS:
        pad = _number(config, "pad_token_id")
        positions -= (1 if pad is None else pad) + 1
    if wanted is not None:
        if wanted < _LEAST_TOKENS:
            raise ConfigurationError(f"max_tokens must be at least {_LEAST_TOKENS}, not {wanted}.")
        if positions and wanted > positions:
            raise ConfigurationError(
                f"the model {files.name} takes at most {positions} tokens, not {wanted}."
            )
        return wanted
    stated = _number(files.description("sentence_bert_config.json"), "max_seq_length")
    if stated is None:
        stated = _number(files.description("tokenizer_config.json"), "model_max_length")
    limits = [limit for limit in (stated, positions) if limit and limit < _NO_LIMIT]
    if not limits:
        raise ModelInvalid(
            f"the files of the model {files.name} don't say how many tokens it takes.",
            hint="give max_tokens=, e.g. max_tokens=512",
        )
    if min(limits) < _LEAST_TOKENS:
        raise ModelInvalid(
            f"the model {files.name} takes {min(limits)} tokens, too few for a pair of texts."
        )
    return min(limits)


def _special(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the tokens around texts; decoders have them under other names."""
    found = {}
    for key, names in {
        "cls": ("cls_token", "bos_token"),
        "sep": ("sep_token", "eos_token"),
    }.items():
        for name in names:
            value = described.get(name)
            value = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(value, str) and value:
                found[key] = value
                break
    return found


def _number(described: Mapping[str, Any], key: str) -> int | None:
    value = described.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e100:
        return None
    return int(value)
