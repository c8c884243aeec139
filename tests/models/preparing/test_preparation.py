from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import nbrag
from nbrag.errors import (
    ConfigurationError,
    EmbedderMismatch,
    MissingDependency,
    ModelError,
    ModelInvalid,
    ModelNotFound,
)
from nbrag.models import list_models
from nbrag.models.embedding import OnnxEmbedder, default_embedder, forget_default
from nbrag.models.prepared_files import prepared_files
from nbrag.models.preparing import preparation as module
from nbrag.models.preparing import prepare_model
from nbrag.models.reranking import OnnxCrossEncoder, shared_cross_encoder
from nbrag.stores.vectors import require_identity

PASSAGES = (
    "Nightly copies are kept for thirty days.",
    "",
    "A key is rotated every week, and the old one is removed after a day. " * 6,
    "x",
)


def logits(folder, passages=PASSAGES, **options):
    with OnnxCrossEncoder(folder, **options) as model:
        return nbrag.run(model.score("How long are copies kept?", passages)).logits


@pytest.mark.parametrize(
    ("kind", "attention"), [("bert", 2), ("xlm-roberta", 2), ("modernbert", 0)]
)
def test_a_prepared_classifier_scores_nearly_the_same(classifier, cache, kind, attention):
    folder = classifier(kind)
    before = logits(folder)
    made = prepare_model(folder, purpose="reranking")
    record = json.loads(made.path.with_name("record.json").read_text("utf-8"))
    assert record["fused"]["attention"] == attention
    assert made.quantised > 0
    assert any("not recognised" in note for note in made.notes) is (attention == 0)
    assert made.agreement >= 0.95
    after = logits(folder)
    assert not np.array_equal(before, after)
    assert np.abs(before - after).max() < 0.5 * before.std()
    np.testing.assert_array_equal(logits(folder, prepared=False), before)
    assert [path.name for path in cache.iterdir()] == [made.path.parent.name]


def test_a_prepared_passage_scores_the_same_in_any_company(classifier):
    folder = classifier()
    prepare_model(folder)
    together = logits(folder, batch_tokens=4096)
    alone = [logits(folder, [passage])[0] for passage in PASSAGES]
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_it_is_made_once_and_again_when_asked_or_when_the_model_changes(classifier):
    folder = classifier()
    first = prepare_model(folder)
    assert first.made
    again = prepare_model(folder)
    assert not again.made
    assert again.path == first.path
    assert "was prepared already" in str(again)
    assert prepare_model(folder, again=True).made
    model = onnx.load(folder / "model.onnx")
    weights = next(entry for entry in model.graph.initializer if len(entry.dims) == 2)
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * 1.01, weights.name))
    onnx.save(model, folder / "model.onnx")
    assert prepare_model(folder).path != first.path


def test_products_that_change_the_outputs_most_are_left_out(classifier, monkeypatch):
    monkeypatch.setitem(module.LEAST_AGREEMENT, "reranking", (0.97, 0.9))
    folder = classifier()
    made = prepare_model(folder)
    record = json.loads(made.path.with_name("record.json").read_text("utf-8"))
    if record["quantised"]:
        assert record["left out"]
    assert record["quantised"] + len(record["left out"]) in (record["products"], 0)
    assert made.agreement >= 0.97


def test_one_that_strays_is_refused_and_only_fused(classifier, monkeypatch):
    monkeypatch.setitem(module.LEAST_AGREEMENT, "reranking", (1.1, 1.1))
    folder = classifier()
    made = prepare_model(folder)
    assert made.quantised == 0
    assert "refused" in made.notes[-1]
    np.testing.assert_allclose(logits(folder), logits(folder, prepared=False), atol=1e-4)


def test_one_of_which_nothing_comes_is_an_error(classifier, cache, monkeypatch):
    monkeypatch.setitem(module.LEAST_AGREEMENT, "reranking", (1.1, 1.1))
    folder = classifier("modernbert")
    monkeypatch.setattr(module, "fuse", lambda model, heads: module.Fusions(0, 0, 2))
    with pytest.raises(ModelInvalid, match="nothing could be made faster in tiny-modernbert"):
        prepare_model(folder)
    assert list(cache.iterdir()) == []


def test_a_wrong_fusion_is_noticed_and_undone(classifier, monkeypatch):
    """The number of heads is believed only as far as the outputs agree."""
    folder = classifier()
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_attention_heads": 4}))
    made = prepare_model(folder)
    assert made.notes == ("fusing attention changed the outputs; left as it was",)
    assert made.agreement >= 0.95


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_a_stop_leaves_nothing(classifier, cache, monkeypatch, error):
    def fail(*_):
        raise error

    folder = classifier()
    monkeypatch.setattr(module._steps, "saved", fail)
    expected = ModelError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        prepare_model(folder)
    if expected is ModelError:
        assert "No space left" in str(caught.value)
        assert "NBRAG_CACHE" in caught.value.hint
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_disk_on_which_the_runtime_can_not_write(classifier, monkeypatch):
    folded = module._steps.folded
    monkeypatch.setattr(module._steps, "folded", lambda source, _: folded(source, "/dev/full"))
    with pytest.raises(ModelError, match="No space left"):
        prepare_model(classifier())


def test_what_a_killed_process_left_is_swept_away(classifier, cache):
    old, young = cache / ".preparing-old", cache / ".preparing-young"
    for path in (old, young):
        path.mkdir(parents=True)
    os.utime(old, (1, 1))
    prepare_model(classifier())
    assert young.is_dir()
    assert not old.exists()


@pytest.mark.parametrize("name", ["model.onnx", "record.json"])
def test_what_is_not_whole_is_not_used(classifier, name):
    folder = classifier()
    made = prepare_model(folder)
    path = made.path.with_name(name)
    path.write_bytes(path.read_bytes()[:-40])
    np.testing.assert_array_equal(logits(folder), logits(folder, prepared=False))
    with pytest.raises(ModelNotFound, match="has not been prepared"):
        OnnxCrossEncoder(folder, prepared=True)
    assert prepare_model(folder).made


def test_without_onnx_it_says_what_to_install(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependency, match="onnx") as caught:
        prepare_model(classifier())
    assert "nbrag[prepare]" in caught.value.hint


def test_what_can_not_be_asked(classifier, tmp_path):
    folder = classifier()
    with pytest.raises(ConfigurationError, match="at least 8 texts"):
        prepare_model(folder, texts=["one", "two"])
    with pytest.raises(ModelNotFound):
        prepare_model(tmp_path / "none")
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        node.output[:] = ["score" if name == "logits" else name for name in node.output]
    model.graph.output[0].name = "score"
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(ConfigurationError, match="don't tell what it is for"):
        prepare_model(folder)


def test_ones_own_texts_are_what_it_is_held_against(classifier):
    texts = [f"{word} copies are kept for {days} days" for days in range(4) for word in ("a", "b")]
    made = prepare_model(classifier(), texts=texts)
    record = json.loads(made.path.with_name("record.json").read_text("utf-8"))
    assert record["calibration"]["texts"] == 8
    assert record["calibration"]["own"] is False


def test_shared_models_and_the_list_see_it(classifier):
    folder = classifier()
    before = shared_cross_encoder(folder)
    made = prepare_model(folder)
    assert shared_cross_encoder(folder) is not before
    (entry,) = [entry for entry in list_models({str(folder): ["x"]}) if entry.place == "folder"]
    assert entry.remark.startswith(f"prepared: {made.quantised} of {made.products} products")


def test_old_operators_are_only_fused(classifier):
    """Operators of version 12 know no scale for each row; the converter moves plain graphs."""
    folder = classifier()
    model = onnx.load(folder / "model.onnx")
    model.graph.node.append(
        helper.make_node("NotOfTheStandard", ["logits"], ["unused"], domain="own.domain")
    )
    assert module._steps.modern(model) is model
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", 11), helper.make_opsetid("own.domain", 1)])
    converted = module._steps.modern(model)
    assert converted is None or converted.opset_import[0].version >= 13


@pytest.mark.model
def test_the_default_model_keeps_its_quality_and_says_what_it_is():
    texts = ["How long are copies kept?", "a", "Nightly copies are kept for thirty days. " * 20]
    plain = OnnxEmbedder()
    expected = nbrag.run(plain.embed_documents(texts))
    with pytest.raises(ModelNotFound, match="has not been prepared"):
        OnnxEmbedder(prepared=True)
    shared = default_embedder()
    try:
        made = prepare_model("minilm")
        assert made.quantised == made.products == 36
        prepared = default_embedder()
        assert prepared is not shared
        vectors = nbrag.run(prepared.embed_documents(texts))
        assert (vectors * expected).sum(axis=1).min() > 0.98
        alone = [nbrag.run(prepared.embed_documents([text]))[0] for text in texts]
        np.testing.assert_allclose(vectors, alone, atol=1e-5)
        assert prepared.identity.name == plain.identity.name
        with pytest.raises(EmbedderMismatch) as caught:
            require_identity("docs", plain.identity, prepared.identity)
        assert "prepared=false" in caught.value.hint
        with pytest.raises(EmbedderMismatch) as caught:
            require_identity("docs", prepared.identity, plain.identity)
        assert "nbrag models prepare" in caught.value.hint
        assert OnnxEmbedder(prepared=False).identity == plain.identity
        assert prepared_files(plain._files) is not None
    finally:
        forget_default()
