"""Repeats of a text take one place, and say where else they stand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbrag.retrieval.distinct import distinct_chunks
from nbrag.types import RetrievalChunk


def chunk(name: str, text: str, **record: object) -> RetrievalChunk:
    return RetrievalChunk(name, name, text, 1.0, {"source": f"{name}.md", **record})


CHUNKS = st.lists(
    st.builds(chunk, st.sampled_from("abcdefgh"), st.sampled_from(["", " ", "x", "x ", "y", "z"]))
)


@given(CHUNKS)
def test_each_id_and_each_text_once_at_its_best_rank(chunks: list[RetrievalChunk]) -> None:
    kept = distinct_chunks(chunks)
    assert len({c.id for c in kept}) == len(kept)
    texts = [c.content.strip() for c in kept if c.content.strip()]
    assert len(set(texts)) == len(texts)
    # Nothing is reordered, and every text and every id is still accounted for.
    order = [c.id for c in chunks]
    assert [order.index(c.id) for c in kept] == sorted(order.index(c.id) for c in kept)
    first = {c.id: c for c in reversed(chunks)}
    assert {c.content.strip() for c in first.values()} == {c.content.strip() for c in kept}
    sources = {c.source for c in kept} | {s for c in kept for s in c.record.get("also_in", ())}
    assert sources == {c.source for c in chunks}


@given(CHUNKS)
def test_a_second_time_changes_nothing(chunks: list[RetrievalChunk]) -> None:
    once = distinct_chunks(chunks)
    assert distinct_chunks(once) == once


def test_places_of_places_are_kept() -> None:
    kept = distinct_chunks(
        [chunk("a", "same", also_in=["z.md"]), chunk("b", " same\n", also_in=["y.md", "z.md"])]
    )
    assert [c.id for c in kept] == ["a"]
    assert kept[0].record["also_in"] == ["z.md", "b.md", "y.md"]


def test_letters_count() -> None:
    assert len(distinct_chunks([chunk("a", "Same"), chunk("b", "same")])) == 2
