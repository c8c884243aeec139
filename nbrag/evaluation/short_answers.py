"""Exact match and token F1 on short answers, as SQuAD's own script reckons them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

from nbrag.models.chat.markers import without_markers

__all__ = ["exact_match", "normalised_answer", "token_f1"]

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


def normalised_answer(text: str) -> str:
    """Return an answer without case, punctuation, articles and spare blanks.

    Rajpurkar et al., "SQuAD" (arXiv:1606.05250): lower case, then punctuation (ASCII) out, then
    the English articles, then blanks made single. Markers of citations are no part of it.

    Examples
    --------
    >>> normalised_answer("The 1973 oil-crisis [2].")
    '1973 oilcrisis'
    """
    lower = without_markers(text).lower()
    bare = "".join(sign for sign in lower if sign not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(answer: str, accepted: Iterable[str]) -> float:
    """Return 1.0 when the answer equals one of those accepted, both normalised; else 0.0."""
    given = normalised_answer(answer)
    return float(any(given == normalised_answer(one) for one in accepted))


def token_f1(answer: str, accepted: Iterable[str]) -> float:
    """Return the best F1 of the answer's words with those of an accepted one, from 0 to 1.

    Words are counted as often as they occur. When one of the two has no words, the value is 1.0
    if the other has none either.
    """
    return max((_f1(answer, one) for one in accepted), default=0.0)


def _f1(answer: str, accepted: str) -> float:
    given, wanted = normalised_answer(answer).split(), normalised_answer(accepted).split()
    if not given or not wanted:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted))
