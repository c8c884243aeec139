"""The stages that answer in several steps: in a cell, a builder, a file, a script, a workspace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import SpecificationError
from nbrag.orchestration import (
    SelfRagOptions,
    SelfRagOrchestrator,
    SpeculativeRagOptions,
    SpeculativeRagOrchestrator,
)
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder, ScriptedChatClient
from nbrag.workspace import Workspace

DRAFT = 'EVIDENCE\n[1] "kept for 35 days"\nANSWER\nFor 35 days [1].'
CLAIMS = json.dumps(
    {
        "claims": [
            {
                "claim": "Backups are kept for 35 days.",
                "verdict": "supported",
                "passages": [1],
                "quote": "kept for 35 days",
            }
        ]
    }
)


def reply(messages) -> str:
    if "You weigh drafts" in messages[0].content:
        count = messages[1].content.count('{"draft"')
        scores = [{"draft": n, "reason": "So.", "score": 5} for n in range(1, count + 1)]
        return json.dumps({"scores": scores})
    return CLAIMS if "You check an answer" in messages[0].content else DRAFT


@pytest.fixture
def workspace():
    with Workspace(embedder=HashEmbedder(), chat=ScriptedChatClient(reply)) as made:
        made.ingest(
            "docs",
            [
                {"id": "a.md", "text": "Backups are kept for 35 days in the EU."},
                {"id": "b.md", "text": "Prices change each year."},
                {"id": "c.md", "text": "Backups are restored by the support team."},
            ],
        )
        yield made


VIEWS = [
    (
        "self_rag",
        "use_self_rag",
        SelfRagOrchestrator,
        {"rounds": 2, "threshold": 0.75, "calls": 9, "passages": 3},
    ),
    (
        "speculative_rag",
        "use_speculative",
        SpeculativeRagOrchestrator,
        {"drafts": 3, "subset": 4, "scoring": "rubric", "minimum": 0.25, "calls": 9, "seed": 5},
    ),
]


@pytest.mark.parametrize(("stage", "method", "kind", "options"), VIEWS)
def test_the_four_views_are_one(workspace, stage, method, kind, options) -> None:
    pairs = "  ".join(f"{name}={value}" for name, value in options.items())
    spec = PipelineSpec.from_cell(f"%%rag_pipeline support -c docs\n{stage}  {pairs}\n")
    assert PipelineSpec.from_cell(spec.to_cell()) == spec
    assert PipelineSpec.from_dict(json.loads(spec.to_json())) == spec
    built = getattr(workspace.retrieval_pipeline("support"), method)(**options)
    assert built.spec.stages == spec.stages
    lines = spec.to_python().splitlines()
    assert any(f".{method}(" in line for line in lines)
    names = {"workspace": workspace}
    exec("\n".join(line for line in lines if not line.startswith("workspace =")), names)
    assert isinstance(names["answerer"], kind)
    made = names["answerer"].options.model_dump()
    assert {name: made[name] for name in options} == options


@pytest.mark.parametrize(("stage", "method", "kind", "options"), VIEWS)
def test_a_kept_pipeline_answers(workspace, stage, method, kind, options) -> None:
    workspace.save_pipeline(PipelineSpec.from_body("retrieval", stage, name="support"))
    events = []
    answer = workspace.ask("How long are backups kept?", pipeline="support", progress=events.extend)
    assert (answer.outcome, answer.text) == ("answered", "For 35 days [1].")
    assert answer.rounds or answer.drafts
    assert events[-1].answer.text == answer.text
    workspace.sql("SELECT count(*) FROM nbrag.trace")
    for form in answer._repr_mimebundle_().values():
        assert "For 35 days" in form


@given(
    st.builds(
        SelfRagOptions,
        rounds=st.integers(1, 10),
        threshold=st.floats(0, 1),
        calls=st.integers(1, 200),
        passages=st.none() | st.integers(1, 200),
    )
)
def test_options_of_self_rag_survive_every_view(options: SelfRagOptions) -> None:
    spec = PipelineSpec("retrieval", "p").with_stage("self_rag", **options.model_dump())
    assert PipelineSpec.from_body("retrieval", spec.to_body(), name="p") == spec
    assert PipelineSpec.from_dict(spec.to_dict()) == spec


@given(
    st.builds(
        SpeculativeRagOptions,
        drafts=st.integers(1, 20),
        subset=st.integers(1, 20),
        draft_model=st.none() | st.sampled_from(["local", "openai/gpt-4o-mini", "a b='c'"]),
        scoring=st.sampled_from(["auto", "probabilities", "rubric"]),
        minimum=st.floats(0, 1),
        seed=st.integers(0, 2**31 - 1),
    )
)
def test_options_of_speculative_rag_survive_every_view(options: SpeculativeRagOptions) -> None:
    spec = PipelineSpec("retrieval", "p").with_stage("speculative_rag", **options.model_dump())
    assert PipelineSpec.from_body("retrieval", spec.to_body(), name="p") == spec
    assert PipelineSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    "line",
    [
        "self_rag rounds=0",
        "self_rag rounds=11",
        "self_rag threshold=1.1",
        "self_rag x=1",
        "speculative_rag drafts=21",
        "speculative_rag scoring=logits",
        "speculative_rag subset=0",
        "speculative_rag\nself_rag",
    ],
)
def test_options_out_of_bounds_are_refused(line: str) -> None:
    with pytest.raises(SpecificationError):
        PipelineSpec.from_body("retrieval", line)
