"""Pooling of a causal encoder with random weights, against NumPy, padded on either side."""

from __future__ import annotations

import numpy as np
import pytest

from nbrag.errors import ConfigurationError, ModelInvalid
from nbrag.models.embedding import OnnxEmbedder
from nbrag.models.embedding._pooling import pool

TEXTS = ["hello world", "z", "nine 99 times", "ab" * 6]
REFERENCE = {
    "mean": lambda rows: rows.mean(axis=0),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
    "max": lambda rows: rows.max(axis=0),
    "weightedmean": lambda rows: np.average(rows, axis=0, weights=np.arange(1, len(rows) + 1)),
}


def ids_of(tiny, text: str) -> list[int]:
    return [2, *(tiny.words.index(letter) for letter in text if letter != " "), 3][:15] + (
        [3] if len(text.replace(" ", "")) > 13 else []
    )


def unit(vector) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


@pytest.fixture
def mixing(folder, tiny):
    """A model whose states depend on positions and on the tokens before."""
    tiny.write_mixing_encoder(folder / "onnx" / "model.onnx")
    return folder


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pooling", list(REFERENCE))
async def test_each_pooling_equals_its_reference(mixing, tiny, pooling, side):
    tiny.describe(mixing, "tokenizer_config.json", {"padding_side": side})
    embedder = OnnxEmbedder(mixing, pooling=pooling)
    vectors = await embedder.embed_documents(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        reference = unit(REFERENCE[pooling](tiny.mixed(ids_of(tiny, text))))
        np.testing.assert_allclose(vector, reference, atol=1e-5)
        (alone,) = await embedder.embed_documents([text])
        np.testing.assert_allclose(alone, vector, atol=1e-6)


async def test_padding_on_the_left_is_the_model_s_own_choice(mixing, tiny, monkeypatch):
    from nbrag.models.embedding import _encoder

    seen = []
    run = _encoder.run_session
    monkeypatch.setattr(
        _encoder, "run_session", lambda s, o, feeds: seen.append(feeds) or run(s, o, feeds)
    )
    for side, mask in {"left": [0, 1, 1, 1], "right": [1, 1, 1, 0]}.items():
        tiny.describe(mixing, "tokenizer_config.json", {"padding_side": side})
        await OnnxEmbedder(mixing, pooling="last").embed_documents(["ab", "a"])
        assert seen[-1]["attention_mask"].tolist() == [[1, 1, 1, 1], mask]


@pytest.mark.parametrize("pooling", ["mean", "max", "weightedmean"])
@pytest.mark.parametrize("side", ["right", "left"])
async def test_a_prefix_may_stay_out_of_the_pooling(mixing, tiny, pooling, side):
    described = {"pooling_mode": pooling, "include_prompt": False}
    tiny.describe(mixing, "1_Pooling/config.json", described)
    tiny.describe(mixing, "tokenizer_config.json", {"padding_side": side})
    embedder = OnnxEmbedder(mixing, query_prefix="qq ")
    texts = ["abc", "x", ""]
    for text, vector in zip(texts, await embedder.embed_queries(texts), strict=True):
        states = tiny.mixed(ids_of(tiny, "qq" + text))[3:]
        np.testing.assert_allclose(vector, unit(REFERENCE[pooling](states)), atol=1e-5)
    (document,) = await embedder.embed_documents(["abc"])
    whole = REFERENCE[pooling](tiny.mixed(ids_of(tiny, "abc")))
    np.testing.assert_allclose(document, unit(whole), atol=1e-5)


def test_padding_may_hold_anything():
    states = np.full((1, 3, 2), np.nan, dtype=np.float32)
    states[0, :2] = [[1, 2], [3, 6]]
    mask = np.array([[True, True, False]])
    np.testing.assert_array_equal(pool("mean", states, mask), [[2, 4]])
    np.testing.assert_array_equal(pool("max", states, mask), [[3, 6]])


# Matryoshka ------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 3, 8])
async def test_a_vector_is_cut_and_scaled_again(mixing, dimension):
    whole, cut = OnnxEmbedder(mixing), OnnxEmbedder(mixing, dimension=dimension)
    full, short = await whole.embed_documents(TEXTS), await cut.embed_documents(TEXTS)
    expected = full[:, :dimension] / np.linalg.norm(full[:, :dimension], axis=1, keepdims=True)
    np.testing.assert_allclose(short, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert cut.identity.dimension == dimension
    assert (cut.identity == whole.identity) == (dimension == 8)
    assert (await cut.embed_queries([])).shape == (0, dimension)


async def test_a_dimension_beyond_the_model_is_refused(mixing):
    with pytest.raises(ConfigurationError, match="more than the 8"):
        OnnxEmbedder(mixing, dimension=9)
    with pytest.raises(ConfigurationError, match="at least 1"):
        OnnxEmbedder(mixing, dimension=0)
    (mixing / "config.json").unlink()  # then only the graph knows
    with pytest.raises(ConfigurationError, match="more than the 8"):
        await OnnxEmbedder(mixing, dimension=9).embed_documents(["a"])
    assert OnnxEmbedder(mixing, dimension=5).identity.dimension == 5


def test_the_dimension_is_in_the_identity_of_the_default_model():
    assert OnnxEmbedder(dimension=128).identity.dimension == 128
    assert OnnxEmbedder(dimension=128).identity != OnnxEmbedder().identity


# What is no embedder ---------------------------------------------------------------------


def test_a_cross_encoder_is_told_what_it_is(folder, tiny):
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "config_sentence_transformers.json").unlink()
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    tiny.describe(folder, "config.json", config)
    with pytest.raises(ModelInvalid, match="is a cross-encoder") as caught:
        OnnxEmbedder(folder)
    assert "rerank model=" in caught.value.hint


@pytest.mark.parametrize("pooled", [False, True])
async def test_scores_are_never_taken_for_vectors(folder, tiny, pooled):
    tiny.write_encoder(folder / "onnx" / "model.onnx", output="logits", pooled=pooled)
    with pytest.raises(ModelInvalid, match="gives no vectors for texts") as caught:
        await OnnxEmbedder(folder).embed_documents(["a"])
    assert "graph with scores" in caught.value.hint


async def test_a_graph_for_writing_text_is_told_apart(folder, tiny):
    inputs = ("input_ids", "attention_mask", *(f"past_key_values.{n}.key" for n in range(20)))
    tiny.write_encoder(folder / "onnx" / "model.onnx", inputs=inputs)
    with pytest.raises(ModelInvalid, match=r"past_key_values.*\.\.\.") as caught:
        await OnnxEmbedder(folder).embed_documents(["a"])
    assert "feature-extraction" in caught.value.hint
