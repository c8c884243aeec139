"""The cross-encoder as a stage: order, scores, mixing, thresholds, and what happens on failure."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbrag
from nbrag.errors import ModelError, ModelInvalid, ModelNotFound, SpecificationError, StageError
from nbrag.models.reranking import OnnxCrossEncoder, PairScores
from nbrag.protocols import Reranker
from nbrag.retrieval import RetrievalPipelineBuilder
from nbrag.retrieval.processors.cross_encoder import CrossEncoderReranker
from nbrag.retrieval.processors.rerank import RerankOptions
from nbrag.spec import PipelineSpec
from nbrag.testing import HashEmbedder
from nbrag.types import RetrievalChunk, RetrievalQuery, RetrievalResults
from nbrag.workspace import Workspace


@pytest.fixture(scope="module")
def folder(repository: Path) -> Path:
    return repository / "notebooks" / "models" / "tiny-random-bert"


@pytest.fixture(scope="module")
def workspace() -> Iterator[Workspace]:
    with Workspace(embedder=HashEmbedder()) as opened:
        records = [{"id": str(i), "text": f"number text {'word ' * (i % 7)}{i}"} for i in range(30)]
        opened.ingest("docs", records)
        yield opened


class Told(OnnxCrossEncoder):
    """A model that gives the logits it was told to, and keeps what it was asked."""

    def __init__(self, folder: Path, logits: Sequence[float], *, tokens: int = 3) -> None:
        super().__init__(folder)
        self.told = logits
        self.tokens = tokens
        self.asked: list[tuple[str, Sequence[str], Sequence[str], int]] = []

    async def score(
        self,
        question: str,
        passages: Sequence[str],
        *,
        headings: Sequence[str] = (),
        windows: int = 1,
    ) -> PairScores:
        self.asked.append((question, passages, headings, windows))
        return PairScores(np.array(self.told[: len(passages)], dtype=float), self.tokens, 3, 0)


def chunk(number: int, score: float = 0.0, **record: Any) -> RetrievalChunk:
    return RetrievalChunk(str(number), "d", f"text {number}", score or 1 - number / 10, record)


def rerank(model: OnnxCrossEncoder, count: int, **options: Any) -> RetrievalResults:
    stage = CrossEncoderReranker(model, RerankOptions(model="./m", **options))
    results = RetrievalResults(
        RetrievalQuery("which?"), tuple(chunk(i) for i in range(count)), {"kept": 1}
    )
    changed: RetrievalResults = nbrag.run(stage.process(results, None))  # type: ignore[arg-type]
    return changed


def names(results: Sequence[RetrievalChunk]) -> list[int]:
    return [int(chunk.id) for chunk in results]


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def test_the_order_is_the_logits_and_the_score_their_sigmoid(folder: Path) -> None:
    results = rerank(Told(folder, [-1.0, 2.0, 0.5]), 3)
    assert names(results) == [1, 2, 0]
    assert [c.score for c in results] == pytest.approx([sigmoid(2), sigmoid(0.5), sigmoid(-1)])
    assert [c.content for c in results] == ["text 1", "text 2", "text 0"]
    assert [(e.stage, e.rank) for e in results[0].history] == [("rerank", 1)]
    assert results.metadata == {"kept": 1, "reranked": True}


def test_saturated_scores_are_still_in_order_and_ties_keep_theirs(folder: Path) -> None:
    results = rerank(Told(folder, [50.0, 70.0, 60.0, 60.0, -800.0]), 5)
    assert names(results) == [1, 2, 3, 0, 4]
    assert [c.score for c in results] == pytest.approx([1, 1, 1, 1, 0])


def test_the_model_reads_headings_and_content(folder: Path) -> None:
    model = Told(folder, [0.0, 1.0])
    stage = CrossEncoderReranker(model, RerankOptions(model="./m", windows=4))
    under = chunk(1, title="Backup", heading_path=["Backup", "EU", "Retention"])
    nbrag.run(stage.rerank("which?", [chunk(0), under]))
    assert model.asked == [
        ("which?", ["text 0", "text 1"], ["", "Backup > EU > Retention\n"], 4),
    ]
    bare = CrossEncoderReranker(model, RerankOptions(model="./m", headings=False))
    nbrag.run(bare.rerank("which?", [under]))
    assert model.asked[-1] == ("which?", ["text 1"], (), 1)


def test_a_mix_scales_both_scores_over_the_candidates(folder: Path) -> None:
    # Scores so far: 1.0, 0.9, 0.8, scaled 1, 0.5, 0; logits -2, 0, 6, scaled 0, 0.25, 1.
    results = rerank(Told(folder, [-2.0, 0.0, 6.0]), 3, mix=0.3)
    assert names(results) == [0, 1, 2]
    assert [c.score for c in results] == pytest.approx([0.7, 0.425, 0.3])
    entries = [(e.stage, e.rank) for e in results[2].history]
    assert entries == [("cross-encoder", 1), ("rerank", 3)]
    assert results[2].history[0].score == pytest.approx(sigmoid(6))
    assert names(rerank(Told(folder, [-2.0, 0.0, 6.0]), 3, mix=0.8)) == [2, 1, 0]


def test_a_mix_with_all_the_same_on_one_side(folder: Path) -> None:
    assert names(rerank(Told(folder, [1.0, 1.0, 1.0]), 3, mix=0.9)) == [0, 1, 2]
    (only,) = rerank(Told(folder, [1.0]), 1, mix=0.9)
    assert only.score == pytest.approx(1)


@pytest.mark.parametrize("mix", [None, 0.1])
def test_the_threshold_is_held_against_the_sigmoid(folder: Path, mix: float | None) -> None:
    results = rerank(Told(folder, [-3.0, 2.0, 0.0, -0.1]), 6, mix=mix, threshold=0.5, candidates=4)
    assert sorted(names(results)) == [1, 2]
    assert len(rerank(Told(folder, [-3.0] * 4), 4, threshold=0.5)) == 0


def test_what_is_not_reranked_follows_below(folder: Path) -> None:
    results = rerank(Told(folder, [0.0, 1.0]), 5, candidates=2)
    assert names(results) == [1, 0, 2, 3, 4]
    scores = [c.score for c in results]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 5
    assert scores[-1] > 0
    assert [c.history[-1].rank for c in results] == [1, 2, 3, 4, 5]


def test_keep_and_the_candidates_that_are_needed(folder: Path) -> None:
    assert names(rerank(Told(folder, [0.0, 3.0, 1.0, 2.0]), 4, keep=2)) == [1, 3]
    stage = CrossEncoderReranker(folder, RerankOptions(model="./m", candidates=30, keep=5))
    assert (stage.candidates_needed(5), stage.candidates_needed(50)) == (30, 50)


def test_nothing_found_asks_nothing(folder: Path) -> None:
    model = Told(folder, [])
    assert len(rerank(model, 0)) == 0
    assert nbrag.run(CrossEncoderReranker(model).rerank("a", [])) == []
    assert model.asked == []


def test_a_question_that_is_not_read_whole_gives_a_warning(folder: Path) -> None:
    results = rerank(Told(folder, [0.0], tokens=300), 1)
    (warning,) = results.warnings
    assert "of the question's 300 tokens the model read the first 3" in warning
    assert rerank(Told(folder, [0.0]), 1).warnings == ()


def through(workspace: Workspace, body: str, **changes: Any) -> RetrievalResults:
    spec = PipelineSpec.from_body("retrieval", body)
    pipeline = RetrievalPipelineBuilder(spec, replace(workspace.context, **changes)).build()
    return nbrag.run(pipeline.process(workspace["docs"], "number text 7", top_k=4))


def test_a_cell_reranks_as_the_model_scores(workspace: Workspace, folder: Path) -> None:
    results = through(workspace, f'search mode=hybrid\nrerank model="{folder}" candidates=12')
    plain = nbrag.run(
        workspace.pipeline().process(workspace["docs"], "number text 7", top_k=12)
    ).chunks
    with OnnxCrossEncoder(folder) as model:
        wanted = nbrag.run(model.score("number text 7", [c.content for c in plain]))
    best = sorted(range(12), key=lambda place: -wanted.logits[place])[:4]
    assert [c.id for c in results] == [plain[place].id for place in best]
    assert [c.score for c in results] == pytest.approx([wanted.scores[place] for place in best])
    assert results.trace.stage("rerank").explanation == "reranked True"


def test_passages_that_are_cut_are_counted(workspace: Workspace, folder: Path) -> None:
    cut = through(workspace, f"rerank model={folder} max_tokens=16").metadata
    assert cut["rerank_passages_cut"] > 0
    whole = through(workspace, f"rerank model={folder} max_tokens=16 windows=100").metadata
    assert "rerank_passages_cut" not in whole


async def _fails(*_: Any, **__: Any) -> PairScores:
    raise ModelInvalid("the model gave a score that is not a number.")


async def _hangs(*_: Any, **__: Any) -> PairScores:
    await asyncio.sleep(30)
    raise AssertionError


@pytest.mark.parametrize(
    ("score", "said"), [(_fails, "not a number"), (_hangs, "longer than 0.1 seconds")]
)
def test_a_failure_while_searching_costs_a_warning(
    workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch, score: Any, said: str
) -> None:
    body = f"rerank model={folder} time_limit={0.1 if score is _hangs else 60}"
    plain = nbrag.run(workspace.pipeline().process(workspace["docs"], "number text 7", top_k=4))
    monkeypatch.setattr(OnnxCrossEncoder, "score", score)
    results = through(workspace, body)
    assert [c.id for c in results] == [c.id for c in plain]
    (warning,) = results.warnings
    assert said in warning
    with pytest.raises(StageError, match=said):
        through(workspace, body, strict=True)


def test_a_model_that_can_t_be_loaded_is_an_error(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no model at"):
        through(workspace, f"rerank model={tmp_path}/nothing")
    (tmp_path / "model.onnx").write_bytes(b"nothing of the kind")
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 64}', "utf-8")
    with pytest.raises(ModelError, match="can't be read as a tokenizer"):
        through(workspace, f"rerank model={tmp_path}")


def test_it_is_a_reranker_and_closes_its_model(folder: Path) -> None:
    with CrossEncoderReranker(folder) as reranker:
        assert isinstance(reranker, Reranker)
        first = nbrag.run(reranker.rerank("which?", [chunk(0), chunk(1)]))
        assert reranker.model._loaded is not None
    assert reranker.model._loaded is None
    again = nbrag.run(reranker.rerank("which?", [chunk(0), chunk(1)]))
    assert names(first) == names(again)


def test_a_pipeline_closes_its_model(workspace: Workspace, folder: Path) -> None:
    spec = PipelineSpec.from_body("retrieval", f"rerank model={folder} batch_tokens=100")
    with RetrievalPipelineBuilder(spec, workspace.context).build() as pipeline:
        nbrag.run(pipeline.process(workspace["docs"], "number"))
        (stage,) = pipeline.result_processors
        assert isinstance(stage, CrossEncoderReranker)
        assert stage.model._loaded is not None
    assert stage.model._loaded is None


async def test_a_thousand_calls_from_eight_tasks_pair_rightly(folder: Path) -> None:
    texts = [f"{word} copy of the night {word * 3}" for word in "abcdefghijklmnop"]
    reranker = CrossEncoderReranker(folder)
    wanted = (await reranker.model.score("which copy?", texts)).scores

    async def task(number: int) -> None:
        generator = np.random.default_rng(number)
        for _ in range(125):
            places = [int(place) for place in generator.permutation(16)[:3]]
            chunks = [RetrievalChunk(str(place), "d", texts[place], 0.0) for place in places]
            ranked = await reranker.rerank("which copy?", chunks)
            assert sorted(c.id for c in ranked) == sorted(c.id for c in chunks)
            for found in ranked:
                assert found.content == texts[int(found.id)]
                assert found.score == pytest.approx(wanted[int(found.id)], abs=1e-5)
            assert [c.score for c in ranked] == sorted((c.score for c in ranked), reverse=True)

    await asyncio.gather(*map(task, range(8)))


def test_both_methods_build_the_same_stage(workspace: Workspace, folder: Path) -> None:
    start = RetrievalPipelineBuilder(PipelineSpec("retrieval"), workspace.context)
    one = start.use_reranker(model=str(folder), tokenizer=str(folder), keep=5, mix=0.3)
    other = start.use_cross_encoder(
        model_path=folder, tokenizer_path=folder, max_results=5, mix=0.3
    )
    assert one.spec == other.spec
    (first,), (second,) = one.build().result_processors, other.build().result_processors
    assert isinstance(first, CrossEncoderReranker)
    assert isinstance(second, CrossEncoderReranker)
    # Loaded once for both.
    assert first.model is second.model
    assert PipelineSpec.from_cell(one.spec.to_cell()) == one.spec
    assert PipelineSpec.from_dict(one.spec.to_dict()) == one.spec


@pytest.mark.parametrize(
    ("model", "kept"),
    [("llm", "./llm"), ("folder", "./folder"), ("a/b", "a/b"), ("m.onnx", "m.onnx")],
)
def test_bare_names_are_folders_for_the_builder(
    workspace: Workspace, model: str, kept: str
) -> None:
    start = RetrievalPipelineBuilder(PipelineSpec("retrieval"), workspace.context)
    (stage,) = start.use_cross_encoder(model_path=model).spec.stages
    assert stage.changed_options()["model"] == kept


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rerank model=lm", r"neither llm nor a folder \(./lm\)"),
        ('rerank model=""', "neither llm nor a folder"),
        ("rerank model=llm mix=0.3", "mix= is an option of a cross-encoder"),
        ("rerank model=llm providers=CPUExecutionProvider", "providers= is an option of a cross"),
        ("rerank model=./m words=50", "words= is an option of model=llm, not of model=./m"),
        ("rerank model=./m mix=1", "mix"),
        ("rerank model=./m threshold=2", "threshold"),
        ("rerank model=./m outputs=raw", "outputs"),
        ("rerank model=./m windows=0", "windows"),
    ],
)
def test_what_makes_no_sense_is_refused(line: str, said: str) -> None:
    with pytest.raises(SpecificationError, match=f"stage 'rerank'.*{said}"):
        PipelineSpec.from_body("retrieval", line)
