"""What stages that derive text from chunks share: lineage, clean words, refusals."""

from __future__ import annotations

import re
import unicodedata

from nbrag.types import Chunk, MetadataKeys, stable_hash

__all__ = ["clean_line", "derivation", "is_refusal", "own_context", "words_of", "written_width"]

#: How models begin when they don't do what they are asked, or have nothing to say.
_REFUSAL = re.compile(
    r"""
    i['\u2019]?m\ sorry | i\ am\ sorry | sorry, | as\ an\ ai\b | unable\ to\b
    | i\ (?:can['\u2019]?t | cannot | can\ not | am\ unable | won['\u2019]?t)\b
    | i['\u2019]?m\ (?:unable | not\ able)
    | there\ (?:is|are)\ no\ (?:question|context)
    | no\ (?:context|questions?)\ (?:is|are|can|could|available)
    | (?:n/?a | none | null | unknown | string | \.\.\.)\W*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
#: Marks that tell names apart: C#, R&D.
_MEANINGFUL = frozenset("#&%@")


def derivation(stage: str, model: str, system: str) -> dict[str, str]:
    """Return a derived row's lineage: the stage, the model, and the version of the prompt.

    Parameters
    ----------
    stage
        Name of the stage.
    model
        Name of the model.
    system
        The stage's system message, of which a hash is the prompt's version.
    """
    return {
        "derived_by": stage,
        "derived_model": model,
        "derived_prompt": stable_hash(system)[:8],
    }


def own_context(chunk: Chunk) -> str:
    """Return a chunk's context as it was cut, without a situating sentence in front of it.

    What is asked about a chunk then doesn't change when only that sentence does.
    """
    sentence = chunk.metadata.get(MetadataKeys.CONTEXTUAL_SUMMARY)
    if not isinstance(sentence, str) or not sentence:
        return chunk.context
    if chunk.context == sentence:
        return ""
    return chunk.context.removeprefix(f"{sentence}\n")


def clean_line(text: str) -> str:
    """Return a text on one line, without control characters and halves of surrogate pairs."""
    seen = "".join(
        mark for mark in text if mark.isspace() or unicodedata.category(mark) not in {"Cc", "Cs"}
    )
    return " ".join(seen.split())


def words_of(text: str) -> str:
    """Return a text's words alone, for comparison: case, punctuation and spacing don't count."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (
        " " if unicodedata.category(mark)[0] in "PZC" and mark not in _MEANINGFUL else mark
        for mark in folded
    )
    return " ".join("".join(kept).split())


def written_width(text: str) -> int:
    """Return how many letters and digits a text has, wide ones (Chinese, say) counting twice."""
    wide = unicodedata.east_asian_width
    return sum(1 + (wide(mark) in "WF") for mark in text if mark.isalnum())


def is_refusal(text: str) -> bool:
    """Tell whether a text says that there is no answer, instead of being one."""
    return _REFUSAL.match(text.strip()) is not None
