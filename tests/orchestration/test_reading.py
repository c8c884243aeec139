"""Replies of any kind: never an error, never a number that was not sent, and in bounded time."""

from __future__ import annotations

import time

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbrag.models.chat.markers import cited_numbers
from nbrag.orchestration.evidence import register_evidence
from nbrag.orchestration.reading import AnswerReader
from nbrag.types import RetrievalChunk, Span, TextPiece

TEXTS = ("Backups are kept for 35 days in the EU.", "Logs are [2] kept; see [1].")
EVIDENCE = register_evidence(
    [
        RetrievalChunk(f"c{n}", "d", text, 1.0, span=Span(0, len(text)))
        for n, text in enumerate(TEXTS)
    ],
    4_000,
)
PARTS = st.sampled_from(
    [
        *("EVIDENCE", "ANSWER", "Answer:", "QUOTES", "\n", "\n\n", " ", "NOT ANSWERED: ", "[1]"),
        *("[2, 7]", "【1†x】", '[1] "kept for 35 days"', '[2] "no such words"', "<think>"),
        *("</think>", "```", "It is so.", "These are:", "[", "]", '"', "{", "- ", "**", "例。"),
        *('{"id": 1, "text": "x"}', "<passages>", "a" * 50),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PARTS | st.text(max_size=8), max_size=25), st.integers(1, 9))
@example(["[1]", "\n", "ANSWER", "\n", "[1]"], 1)
def test_any_reply_is_read(parts: list[str], size: int) -> None:
    raw = "".join(parts)
    reader = AnswerReader(EVIDENCE)
    shown = ""
    for start in range(0, len(raw), size):
        for event in reader.feed(raw[start : start + size]):
            if isinstance(event, TextPiece):
                shown = event.text
                assert set(cited_numbers(shown)) <= {1, 2}
    found = reader.finish()
    assert reader.raw == raw
    assert set(cited_numbers(found.text)) <= {1, 2}
    assert {citation.number for citation in found.citations} == set(cited_numbers(found.text))
    for citation in found.citations:
        text = TEXTS[citation.number - 1]
        if citation.verified:
            assert citation.quote == text[citation.chunk_start : citation.chunk_end]
    if found.outcome == "answered":
        assert any(sign.isalnum() for sign in found.text)
        assert found.support is not None
        assert 0 <= found.support <= 1
        assert found.support == 1 or found.warnings
    else:
        assert (found.text, found.citations, found.support) == ("", (), None)
        assert found.reason
    # In one piece it is the same answer.
    whole = AnswerReader(EVIDENCE)
    whole.feed(raw)
    assert whole.finish() == found


def test_a_long_reply_in_small_pieces_takes_little_time() -> None:
    started = time.process_time()
    reader = AnswerReader(EVIDENCE)
    for piece in ['EVIDENCE\n[1] "kept for 35 days"\nANSWER\n', *(["It is [1] so. "] * 600)]:
        reader.feed(piece)
    assert reader.finish().outcome == "answered"
    assert time.process_time() - started < 10


def test_a_reply_made_to_slow_a_pattern_down_takes_little_time() -> None:
    started = time.process_time()
    for hostile in (
        "[" * 20_000,
        "[1" + ",1" * 10_000,
        "`" * 20_000,
        "\n" * 20_000,
        '[1] "' * 4_000,
        "-" * 20_000,
        "EVIDENCE\n" + "[1] " * 5_000,
        " " * 20_000,
        "【1†" * 6_000,
    ):
        reader = AnswerReader(EVIDENCE)
        reader.feed(hostile)
        reader.finish()
    assert time.process_time() - started < 10
