"""Late chunking: vectors of stretches, with every token seen within the text around it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.errors import ConfigurationError, ModelInvalid
from nbrag.models.embedding import LateEmbedder, OnnxEmbedder
from nbrag.models.embedding._late import windows_of
from nbrag.testing import HashEmbedder

TEXT = "the cat sat. it slept"


def unit(vector) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


@pytest.fixture
def mixing(folder, tiny):
    tiny.write_mixing_encoder(folder / "onnx" / "model.onnx")
    tiny.describe(folder, "sentence_bert_config.json", {"max_seq_length": 32})
    return folder


def ids_of(tiny, text):
    """Return ids with marks, and the character of each; the tokenizer knows no full stops."""
    places = [place for place, letter in enumerate(text) if letter != " "]
    ids = [tiny.words.index(text[place]) if text[place] != "." else 1 for place in places]
    return [2, *ids, 3], places


@given(count=st.integers(0, 500), size=st.integers(1, 60))
def test_windows_keep_each_token_once_and_see_what_they_keep(count, size):
    windows = windows_of(count, size)
    kept = [place for window in windows for place in range(window.keep_start, window.keep_end)]
    assert kept == list(range(count))
    for window in windows:
        assert window.start <= window.keep_start <= window.keep_end <= window.end
        assert window.end - window.start <= size


async def test_each_chunk_is_the_mean_of_its_tokens_within_the_whole(mixing, tiny):
    ids, places = ids_of(tiny, TEXT)
    states = tiny.mixed(ids)
    spans = [(0, 7), (8, 12), (13, 21)]
    vectors = await OnnxEmbedder(mixing).embed_spans(TEXT, spans)
    for vector, (start, end) in zip(vectors, spans, strict=True):
        rows = [1 + n for n, place in enumerate(places) if start <= place < end]
        rows = [0, *rows] if start == 0 else rows
        rows = [*rows, len(ids) - 1] if end == len(TEXT) else rows
        np.testing.assert_allclose(vector, unit(states[rows].mean(axis=0)), atol=1e-5)


async def test_a_text_of_one_chunk_has_the_vector_that_it_has_by_itself(mixing):
    for prefix in ("", "abc "):
        embedder = OnnxEmbedder(mixing, document_prefix=prefix)
        (late,) = await embedder.embed_spans(TEXT, [(0, len(TEXT))])
        (alone,) = await embedder.embed_documents([TEXT])
        np.testing.assert_allclose(late, alone, atol=1e-5)


async def test_a_prefix_that_is_not_pooled_counts_for_no_chunk(mixing, tiny):
    tiny.describe(
        mixing, "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False}
    )
    embedder = OnnxEmbedder(mixing, document_prefix="abc ")
    (late,) = await embedder.embed_spans(TEXT, [(0, len(TEXT))])
    (alone,) = await embedder.embed_documents([TEXT])
    np.testing.assert_allclose(late, alone, atol=1e-5)


async def test_a_long_text_is_seen_in_windows(mixing, tiny):
    embedder = OnnxEmbedder(mixing, max_tokens=12)
    text = "abcdefghijklmnopqrstuvwxyz0123456789"
    ids, _ = ids_of(tiny, text)
    vectors = await embedder.embed_spans(text, [(n, n + 1) for n in range(36)])
    for window in windows_of(36, 10):
        seen = tiny.mixed([2, *ids[1 + window.start : 1 + window.end], 3])[1:-1]
        for place in range(max(window.keep_start, 1), min(window.keep_end, 35)):
            np.testing.assert_allclose(vectors[place], unit(seen[place - window.start]), atol=1e-5)


async def test_the_mean_of_a_stretch_over_several_windows(mixing):
    embedder = OnnxEmbedder(mixing, max_tokens=12)
    text = "abcdefghijklmnopqrstuvwxyz0123456789"
    both = await embedder.embed_spans(text, [(3, 30), (0, 36)])
    assert both.shape == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1, atol=1e-6)
    assert abs(both[0] - both[1]).max() > 1e-3


async def test_context_changes_a_chunk_s_vector_as_it_must(mixing):
    embedder = OnnxEmbedder(mixing)
    (first,) = await embedder.embed_spans("cats sleep. they dream", [(12, 22)])
    (second,) = await embedder.embed_spans("dogs bark. they dream", [(11, 21)])
    (alone,) = await embedder.embed_documents(["they dream"])
    assert abs(first - second).max() > 1e-3
    assert abs(first - alone).max() > 1e-3


async def test_a_stretch_without_tokens_is_embedded_by_itself(mixing):
    embedder = OnnxEmbedder(mixing)
    vectors = await embedder.embed_spans("ab     cd", [(0, 2), (3, 6), (7, 9)])
    (alone,) = await embedder.embed_documents(["   "])
    np.testing.assert_allclose(vectors[1], alone, atol=1e-6)
    assert (await embedder.embed_spans("ab", [])).shape == (0, 8)
    assert (await embedder.embed_spans("", [(0, 0)])).shape == (1, 8)


async def test_vectors_are_cut_as_always(mixing):
    (whole,) = await OnnxEmbedder(mixing).embed_spans(TEXT, [(0, 7)])
    (cut,) = await OnnxEmbedder(mixing, dimension=3).embed_spans(TEXT, [(0, 7)])
    np.testing.assert_allclose(cut, unit(whole[:3]), atol=1e-5)


async def test_a_graph_that_pools_by_itself_has_no_token_vectors(folder, tiny):
    (folder / "1_Pooling" / "config.json").unlink()
    graph = folder / "onnx" / "model.onnx"
    tiny.write_encoder(graph, output="sentence_embedding", pooled=True)
    with pytest.raises(ModelInvalid, match="none for its tokens"):
        await OnnxEmbedder(folder).embed_spans("ab", [(0, 1)])


def test_the_identity_says_late(mixing):
    embedder = OnnxEmbedder(mixing)
    late = LateEmbedder(embedder)
    assert late.identity.pooling == "late-mean"
    assert late.identity != embedder.identity
    assert late.identity.searched_with == embedder.identity
    assert embedder.identity.searched_with == embedder.identity
    assert late.identity.as_late == late.identity
    assert late.max_tokens == embedder.max_tokens


@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_other_poolings_are_refused(mixing, pooling):
    with pytest.raises(ConfigurationError, match=f"pools by '{pooling}'"):
        LateEmbedder(OnnxEmbedder(mixing, pooling=pooling))


def test_an_embedder_without_token_vectors_is_refused():
    with pytest.raises(ConfigurationError, match="vectors of tokens"):
        LateEmbedder(HashEmbedder())
