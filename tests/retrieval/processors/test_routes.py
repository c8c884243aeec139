"""Routes that are chosen without a chat model: by cues, by example questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbrag
from nbrag.errors import ConfigurationError
from nbrag.protocols import Collection
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.route import AdaptiveRouter, RouteOptions
from nbrag.spec import BuildContext, PipelineSpec
from nbrag.stores.memory import MemoryCollection
from nbrag.testing import HashEmbedder
from nbrag.types import RetrievalQuery, RetrievalResults
from nbrag.workspace import Workspace

RECORDS = [
    *(
        {"id": f"{name}-{i}", "text": f"A product, note{i}.", "entities_technologies": [name]}
        for name in ("Ostara", "Lumen Cloud")
        for i in range(3)
    ),
    *({"id": f"other-{i}", "text": f"Is Ostara good, words{i}?"} for i in range(6)),
]


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", RECORDS)
        yield opened


@pytest.fixture(scope="module", params=["duckdb", "memory"])
def collection(request: pytest.FixtureRequest, workspace: Workspace) -> Collection:
    if request.param == "duckdb":
        return workspace["docs"]
    memory = MemoryCollection("docs", workspace.embedder.identity)
    nbrag.run(workspace.ingestion_pipeline().build().run(RECORDS, memory))
    return memory


def search(collection: Collection, query: str, **options: Any) -> RetrievalResults:
    embedder = HashEmbedder()
    context = BuildContext(lambda: embedder, lambda: None)
    builder = RetrievalPipelineBuilder(PipelineSpec("retrieval"), context)
    pipeline = builder.use_adaptive_routing(**options).build()
    return nbrag.run(pipeline.process(collection, query))


def entities(results: RetrievalResults) -> list[list[str]]:
    return [chunk.record["entities_technologies"] for chunk in results]


@pytest.mark.parametrize(
    ("question", "route", "complexity"),
    [
        ("how long are backups kept", "simple", "one"),
        ("Wie lange werden Backups in der Region aufbewahrt?", "simple", "one"),
        ("How do I resume a download?", "simple", "one"),
        ("what does ostara cost", "entity-specific", "one"),
        ("give me an overview of ostara", "entity-specific", "one"),
        ("How do Ostara and Lumen Cloud compare?", "entity-specific", "several"),
        ("Who is Ada Lovelace?", "entity-specific", "one"),
        ("Give me an overview of all notes", "thematic", "one"),
        ("Was sind die Hauptthemen?", "thematic", "one"),
        ("Donne-moi un aperçu des notes", "thematic", "one"),
        ("Vue d'ensemble des notes", "thematic", "one"),
        ("Haz un resumen de todo", "thematic", "one"),
        ("Обзор всех документов", "thematic", "one"),
        ("总结一下这些文件", "thematic", "one"),
        ("この資料の概要は", "thematic", "one"),
        ("Thank you!", "simple", "none"),
        ("你好", "simple", "none"),
    ],
)
def test_rules_know_entities_and_cues(
    collection: Collection, question: str, route: str, complexity: str
) -> None:
    stage = AdaptiveRouter(None, RouteOptions(classifier="rules"))
    query = nbrag.run(stage.process(RetrievalQuery(question), collection))
    assert query.metadata["search_paradigm"] == route
    assert query.metadata["complexity"] == complexity
    assert query.metadata["router_reasoning"].startswith("rules: ")


def test_rules_filter_by_what_they_find(collection: Collection) -> None:
    results = search(collection, "is OSTARA good?", classifier="rules")
    assert entities(results) == [["Ostara"]] * 3
    assert "'Ostara'" in results.metadata["router_reasoning"]
    guessed = search(collection, "is Ada Lovelace here?", classifier="rules")
    assert guessed.query.filter is None
    assert guessed.metadata["router_unknown_entities"] == ["Ada Lovelace"]


def test_rules_cut_several_questions_apart(workspace: Workspace) -> None:
    question = "how long are backups kept? And who restores them?"
    results = search(workspace["docs"], question, classifier="rules")
    texts = [variant.text for variant in results.query.variants]
    assert texts == [question, "how long are backups kept?", "And who restores them?"]


def test_examples_decide_by_their_mean(collection: Collection, tmp_path: Path) -> None:
    lines = [
        {"question": "alpha beta gamma", "route": "simple"},
        {"question": "delta epsilon", "route": "thematic"},
        {"question": "delta zeta", "route": "thematic"},
        {"question": "which product eta", "route": "entity-specific"},
    ]
    file = tmp_path / "examples.jsonl"
    text = "\n\n".join(json.dumps(line) for line in lines)
    file.write_text(text, encoding="utf-8")
    options = {"classifier": "embedding", "examples": str(file)}
    for question, route in [
        ("gamma beta", "simple"),
        ("delta epsilon zeta", "thematic"),
        ("which product eta Ostara", "entity-specific"),
    ]:
        results = search(collection, question, **options)
        assert results.metadata["search_paradigm"] == route
        assert "cosine" in results.metadata["router_reasoning"]
    assert entities(results) == [["Ostara"]] * 3


def test_built_in_examples_are_embedded_once(workspace: Workspace) -> None:
    embedder = HashEmbedder()
    stage = AdaptiveRouter(None, RouteOptions(classifier="embedding"), embedder=lambda: embedder)
    for question in ("Give me an overview of the main themes", "Thanks"):
        query = nbrag.run(stage.process(RetrievalQuery(question), workspace["docs"]))
        assert query.metadata["search_paradigm"] in {"simple", "thematic", "entity-specific"}
    assert query.metadata["complexity"] == "none"
    assert embedder.queries[-2:] == ["Give me an overview of the main themes", "Thanks"]
    assert embedder.calls == 3


@pytest.mark.model
def test_built_in_examples_tell_routes_apart_with_the_default_model() -> None:
    from nbrag.models.embedding import default_embedder

    embedder = default_embedder()
    stage = AdaptiveRouter(None, RouteOptions(classifier="embedding"), embedder=lambda: embedder)
    collection = MemoryCollection("empty", embedder.identity)
    asked = {
        "What is the refund period?": "simple",
        "How can I export my data to CSV?": "simple",
        "What topics does this corpus cover?": "thematic",
        "Overview of the main risks": "thematic",
        "What did Alan Turing publish in 1950?": "entity-specific",
        "Does Firefox 120 support WebGPU?": "entity-specific",
    }
    found = {
        question: nbrag.run(stage.process(RetrievalQuery(question), collection)).metadata
        for question in asked
    }
    assert {q: metadata["search_paradigm"] for q, metadata in found.items()} == asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question": "a", "route": "simple"}\n{"question": "b"}', "line 2"),
        ('{"question": "a", "route": "graph"}', "line 1"),
        ("no JSON", "line 1"),
        ('{"question": "a", "route": "simple"}', "fewer than two routes"),
        ("", "fewer than two routes"),
        (None, "can't be read"),
        (b"\xff\xfe\xfa", "not UTF-8"),
    ],
)
def test_bad_examples_are_refused_when_it_is_built(
    tmp_path: Path, text: str | bytes | None, message: str
) -> None:
    file = tmp_path / "examples.jsonl"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    options = RouteOptions(classifier="embedding", examples=str(file))
    with pytest.raises(ConfigurationError, match=message):
        AdaptiveRouter(None, options, embedder=HashEmbedder)
