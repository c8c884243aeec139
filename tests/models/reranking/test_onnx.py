"""The cross-encoder: the reference's logits, whatever the shape of the model and of the batch."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest

from nbrag.errors import ConfigurationError
from nbrag.models.reranking import OnnxCrossEncoder, PairScores, shared_cross_encoder

KINDS = ("bert", "xlm-roberta", "modernbert")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("nbrag-rerank")]


async def all_logits(model: OnnxCrossEncoder, golden: Any) -> np.ndarray:
    found = [await model.score(question, golden["passages"]) for question in golden["questions"]]
    return np.concatenate([scores.logits for scores in found])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_tokens", [1, 512, 100_000])
async def test_logits_are_the_reference_s_in_any_batch(folders, golden, kind, batch_tokens):
    with OnnxCrossEncoder(folders[kind], batch_tokens=batch_tokens) as model:
        found = await all_logits(model, golden)
    assert len(found) == 200
    np.testing.assert_allclose(found, golden["logits"][kind], atol=1e-4)
    # The models tell pairs apart: a constant would not do.
    assert np.ptp(found) > 1


@pytest.mark.parametrize("kind", KINDS)
async def test_only_passages_are_cut(folders, golden, kind):
    model = OnnxCrossEncoder(folders[kind])
    found = await model.score(golden["questions"][8], golden["passages"])
    assert found.question_read == found.question_tokens > 20
    assert 2 <= found.passages_cut < 10


@pytest.mark.parametrize(
    ("change", "outputs"),
    [
        ("int32", "logit (the graph ends in Gemm)"),
        ("flat", "logit (the graph ends in Gemm)"),
        ("two", "logit (the graph ends in Mul)"),
        ("two-softmax", "probability (the graph ends in Softmax)"),
        ("two-shares", "probability (its two numbers add up to 1)"),
        ("sigmoid", "probability (the graph ends in Sigmoid)"),
        ("sigmoid-flat", "probability (the graph ends in Sigmoid)"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_other_ends_of_the_graph_give_the_same_logits(variant, golden, kind, change, outputs):
    model = OnnxCrossEncoder(variant(kind, change))
    np.testing.assert_allclose(await all_logits(model, golden), golden["logits"][kind], atol=1e-4)
    assert model.outputs == outputs


@pytest.mark.parametrize(("change", "tolerance"), [("fp16", 0.01), ("int8", 0.15)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
async def test_smaller_numbers_give_nearly_the_same(variant, golden, kind, change, tolerance):
    model = OnnxCrossEncoder(variant(kind, change))
    found, wanted = await all_logits(model, golden), golden["logits"][kind]
    np.testing.assert_allclose(found, wanted, atol=tolerance)
    assert np.corrcoef(found, wanted)[0, 1] > 0.99


async def test_half_precision_inside_and_outside(variant):
    folder = variant("bert", "fp16")
    graph = onnx.load(folder / "model.onnx")
    assert graph.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert (await OnnxCrossEncoder(folder).score("x", ["y"])).logits.dtype == np.float64


@pytest.mark.parametrize(
    ("labels", "options", "sign"),
    [
        ({"0": "relevant", "1": "not_relevant"}, {}, 1),
        ({"0": "LABEL_0", "1": "LABEL_1"}, {"relevant_label": 0}, 1),
        ({"0": "good", "1": "bad"}, {"relevant_label": "good"}, 1),
        ({"0": "LABEL_0", "1": "LABEL_1"}, {}, -1),
    ],
)
async def test_the_labels_say_which_logit_is_wanted(variant, golden, labels, options, sign):
    model = OnnxCrossEncoder(variant("bert", "two-swapped", id2label=labels), **options)
    wanted = sign * np.array(golden["logits"]["bert"])
    np.testing.assert_allclose(await all_logits(model, golden), wanted, atol=1e-4)


async def test_scores_are_sigmoids_of_logits(folders):
    scores = await OnnxCrossEncoder(folders["bert"]).score("key", ["one", "two", ""])
    np.testing.assert_allclose(scores.scores, 1 / (1 + np.exp(-scores.logits)))
    far = PairScores(np.array([-1e4, 0.0, 1e4]), 1, 1, 0)
    assert list(far.scores) == [0.0, 0.5, 1.0]


async def test_no_passages_and_odd_texts(folders):
    model = OnnxCrossEncoder(folders["bert"])
    assert (await model.score("anything", [])).logits.shape == (0,)
    found = await model.score("", ["", "\ud800 half a pair", "\0"])
    assert np.isfinite(found.logits).all()


async def test_the_best_window_counts(folders, golden):
    model = OnnxCrossEncoder(folders["bert"], max_tokens=32)
    long = [text * 8 for text in golden["passages"][:14] if len(text) > 30]
    beginning = await model.score("key", [*long, "short"])
    some = await model.score("key", [*long, "short"], windows=2)
    whole = await model.score("key", [*long, "short"], windows=100)
    assert beginning.passages_cut == some.passages_cut == len(long) > 5
    assert whole.passages_cut == 0
    for fewer, more in ((beginning, some), (some, whole)):
        assert np.all(more.logits >= fewer.logits - 1e-5)
        assert np.any(more.logits > fewer.logits + 0.01)
    assert beginning.logits[-1] == pytest.approx(whole.logits[-1], abs=1e-5)


async def test_a_heading_is_read_before_each_passage(folders):
    model = OnnxCrossEncoder(folders["xlm-roberta"])
    apart = await model.score("key", ["of the door", ""], headings=["Keys\n", ""])
    joined = await model.score("key", ["Keys of the door", ""])
    np.testing.assert_allclose(apart.logits, joined.logits, atol=1e-5)
    with pytest.raises(ConfigurationError, match="1 headings for 2 passages"):
        await model.score("key", ["a", "b"], headings=["c"])


async def test_eight_tasks_get_their_own_scores_and_nothing_stays_behind(folders, golden):
    model = OnnxCrossEncoder(folders["bert"])
    passages = golden["passages"][:12]
    wanted = np.array(golden["logits"]["bert"]).reshape(10, 20)[:, :12]
    await model.load()
    process = psutil.Process()

    async def task(number: int, calls: int) -> None:
        generator = np.random.default_rng(number)
        for _ in range(calls):
            asked = int(generator.integers(10))
            places = generator.permutation(12)[: int(generator.integers(1, 5))]
            found = await model.score(
                golden["questions"][asked], [passages[place] for place in places]
            )
            np.testing.assert_allclose(found.logits, wanted[asked, places], atol=1e-4)

    await asyncio.gather(*(task(number, 25) for number in range(8)))
    before = process.memory_info().rss
    await asyncio.gather(*(task(number, 125) for number in range(8)))
    assert process.memory_info().rss - before < 8 * 2**20
    assert len(threads()) <= 8


def wide_copy(source: Path, target: Path, megabytes: int) -> None:
    """Write the graph with a large table that takes part and changes nothing."""
    graph = onnx.load(source)
    table = np.zeros((512, megabytes * 512), dtype=np.float32)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(table, "wide"))
    for node in graph.graph.node:
        node.output[:] = ["raw" if name == "logits" else name for name in node.output]
    nodes = [
        onnx.helper.make_node("Gather", ["wide", "input_ids"], ["rows"]),
        onnx.helper.make_node("ReduceSum", ["rows"], ["nothing"], keepdims=0),
        onnx.helper.make_node("Add", ["raw", "nothing"], ["logits"]),
    ]
    graph.graph.node.extend(nodes)
    onnx.save(graph, target)


async def test_memory_comes_back_after_close(variant, folders):
    folder = variant()
    wide_copy(folders["bert"] / "model.onnx", folder / "model.onnx", 150)
    process = psutil.Process()
    model = OnnxCrossEncoder(folder)
    before = process.memory_info().rss
    first = (await model.score("a", ["b"])).logits
    loaded = process.memory_info().rss - before
    assert loaded > 120 * 2**20
    model.close()
    gc.collect()
    assert process.memory_info().rss - before < 40 * 2**20
    # Closed is not broken: it is loaded again.
    np.testing.assert_allclose((await model.score("a", ["b"])).logits, first)
    with model:
        pass
    until = time.monotonic() + 5
    while threads() and time.monotonic() < until:
        gc.collect()
        await asyncio.sleep(0.02)
    assert threads() == []


async def test_closing_while_others_score(folders, golden):
    model = OnnxCrossEncoder(folders["bert"])
    wanted = golden["logits"]["bert"][:20]

    async def closing() -> None:
        for _ in range(20):
            model.close()
            await asyncio.sleep(0.002)

    async def scoring() -> None:
        for _ in range(5):
            found = await model.score(golden["questions"][0], golden["passages"])
            np.testing.assert_allclose(found.logits, wanted, atol=1e-4)

    await asyncio.gather(closing(), scoring(), scoring())


def test_several_loops_use_one_model(folders):
    model = OnnxCrossEncoder(folders["bert"])
    one = asyncio.run(model.score("key", ["door"]))
    other = asyncio.run(model.score("key", ["door"]))
    np.testing.assert_array_equal(one.logits, other.logits)


async def test_nothing_is_loaded_before_the_first_use(folders, monkeypatch):
    from nbrag.models.reranking import _classifier

    opened = []
    real = _classifier.open_session
    monkeypatch.setattr(
        _classifier, "open_session", lambda *a, **k: opened.append(a) or real(*a, **k)
    )
    model = OnnxCrossEncoder(folders["bert"])
    assert opened == []
    await asyncio.gather(*(model.score("a", ["b"]) for _ in range(5)))
    assert len(opened) == 1


def test_one_model_for_the_same_files_and_options(variant):
    folder, other = variant(), variant()
    first = shared_cross_encoder(folder)
    assert shared_cross_encoder(str(folder)) is first
    assert shared_cross_encoder(folder, batch_tokens=64) is not first
    assert shared_cross_encoder(folder) is first
    shared_cross_encoder(other)
    shared_cross_encoder(other, batch_tokens=64)
    assert shared_cross_encoder(folder) is not first  # two are kept
    second = shared_cross_encoder(folder)
    described = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**described, "x": 1}), "utf-8")
    assert shared_cross_encoder(folder) is not second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": "score"}, "outputs can't be 'score'"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1"),
        ({"max_tokens": 4}, "max_tokens must be at least 16"),
        ({"max_tokens": 129}, "takes at most 128 tokens"),
        ({"relevant_label": 2}, "must be 0, 1 or a name"),
        ({"relevant_label": "good"}, "has no label 'good'"),
    ],
)
def test_options_that_can_t_be_used(folders, options, message):
    with pytest.raises(ConfigurationError, match=message):
        OnnxCrossEncoder(folders["bert"], **options)


async def test_windows_and_providers_are_checked(folders):
    model = OnnxCrossEncoder(folders["bert"])
    with pytest.raises(ConfigurationError, match="windows must be at least 1"):
        await model.score("a", ["b"], windows=0)
    with pytest.raises(ConfigurationError, match="'NoProvider' is not available"):
        await OnnxCrossEncoder(folders["bert"], providers=("NoProvider",)).load()


def test_it_says_what_it_is(folders):
    model = OnnxCrossEncoder(folders["xlm-roberta"])
    assert repr(model) == "OnnxCrossEncoder('tiny-random-xlm-roberta', max_tokens=128)"
