"""A question goes through all of IPython and arrives as it was typed."""

from __future__ import annotations

import string
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nbrag.notebook.session import current_workspace

TYPED = string.ascii_letters + string.digits + " '\"$#;{}()[]%-=,.?!:@/*&|<>~`^+_é文🙂"
#: What begins no option and no expansion, and is no line that goes on in the next.
QUESTIONS = (
    st.text(TYPED, min_size=1, max_size=30)
    .map(lambda text: f"Q{text}".strip())
    .filter(lambda text: "{{" not in text)
)
PLACES = [
    "%rag_search -k 3 {}",
    "found = %rag_search -k 3 {}",
    "if True:\n    %rag_search -k 3 {}\nafter = 1",
    "%%rag_search -k 3\n{}",
    "%%rag_search -k 3\n\n{}\n",
]


@pytest.fixture
def asked(shell: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the workspace was asked."""
    calls: list[tuple[str, int]] = []

    def search(question: str, *, top_k: int, **_: Any) -> Any:
        calls.append((question, top_k))
        return SimpleNamespace()

    monkeypatch.setattr(current_workspace(), "search", search)
    return calls


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=QUESTIONS)
@example(question='what\'s a $5 -k "plan" # or; {this}?')
@example(question="Is f(x, [y?")
@example(question="Is it '''so?")
@example(question="{x} and $x ?")
def test_a_question_arrives_as_it_was_typed(
    shell: Any, asked: list[tuple[str, int]], place: str, question: str
) -> None:
    asked.clear()
    shell.run(place.format(question))
    assert asked == [(question, 3)]


def test_a_variable_is_put_in_unless_it_is_told_not_to(
    shell: Any, asked: list[tuple[str, int]]
) -> None:
    shell.user_ns.update(place="the EU", k=2)
    shell.run("%rag_search -k {{ k }} Kept in {{ place }}?")
    shell.run("%%rag_search -k 4\nKept in {{place}}?")
    shell.run("%rag_search --raw Kept in {{ place }}?")
    assert asked == [
        ("Kept in the EU?", 2),
        ("Kept in the EU?", 4),
        ("Kept in {{ place }}?", 5),
    ]
