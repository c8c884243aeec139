"""Spans, log lines and the table of what each stage did."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import trace as telemetry

import nbrag
from nbrag.errors import EmbedderMismatch
from nbrag.protocols import Collection, RetrievalResultProcessor
from nbrag.testing import HashEmbedder
from nbrag.tracing import StageChange, Trace, leg_name, stage_span
from nbrag.types import RankedItem, RankedList, RetrievalChunk, RetrievalResults
from nbrag.workspace import Workspace


class _Span(telemetry.NonRecordingSpan):
    def __init__(self, name: str, attributes: Mapping[str, Any], parent: str) -> None:
        super().__init__(telemetry.INVALID_SPAN_CONTEXT)
        self.name, self.parent = name, parent
        self.attributes = dict(attributes)
        self.failed = False
        self.exceptions: list[BaseException] = []

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.attributes.update(attributes)

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.failed = True

    def record_exception(self, exception: BaseException, *rest: Any, **options: Any) -> None:
        self.exceptions.append(exception)


class _Tracer(telemetry.NoOpTracer):
    """Keeps every span that was started."""

    def __init__(self) -> None:
        self.spans: list[_Span] = []

    @contextlib.contextmanager
    def start_as_current_span(
        self, name: str, *, attributes: Mapping[str, Any], **options: Any
    ) -> Iterator[_Span]:
        parent = getattr(telemetry.get_current_span(), "name", "")
        span = _Span(name, attributes, parent)
        self.spans.append(span)
        with telemetry.use_span(span, **options):
            yield span


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> _Tracer:
    found = _Tracer()
    monkeypatch.setattr(telemetry, "get_tracer", lambda *_: found)
    return found


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        opened.ingest("docs", [{"id": str(i), "text": f"secret words {i}"} for i in range(6)])
        yield opened


class _Fails(RetrievalResultProcessor):
    name = "fails"

    async def process(self, results: RetrievalResults, collection: Collection) -> RetrievalResults:
        raise ValueError("secret reason")


def test_a_run_is_a_span_with_its_stages_as_children(workspace: Workspace, tracer: _Tracer) -> None:
    pipeline = workspace.retrieval_pipeline().use_mmr().build()
    nbrag.run(pipeline.process(workspace["docs"], "secret question", top_k=3))
    assert [(span.name, span.parent) for span in tracer.spans] == [
        ("retrieval docs", ""),
        ("nbrag.stage search", "retrieval docs"),
        ("nbrag.stage mmr", "retrieval docs"),
    ]
    run = tracer.spans[0].attributes
    assert run["gen_ai.operation.name"] == "retrieval"
    assert run["gen_ai.data_source.id"] == "docs"
    assert run["nbrag.results"] == 3
    assert all(span.attributes["milliseconds"] > 0 for span in tracer.spans)
    assert not any(span.failed for span in tracer.spans)
    assert "secret" not in str([span.attributes for span in tracer.spans])


def test_a_stage_that_was_passed_over_is_marked_in_its_span_alone(
    workspace: Workspace, tracer: _Tracer
) -> None:
    pipeline = workspace.retrieval_pipeline().use(_Fails()).build()
    nbrag.run(pipeline.process(workspace["docs"], "secret question"))
    failed = {span.name: span.failed for span in tracer.spans}
    assert failed == {
        "retrieval docs": False,
        "nbrag.stage search": False,
        "nbrag.stage fails": True,
    }
    assert tracer.spans[-1].attributes["error.type"] == "ValueError"
    assert "secret" not in str([span.attributes for span in tracer.spans])


def test_an_error_is_told_by_its_type_not_by_its_text(
    workspace: Workspace, tracer: _Tracer
) -> None:
    from nbrag.retrieval import VectorStoreRetriever

    with pytest.raises(EmbedderMismatch):
        nbrag.run(VectorStoreRetriever(workspace["docs"], HashEmbedder(8)).retrieve("secret"))
    assert [span.attributes["error.type"] for span in tracer.spans] == ["EmbedderMismatch"] * 2
    assert all(span.failed and not span.exceptions for span in tracer.spans)


def test_a_failed_stage_has_a_log_line_of_a_higher_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="nbrag.retrieval"):
        with stage_span("good", {"a": 1}):
            pass
        with contextlib.suppress(KeyError), stage_span("bad", {}):
            raise KeyError
    (good, bad) = caplog.records
    assert (good.levelno, good.nbrag["a"]) == (logging.DEBUG, 1)
    assert (bad.levelno, bad.nbrag["error.type"]) == (logging.INFO, "KeyError")
    assert bad.nbrag["milliseconds"] >= 0


def _chunk(name: str) -> RetrievalChunk:
    return RetrievalChunk(name, "d", name, 1.0, {"source": f"{name}.md", "heading_path": ["H"]})


@pytest.fixture
def trace() -> Trace:
    found = Trace("what?", "docs")
    found.note("expand", (), explanation="2 variants", ranks=False)
    leg = RankedList("vector", 0, 1.0, (RankedItem("a", 0.5), RankedItem("b", 0.4)), "exact")
    other = RankedList("vector", 1, 1.0, (RankedItem("c", 0.5),), "exact")
    found.note_lists([leg, other])
    found.note_chunks("search", [_chunk(name) for name in "abcd"], milliseconds=3.25)
    found.note_chunks("rerank", [_chunk(name) for name in "dabx"])
    found.note_chunks("result", [_chunk(name) for name in "da"])
    return found


def test_changes_say_what_each_stage_added_dropped_and_lifted(trace: Trace) -> None:
    assert trace.changes() == [
        StageChange("rerank", added=("x",), dropped=("c",), lifted=("d",)),
        StageChange("result", added=(), dropped=("b", "x"), lifted=()),
    ]


def test_shown_with_a_column_per_ranking_and_a_note_per_stage(trace: Trace) -> None:
    text = trace._repr_mimebundle_()["text/plain"]
    header = text.splitlines()[1].split()
    assert header == ["chunk", "vector", "1", "vector", "2", "search", "rerank", "result"]
    assert text.splitlines()[3].split() == ["d.md", "H", "4", "1", "1"]
    assert "expand: 2 variants\n" in text
    assert "rerank: 4 candidates; 1 added; 1 dropped; 1 lifted" in text
    assert "3.25" not in text


def test_one_stage_alone_can_be_shown(trace: Trace) -> None:
    from dataclasses import replace

    alone = replace(trace, stages=[trace.stage("rerank")])
    text = alone._repr_mimebundle_()["text/plain"]
    assert text.splitlines()[1].split() == ["chunk", "rerank"]
    assert text.endswith("rerank: 4 candidates")


def test_rows_are_a_table_of_every_candidate(trace: Trace) -> None:
    rows = trace.rows()
    assert [row["stage"] for row in rows] == [
        "vector 1", "vector 1", "vector 2", *["search"] * 4, *["rerank"] * 4, *["result"] * 2
    ]  # fmt: skip
    assert rows[3] == {
        "position": 3,
        "stage": "search",
        "chunk_id": "a",
        "rank": 1,
        "score": 1.0,
        "milliseconds": 3.25,
        "explanation": "",
    }


def test_an_empty_trace_is_shown() -> None:
    assert Trace("what?", "docs")._repr_mimebundle_()["text/plain"].startswith("Rank after")


def test_legs_are_numbered_only_where_there_are_several() -> None:
    vector, again = (RankedList("vector", variant, 1.0, ()) for variant in (0, 2))
    keyword = RankedList("keyword", 0, 1.0, ())
    names = [leg_name(ranked, [vector, again, keyword]) for ranked in (vector, again, keyword)]
    assert names == ["vector 1", "vector 3", "keyword"]
