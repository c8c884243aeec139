from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrag.protocols import Embedder
from nbrag.testing import HashEmbedder


def test_it_is_an_embedder():
    assert isinstance(HashEmbedder(), Embedder)


async def test_similar_texts_have_similar_vectors():
    embedder = HashEmbedder(dimension=256)
    vectors = await embedder.embed_documents(
        ["backups are kept for thirty days", "Backups are kept for NINETY days", "the cat sat"]
    )
    assert vectors[0] @ vectors[1] > 0.7
    assert abs(vectors[0] @ vectors[2]) < 0.3


def vectors_of_another_process(text):
    code = (
        "import asyncio; from nbrag.testing import HashEmbedder;"
        f"v = asyncio.run(HashEmbedder().embed_queries([{text!r}]));"
        "print(v.tobytes().hex())"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


async def test_vectors_are_the_same_in_another_process():
    text = "Größe: 5 km, 東京"
    mine = await HashEmbedder().embed_queries([text])
    assert mine.tobytes().hex() == vectors_of_another_process(text)


@pytest.mark.parametrize("dimension", [1, 7, 64, 384])
@pytest.mark.parametrize("text", ["", "   ", "one", "a b a b", "\ud800", "👩‍👩‍👧 日本"])
async def test_every_text_has_a_unit_vector(dimension, text):
    vectors = await HashEmbedder(dimension).embed_documents([text])
    assert vectors.shape == (1, dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-6)


async def test_calls_and_texts_are_counted():
    embedder = HashEmbedder()
    await embedder.embed_documents(["a", "b"])
    await embedder.embed_queries(["q"])
    assert embedder.calls == 2
    assert embedder.embedded == ["a", "b"]
    assert embedder.queries == ["q"]


async def test_only_the_first_tokens_count():
    embedder = HashEmbedder(max_tokens=5)
    vectors = await embedder.embed_documents(["one two three", "one two three four five"])
    assert np.array_equal(vectors[0], vectors[1])


@given(st.text())
def test_spans_and_counts_agree(text):
    embedder = HashEmbedder()
    spans = embedder.token_spans(text)
    assert embedder.count_tokens([text]) == [len(spans) + 2]
    assert all(not text[start:end].isspace() for start, end in spans)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))


async def test_no_text_gives_no_rows():
    assert (await HashEmbedder(8).embed_documents([])).shape == (0, 8)


@pytest.mark.parametrize("arguments", [{"dimension": 0}, {"max_tokens": 2}])
def test_senseless_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        HashEmbedder(**arguments)
