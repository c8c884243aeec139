from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.background import on_loop, run
from nbrag.errors import ConfigurationError
from nbrag.models.embedding import OnnxEmbedder, default_embedder
from nbrag.protocols import Embedder

pytestmark = pytest.mark.model

LONG = " ".join(f"backup {number} of the harbour is kept in Rotterdam" for number in range(100))


@pytest.fixture(scope="module")
def embedder():
    return default_embedder()


async def test_meaning_is_closer_than_words(embedder):
    cat, kitten, law = await embedder.embed_documents(["a cat", "a kitten", "tax law"])
    assert cat @ kitten > 0.6
    assert cat @ law < 0.3


async def test_known_vectors_are_reached(embedder):
    """The first numbers that this model gives, computed once by plain ONNX Runtime calls."""
    (vector,) = await embedder.embed_queries(["hello world"])
    assert vector[:4] == pytest.approx([-0.0348, 0.0301, 0.013, 0.0254], abs=2e-3)


async def test_vectors_have_the_stated_shape(embedder):
    vectors = await embedder.embed_documents(["one", "two"])
    assert vectors.shape == (2, embedder.identity.dimension) == (2, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (await embedder.embed_documents([])).shape == (0, 384)
    assert isinstance(embedder, Embedder)


async def test_a_vector_does_not_depend_on_its_batch(embedder):
    texts = ["a", "how long are backups kept?", LONG[:400], LONG[:900], LONG, "", "東京 🎉", "b"]
    together = await embedder.embed_documents(texts)
    backwards = await embedder.embed_documents(texts[::-1])
    for place, text in enumerate(texts):
        (alone,) = await embedder.embed_documents([text])
        np.testing.assert_allclose(together[place], alone, atol=1e-5)
        np.testing.assert_allclose(backwards[len(texts) - 1 - place], alone, atol=1e-5)


async def test_only_the_first_tokens_count(embedder):
    spans = embedder.token_spans(LONG)
    assert len(spans) > 600
    inside = LONG[: spans[embedder.max_tokens - 3][1]]
    cut, whole = await embedder.embed_documents([inside, LONG])
    assert embedder.count_tokens([inside]) == [embedder.max_tokens]
    np.testing.assert_allclose(cut, whole, atol=1e-5)
    shorter = LONG[: spans[embedder.max_tokens - 20][1]]
    (other,) = await embedder.embed_documents([shorter])
    assert np.abs(other - whole).max() > 1e-4


@pytest.mark.parametrize("text", ["", "  \n", "👩‍👩‍👧 🎉", "東京は日本の首都", "a\ud800b", "\x00"])
async def test_odd_texts_have_a_vector_and_spans(embedder, text):
    (vector,) = await embedder.embed_documents([text])
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    spans = embedder.token_spans(text)
    assert embedder.count_tokens([text]) == [len(spans) + 2]
    assert all(0 <= start < end <= len(text) for start, end in spans)


@given(st.text(max_size=60))
def test_spans_are_ordered_and_within_the_text(text):
    spans = default_embedder().token_spans(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


def test_spans_name_the_words(embedder):
    text = "Größe: 東京, C#"
    words = [text[start:end] for start, end in embedder.token_spans(text)]
    assert "".join(words) == "Größe:東京,C#"
    assert "東" in words


def test_a_large_text_is_counted_whole(embedder):
    text = LONG * 200
    (count,) = embedder.count_tokens([text])
    assert count == len(embedder.token_spans(text)) + 2 > 150_000


async def test_many_tasks_and_loops_at_once(embedder):
    texts = [f"text number {number}" for number in range(24)]
    together = await embedder.embed_documents(texts)
    single = await asyncio.gather(*(embedder.embed_queries([text]) for text in texts))
    np.testing.assert_allclose(np.concatenate(single), together, atol=1e-5)
    forwarded = await on_loop(embedder.embed_queries(texts[:1]))
    np.testing.assert_allclose(forwarded, together[:1], atol=1e-5)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(run(embedder.embed_queries(texts[:2]))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    for vectors in found:
        np.testing.assert_allclose(vectors, together[:2], atol=1e-5)
    assert len(found) == 3


async def test_it_is_lazy_and_can_be_closed():
    with OnnxEmbedder() as embedder:
        assert embedder._encoder is None
        assert embedder.identity.dimension == 384
        assert embedder._encoder is None
        before = await embedder.embed_queries(["a"])
        assert embedder._encoder is not None
    assert embedder._encoder is None
    after = await embedder.embed_queries(["a"])
    np.testing.assert_array_equal(before, after)


async def test_closing_in_the_middle_leaves_calls_alone():
    embedder = OnnxEmbedder()
    running = asyncio.ensure_future(embedder.embed_documents([LONG] * 6))
    await asyncio.sleep(0.05)
    embedder.close()
    assert (await running).shape == (6, 384)


async def test_cancelling_leaves_out_what_has_not_begun():
    embedder = OnnxEmbedder(threads=1)
    await embedder.embed_documents(["warm"])
    ran, begun = [], threading.Event()
    encoder = embedder._encoder
    encode = encoder.encode

    def counted(ids, **options):
        ran.append(len(ids))
        begun.set()
        return encode(ids, **options)

    encoder.encode = counted
    running = asyncio.ensure_future(embedder.embed_documents([LONG] * 100))
    assert await asyncio.to_thread(begun.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sum(ran) < 50


def test_the_identity_names_the_exact_files(embedder):
    identity = embedder.identity
    assert identity == OnnxEmbedder().identity
    assert (identity.name, identity.pooling) == ("all-MiniLM-L6-v2-int8", "mean")
    assert identity.revision.endswith("-256")
    assert OnnxEmbedder(max_tokens=128).identity != identity
    assert OnnxEmbedder(query_prefix="query: ").identity != identity


def test_the_default_is_one_for_the_process():
    assert default_embedder() is default_embedder()


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "men"},
        {"threads": 0},
        {"batch_tokens": 0},
        {"max_tokens": 2},
        {"max_tokens": 513},
    ],
)
def test_senseless_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        OnnxEmbedder(**options)


async def test_an_unknown_provider_is_refused_at_first_use():
    with pytest.raises(ConfigurationError, match="CUDAExecution"):
        await OnnxEmbedder(providers=["CUDAExecutionProvider"]).embed_queries(["a"])
