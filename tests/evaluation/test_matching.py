"""What judgements name is decided once, by what the collection has."""

from __future__ import annotations

import pytest

from nbrag.errors import JudgementsError
from nbrag.evaluation import Judgements
from nbrag.evaluation.matching import match_judgements
from nbrag.types import RetrievalChunk


def judged(*names: str, **grades: int) -> Judgements:
    return Judgements({"q": "text"}, {"q": dict.fromkeys(names, 1) | grades}, name="mine")


def chunk(name: str, source: str, **record) -> RetrievalChunk:
    return RetrievalChunk(name, source, "text", 1.0, {"source": source, **record})


async def test_whole_uris(listed):
    found = await match_judgements(judged("1", "11"), listed({"1": "a", "11": "b", "2": "c"}))
    assert (found.unit, found.qrels, found.missing) == ("document", {"q": {"1": 1, "11": 1}}, ())


async def test_ends_of_uris_begin_at_a_slash(listed):
    collection = listed(
        {"corpus/handbook/ops/backup.md": "a", "corpus/handbook/ops/my-backup.md": "b"}
    )
    found = await match_judgements(judged("ops/backup.md", "gone.md"), collection)
    assert found.qrels == {"q": {"corpus/handbook/ops/backup.md": 1, "gone.md": 1}}
    assert found.missing == ("gone.md",)


async def test_windows_paths_and_leading_dots_are_no_difference(listed):
    found = await match_judgements(judged("./ops\\backup.md"), listed({"h/ops/backup.md": "a"}))
    assert found.qrels == {"q": {"h/ops/backup.md": 1}}


async def test_a_whole_uri_wins_over_another_that_ends_in_it(listed):
    collection = listed({"a.md": "a", "x/a.md": "b", "x/b.md": "c"})
    found = await match_judgements(judged("a.md", "b.md"), collection)
    assert found.qrels == {"q": {"a.md": 1, "x/b.md": 1}}


async def test_a_name_of_two_documents_is_refused(listed):
    with pytest.raises(JudgementsError, match=r"'a\.md' could be x/a\.md or y/a\.md"):
        await match_judgements(judged("a.md"), listed({"x/a.md": "a", "y/a.md": "b"}))


async def test_two_names_of_one_document_count_as_the_better_grade(listed):
    found = await match_judgements(judged(**{"a.md": 1, "x/a.md": 3}), listed({"x/a.md": "a"}))
    assert found.qrels == {"q": {"x/a.md": 3}}


async def test_chunk_ids(listed):
    found = await match_judgements(judged("c1", "c9"), listed({"a.md": ["c1", "c2"]}))
    assert (found.unit, found.missing) == ("chunk", ("c9",))
    assert found.ranking([chunk("c2", "a.md"), chunk("c1", "a.md")]) == ["c2", "c1"]


async def test_a_metadata_field(listed):
    found = await match_judgements(judged("7"), listed({"a.md": ["c1"]}, id_="VARCHAR"))
    assert (found.unit, found.metadata_field) == ("field", "id_")
    ranking = found.ranking(
        [chunk("c1", "a.md", id_=7), chunk("c2", "a.md", id_=7), chunk("c3", "b.md")]
    )
    assert ranking == ["7", "b.md"]


async def test_nothing_that_matches_is_told_with_examples(listed):
    with pytest.raises(JudgementsError) as caught:
        await match_judgements(judged("1", "2", "3", "4"), listed({"a.md": ["c1"]}))
    assert "mine names nothing that collection 'docs' has" in caught.value.message
    assert "judged are '1', '2', '3', ...; the collection has 'a.md'" in caught.value.message
    assert "chunk id" in caught.value.hint


async def test_an_empty_collection_says_so(listed):
    with pytest.raises(JudgementsError, match="'docs' has no documents"):
        await match_judgements(judged("1"), listed({}))


async def test_documents_rank_by_their_best_chunk_with_copies_behind(listed):
    found = await match_judgements(judged("a"), listed({"a": "c1", "b": "c2", "copy": "c3"}))
    chunks = [
        chunk("c1", "b", also_in=["copy", "b"]),
        chunk("c2", "a"),
        chunk("c3", "b"),
        chunk("c4", "copy"),
    ]
    assert found.ranking(chunks) == ["b", "copy", "a"]
