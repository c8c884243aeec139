"""Lines that end in a question mark are questions, not calls for help.

IPython takes ``%magic words?`` for a request to explain ``words``. For nbrag's magics it is not,
once something stands after the name; ``%rag_search?`` still shows the help.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from tokenize import TokenInfo
from typing import Any, Self

from IPython.core.inputtransformer2 import EscapedCommand, MagicAssign

__all__ = ["QuestionAssignment", "QuestionLine", "install", "remove"]

_CALL = re.compile(r"%rag_\w+[ \t]")


class QuestionLine(EscapedCommand):
    """Transforms ``%rag_search words?``."""

    #: Lower than that of IPython's help transformer, which matches at the same place.
    priority = 0

    @classmethod
    def find(cls, tokens_by_line: Sequence[Sequence[TokenInfo]]) -> Self | None:
        """Return the first such line of a cell."""
        for line in tokens_by_line:
            first = _first(line)
            if first is not None and _is_call(first):
                return cls(first.start)
        return None


class QuestionAssignment(MagicAssign):
    """Transforms ``found = %rag_search words?``."""

    priority = 0
    #: Where the magic stands; ``start_col`` is the line's first word, for the order.
    magic_column = 0

    @classmethod
    def find(cls, tokens_by_line: Sequence[Sequence[TokenInfo]]) -> Self | None:
        """Return the first such line of a cell."""
        for line in tokens_by_line:
            first = _first(line)
            for before, token in itertools.pairwise(line):
                if first is not None and before.string == "=" and _is_call(token):
                    same_line = first.start[0] == token.start[0]
                    column = first.start[1] if same_line else 0
                    found = cls((token.start[0], column))
                    found.magic_column = token.start[1]
                    return found
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """Return the lines with the magic as a call."""
        self.start_col = self.magic_column
        transformed: list[str] = super().transform(lines)
        return transformed


def _first(line: Sequence[TokenInfo]) -> TokenInfo | None:
    """Return the first word of a line, behind its indentation."""
    return next((token for token in line if token.string.strip()), None)


def _is_call(token: TokenInfo) -> bool:
    """Return whether one of nbrag's magics with something after its name begins here."""
    return token.string == "%" and _CALL.match(token.line, token.start[1]) is not None


def install(manager: Any) -> None:
    """Add the transformers to a shell's input transformer manager."""
    manager.token_transformers.extend((QuestionLine, QuestionAssignment))


def remove(manager: Any) -> None:
    """Take the transformers out again."""
    manager.token_transformers[:] = [
        entry for entry in manager.token_transformers if entry.__module__ != __name__
    ]
