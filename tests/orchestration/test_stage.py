"""The stage ``answer`` in a cell, a builder, a file and a script; and in a workspace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError, SpecificationError
from nbrag.orchestration import Answerer
from nbrag.orchestration.orchestrators.answerer import AnswerOptions
from nbrag.spec import PipelineSpec, StageDefinition, register_stage, unregister_stage
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.types import AnswerDone, TextPiece
from nbrag.workspace import Workspace

GOOD = 'EVIDENCE\n[1] "kept for 35 days"\nANSWER\nFor 35 days [1].'
CELL = """%%rag_pipeline support -c docs
search  mode=keyword
answer  time_limit=30.0  passages=3  citations=false
"""


@pytest.fixture
def workspace():
    with Workspace(embedder=HashEmbedder(), chat=ScriptedChatClient(lambda _: GOOD)) as made:
        made.ingest(
            "docs",
            [
                {"id": "a.md", "text": "Backups are kept for 35 days in the EU."},
                {"id": "b.md", "text": "Prices change each year."},
            ],
        )
        yield made


def test_the_four_views_are_one(workspace) -> None:
    spec = PipelineSpec.from_cell(CELL)
    assert PipelineSpec.from_cell(spec.to_cell()) == spec
    assert PipelineSpec.from_dict(json.loads(spec.to_json())) == spec
    built = (
        workspace.retrieval_pipeline("support")
        .use_search(mode="keyword")
        .use_answer(time_limit=30.0, passages=3, citations=False)
    )
    assert built.spec.stages == spec.stages
    script = spec.to_python()
    assert ".use_answer(time_limit=30.0, passages=3, citations=False)" in script
    assert 'answerer = pipeline.as_answerer(workspace["docs"])' in script.replace("'", '"')
    assert "answer" in repr(built.build())
    assert "passages=3" in built.build()._repr_mimebundle_()["text/plain"]


def test_the_script_of_a_pipeline_runs(workspace, monkeypatch, tmp_path) -> None:
    lines = PipelineSpec.from_cell(CELL).to_python().splitlines()
    names = {"workspace": workspace}
    kept = [line for line in lines if not line.startswith("workspace =")]
    exec("\n".join(kept), names)
    assert isinstance(names["answerer"], Answerer)
    assert names["answerer"].options.passages == 3


@given(
    st.builds(
        AnswerOptions,
        passages=st.none() | st.integers(1, 200),
        context_tokens=st.integers(50, 10_000),
        max_tokens=st.integers(1, 5_000),
        citations=st.booleans(),
        time_limit=st.floats(0.5, 3_000),
    )
)
def test_options_survive_every_view(options: AnswerOptions) -> None:
    spec = PipelineSpec("retrieval", "p").with_stage("answer", **options.model_dump())
    for again in (
        PipelineSpec.from_body("retrieval", spec.to_body(), name="p"),
        PipelineSpec.from_dict(spec.to_dict()),
    ):
        assert again == spec


def test_a_pipeline_answers_in_one_way_only() -> None:
    register_stage(
        StageDefinition(
            name="shrug",
            kind="retrieval",
            role="answer",
            options=AnswerOptions,
            build=lambda options, context: (
                lambda retriever: Answerer(retriever, ScriptedChatClient(["Well."]), options)
            ),
            method="use_shrug",
            summary="A shrug.",
        )
    )
    try:
        with pytest.raises(SpecificationError, match="'answer' and 'shrug' both answer"):
            PipelineSpec.from_body("retrieval", "answer\nshrug")
        with Workspace(embedder=HashEmbedder()) as workspace:
            workspace.ingest("docs", [{"id": "a.md", "text": "Backups are kept."}])
            workspace.save_pipeline(workspace.retrieval_pipeline("p").use_shrug().spec)
            # The stage brings its own model; the workspace has none.
            assert workspace.ask("What?", pipeline="p").text == "Well."
    finally:
        unregister_stage("retrieval", "shrug")


def test_a_workspace_answers(workspace) -> None:
    events = []
    answer = workspace.ask("How long are backups kept?", progress=events.extend)
    assert answer.citations[0].source == "a.md"
    assert answer.citations[0].quote_span is not None
    place = answer.citations[0].quote_span
    text = "Backups are kept for 35 days in the EU."
    assert text[place.start : place.end] == "kept for 35 days"
    assert isinstance(events[-1], AnswerDone)
    assert any(isinstance(event, TextPiece) for event in events)
    follow = workspace.ask("And?", after=answer)
    assert follow.history == answer.turns
    assert follow.trace.stages[0].stage == "condense"
    # The trace's table has the passages that the answer cites.
    rows = workspace.sql("SELECT chunk_id FROM nbrag.trace WHERE stage = 'answer'").fetchall()
    assert (answer.citations[0].chunk_id,) in rows
    assert answer.usage.calls == 1


def test_another_model_for_one_answer(workspace) -> None:
    other = ScriptedChatClient(["ANSWER\nNOT ANSWERED: never."], model="other")
    answer = workspace.ask("How long?", chat=other)
    assert (answer.outcome, answer.model) == ("refused", "other")
    assert workspace.ask("How long?").model == "scripted"
    assert {entry.model for entry in workspace.ledger()} == {"other", "scripted"}


def test_options_of_one_call(workspace) -> None:
    answer = workspace.ask("How long are backups kept?", citations=False, passages=1)
    assert (answer.citations, len(answer.passages)) == ((), 1)
    with pytest.raises(SpecificationError, match="no option 'citation'"):
        workspace.ask("How long?", citation=False)


def test_without_a_model_nothing_is_searched_in_vain() -> None:
    with Workspace(embedder=HashEmbedder()) as workspace:
        workspace.ingest("docs", [{"id": "a.md", "text": "Backups are kept."}])
        with pytest.raises(ConfigurationError, match="none is configured"):
            workspace.ask("How long?")


def test_answers_of_pipelines_are_measured(workspace, tmp_path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(
        '{"query": "How long are backups kept?", "answers": ["for 35 days"], '
        '"relevant": ["a.md"]}\n'
    )
    states = []
    workspace.save_pipeline(PipelineSpec.from_cell(CELL))
    report = workspace.evaluate_answers(
        ["default", "support"], file, collection="docs", progress=lambda *s: states.append(s)
    )
    assert report.value("default", "exact match") == 1.0
    assert report.value("default", "cited recall") == 1.0
    assert report.value("support", "cited recall") == 0.0
    assert states[-1] == (2, 2)
