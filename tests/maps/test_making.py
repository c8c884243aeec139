"""Maps of collections: what is shown, by what, and where a question falls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import nbrag
from nbrag.errors import CollectionNotFound, ConfigurationError, FilterError
from nbrag.maps import CollectionMap, colour_fields, map_collection
from nbrag.maps.making import _sample
from nbrag.maps.picture import Legend, picture
from nbrag.stores.memory import MemoryCollection
from nbrag.testing import HashEmbedder
from nbrag.workspace import Workspace


def pages(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{number}.md",
            "text": f"page {number} speaks of {'apples' if number % 3 else 'bears'} a lot",
            "team": ("red", "green")[number % 2],
            "number": number,
            "tags": ["a", "b"],
        }
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as made:
        made.ingest("docs", pages(60))
        yield made


def test_all_chunks_of_a_small_collection_are_shown(workspace: Workspace) -> None:
    made = map_collection(workspace, "docs", by="team")
    assert len(made) == made.total == 60
    assert made.summary.startswith("docs: all 60 chunks; PCA, ")
    assert made.legend() == [("green", 30), ("red", 30)]
    vectors = nbrag.run(workspace["docs"].vectors(made.ids))
    stacked = np.stack([vectors[i] for i in made.ids]).astype(np.float64)
    points = np.array(made.points)
    # A projection: distances never grow, and the axes are uncorrelated.
    assert np.linalg.norm(points[0] - points[1]) <= np.linalg.norm(stacked[0] - stacked[1]) + 1e-6
    assert np.corrcoef(points.T)[0, 1] == pytest.approx(0, abs=1e-4)


def test_a_sample_is_fixed_and_says_so(workspace: Workspace) -> None:
    made = map_collection(workspace, "docs", most=20)
    assert len(made) == 20
    assert "20 of 60 chunks, a fixed random sample" in made.summary
    assert map_collection(workspace, "docs", most=20).ids == made.ids
    assert len(set(made.sources)) == 20


def test_marks_tell_the_field_that_tells_the_most(workspace: Workspace) -> None:
    assert map_collection(workspace, "docs").by == "team"
    fields = nbrag.run(colour_fields(workspace["docs"]))
    assert fields[0] == "team"
    assert fields[-1] == "document"
    assert "number" not in fields  # 60 values
    assert "tags" not in fields  # a list
    made = map_collection(workspace, "docs", by="document")
    assert made.legend()[-1] == ("other (53 values)", 53)


def test_the_topic_comes_first() -> None:
    with Workspace(embedder=HashEmbedder()) as own:
        own.ingest("docs", [{"id": "a", "text": "x y", "area": "z", "topic_primary": "t"}])
        made = map_collection(own)
        assert (made.by, made.groups) == ("topic_primary", ("t",))


def test_a_field_that_most_chunks_lack_comes_late() -> None:
    with Workspace(embedder=HashEmbedder()) as own:
        rows = [{"id": f"{n}", "text": f"text {n}", "shelf": "ab"[n % 2]} for n in range(8)]
        own.ingest("docs", [{**rows[0], "author": "me"}, *rows[1:]])
        assert nbrag.run(colour_fields(own["docs"]))[:2] == ["shelf", "media_type"]
        assert "author" in nbrag.run(colour_fields(own["docs"]))


def test_a_question_and_its_hits_have_places(workspace: Workspace) -> None:
    made = map_collection(workspace, "docs", question="bears bears", top_k=3)
    assert made.query is not None
    assert [hit.number for hit in made.hits] == [1, 2, 3]
    found = workspace.search("bears bears", collection="docs", top_k=3)
    assert [hit.source for hit in made.hits] == [chunk.source for chunk in found]
    places = dict(zip(made.ids, made.points, strict=True))
    for hit, chunk in zip(made.hits, found, strict=True):
        assert (hit.x, hit.y) == pytest.approx(places[chunk.id], abs=1e-5)


def test_hits_outside_of_the_sample_are_marked_too(workspace: Workspace) -> None:
    made = map_collection(workspace, "docs", question="page 7", top_k=5, most=10)
    assert len(made.hits) == 5
    assert len(made) == 10


def test_another_store_is_sampled_as_well(workspace: Workspace) -> None:
    memory = MemoryCollection("docs", workspace.embedder.identity)
    pipeline = workspace.ingestion_pipeline("docs").build()
    nbrag.run(pipeline.run(pages(12), memory))
    sample = nbrag.run(_sample(memory, 5, ["id", "source", "team"]))
    assert (sample.total, sample.vectors.shape) == (12, (5, 64))
    assert sample.columns["team"][0] in {"red", "green"}
    assert nbrag.run(colour_fields(memory))[0] == "team"


def test_what_can_not_be_drawn_is_told(workspace: Workspace) -> None:
    workspace.collection("empty")
    for options, error, words in (
        ({"collection": "empty"}, CollectionNotFound, "collection 'empty' is empty"),
        ({"collection": "dosc"}, CollectionNotFound, "there is no collection 'dosc'"),
        ({"by": "taem"}, FilterError, "there is no field 'taem'"),
        ({"by": "tags"}, FilterError, "holds lists"),
        ({"method": "tsne"}, ConfigurationError, "no method 'tsne'"),
        ({"most": 0}, ConfigurationError, "a map of 0 chunks"),
    ):
        with pytest.raises(error, match=words):
            map_collection(workspace, **{"collection": "docs", **options})


def svg_of(made: CollectionMap) -> ET.Element:
    found = re.search(r"<svg.*?</svg>", made._repr_mimebundle_()["text/html"], re.DOTALL)
    assert found
    return ET.fromstring(found[0])


def test_the_picture_can_be_read_without_colours_or_eyes(workspace: Workspace) -> None:
    made = map_collection(workspace, "docs", by="team", question="bears <b>&", top_k=4)
    svg = svg_of(made)
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == made.summary
    assert svg.findtext("title") == made.summary
    assert "green (30), red (30)" in (svg.findtext("desc") or "")
    texts = ["".join(text.itertext()) for text in svg.iter("text")]
    assert {"Q", "1", "2", "3", "4", "green: 30", "red: 30"} <= set(texts)
    shapes = [re.sub(r"M\d+ \d+", "M", p.get("d") or "")[:12] for p in svg.findall("path")[:2]]
    assert shapes[0] != shapes[1]
    bundle = made._repr_mimebundle_()
    assert "<b>" not in bundle["text/html"]
    assert "id=" not in bundle["text/html"]
    assert "green" in bundle["text/plain"]


def test_the_picture_is_small_and_marks_do_not_cover_each_other() -> None:
    points = [(float(x), float(y)) for x in range(100) for y in range(50)]
    hits = [(n, 10.0, 10.0, "the same") for n in range(1, 9)]
    made = picture(
        "t", [Legend("a", 5000)], points, [0] * 5000, question="q", query=(10.0, 10.0), hits=hits
    )
    assert len(made) < 90_000
    svg = ET.fromstring(made)
    discs = [(float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in svg.iter("circle")]
    marks = [d for d, c in zip(discs, svg.iter("circle"), strict=True) if c.get("r") == "10"]
    apart = [np.hypot(a[0] - b[0], a[1] - b[1]) for a in marks[:8] for b in marks[:8] if a != b]
    assert len(marks) == 9  # eight, and the one of the legend
    assert min(apart) >= 20


def test_a_single_chunk_has_a_map() -> None:
    with Workspace(embedder=HashEmbedder()) as own:
        own.ingest("docs", [{"id": "a", "text": "alone here"}])
        made = map_collection(own, question="alone")
        assert svg_of(made) is not None
        assert made.to_dicts()[0]["source"] == "a"
        assert made.to_arrow().num_rows == 1
