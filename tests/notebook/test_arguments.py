"""Options first, then the question as it was typed."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbrag.errors import MagicUsageError
from nbrag.notebook.arguments import MagicParser, split_line, split_words
from nbrag.notebook.magics import RagMagics

SEARCH: MagicParser = RagMagics.rag_search.parser
INGEST: MagicParser = RagMagics.rag_ingest.parser
TYPED = string.ascii_letters + string.digits + " \t'\"\\$#;{}%-=,.?!é文🙂"


@given(st.text(TYPED, max_size=40))
@example('what\'s $5 -k "x" # and; more')
@example('where {a} = "b" \\')
def test_a_question_arrives_as_it_was_typed(text: str) -> None:
    question = f"Q{text}"
    words, found = split_line(SEARCH, f" -k 3 --where 'a == \"b c\"' {question}", free_text=True)
    assert words == [("-k", "3"), ("--where", 'a == "b c"')]
    assert found == question.strip()


@given(st.text(TYPED, max_size=40))
def test_after_two_dashes_everything_is_the_question(text: str) -> None:
    assert split_line(SEARCH, f"-- {text}", free_text=True) == ([], text.strip())


@given(st.text(TYPED, max_size=40))
def test_any_line_is_read_or_refused_clearly(text: str) -> None:
    for parser, free_text in ((SEARCH, True), (INGEST, False)):
        # Anything but MagicUsageError fails the test; what is read was in the line.
        with contextlib.suppress(MagicUsageError):
            words, question = split_line(parser, text, free_text=free_text)
            assert question in text
            assert all(name in parser.actions() or not name for name, _ in words)


@pytest.mark.parametrize(
    ("line", "words", "question"),
    [
        ("", [], ""),
        ("-5 degrees", [], "-5 degrees"),
        ("-> x", [], "-> x"),
        ("-k3 x", [("-k", "3")], "x"),
        ("-k=3 x", [("-k", "3")], "x"),
        ("--top-k=3 x -q", [("--top-k", "3")], "x -q"),
        ("-q -o r", [("-q", None), ("-o", "r")], ""),
        ("-p {{ name of }} x", [("-p", "{{ name of }}")], "x"),
    ],
)
def test_options_of_a_question(line: str, words: list, question: str) -> None:
    assert split_line(SEARCH, line, free_text=True) == (words, question)


def test_options_and_positions_mix() -> None:
    words, _ = split_line(INGEST, "docs --from 'a b' C:\\docs --replace", free_text=False)
    assert words == [
        ("", "docs"),
        ("--from", None),
        ("", "a b"),
        ("", "C:\\docs"),
        ("--replace", None),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r"a\ b 'c d'\''e'", ["a b", "c d'e"]),
        (r'"a \"b\" \n" x=\"y', ['a "b" \\n', 'x="y']),
        ("''", [""]),
    ],
)
def test_words_and_quotes(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--piplne x q", "no option --piplne. Hint: did you mean '--pipeline'?"),
        ("--pip x q", "no option --pip"),
        ("-z q", "write -- before a question"),
        ("--quiet=yes q", "no option --quiet=yes"),
        ("-k", "option -k needs a value"),
        ("--where 'open q", "the closing quote of 'open q is missing"),
    ],
)
def test_errors_of_a_line(line: str, words: str) -> None:
    with pytest.raises(MagicUsageError) as caught:
        split_line(SEARCH, line, free_text=True)
    assert words in str(caught.value)
