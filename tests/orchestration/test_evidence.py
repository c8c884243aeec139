"""Numbers bound to chunks, and places of quotes in documents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.orchestration.evidence import quote_place, register_evidence
from nbrag.retrieval.processors._strips import recomposed, split_strips
from nbrag.types import RetrievalChunk, Span

DOCUMENT = (
    "Intro words here. " + "Alpha beta gamma delta. Second sentence is here. Third one ends it."
)


def test_numbers_stay_when_a_later_round_adds_passages(kit) -> None:
    first = register_evidence([kit.passage("a", "One."), kit.passage("b", "Two.")], 4000)
    more = register_evidence(
        [kit.passage("b", "Two."), kit.passage("c", "Three.")], 4000, earlier=first
    )
    assert [(p.number, p.chunk_id) for p in more.passages] == [
        (1, "chunk-a"),
        (2, "chunk-b"),
        (3, "chunk-c"),
    ]
    assert '{"id": 3' in more.block([3])
    assert "Two." not in more.block([1, 3])
    assert (0 in more, 3 in more, 4 in more) == (False, True, False)
    with pytest.raises(LookupError):
        more.passage(4)


def test_earlier_evidence_counts_against_the_budget(kit) -> None:
    first = register_evidence([kit.passage("a", "word " * 100)], 250)
    more = register_evidence([kit.passage("b", "word " * 100)], 250, earlier=first)
    assert len(more) == 1
    assert "1 of 1 passages did not fit" in more.warnings[0]


def chunk_of(start: int, end: int) -> RetrievalChunk:
    return RetrievalChunk("c", "d", DOCUMENT[start:end], 1.0, span=Span(start, end))


def test_a_quote_in_a_strip_is_placed_in_the_document() -> None:
    chunk = chunk_of(18, len(DOCUMENT))
    strips = split_strips(chunk.content, sentences=1, fewest=1)
    cut = recomposed(chunk, [strips[0], strips[2]])
    assert "[...]" in cut.content
    evidence = register_evidence([cut], 4000)
    for quote in ("beta gamma", "Third one ends"):
        (citation,) = evidence.quotes(1, quote)
        assert citation.quote_span is not None
        assert DOCUMENT[citation.quote_span.start : citation.quote_span.end] == quote
    # A text that bridges a gap stands nowhere in one piece.
    assert quote_place(cut, 0, len(cut.content)) is None


def test_a_text_that_is_not_the_documents_has_no_place_there() -> None:
    assert quote_place(replace(chunk_of(0, 10), content="other"), 0, 5) is None
    assert quote_place(replace(chunk_of(0, 10), span=None), 0, 5) is None


@given(st.data())
def test_places_are_those_of_the_document(data: st.DataObject) -> None:
    chunk = chunk_of(5, len(DOCUMENT))
    strips = split_strips(chunk.content, sentences=1, fewest=1)
    chosen = data.draw(st.lists(st.sampled_from(strips), min_size=1, unique=True))
    cut = recomposed(chunk, chosen)
    start = data.draw(st.integers(0, len(cut.content) - 1))
    end = data.draw(st.integers(start + 1, len(cut.content)))
    place = quote_place(cut, start, end)
    if place is not None:
        assert DOCUMENT[place.start : place.end] == cut.content[start:end]
    elif " [...] " not in cut.content:
        raise AssertionError("one piece has its place")
