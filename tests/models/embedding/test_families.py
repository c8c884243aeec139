"""Prefixes and pooling of well-known families, where a model's files leave them open."""

from __future__ import annotations

import pytest

from nbrag.models.embedding import OnnxEmbedder
from nbrag.models.embedding._families import family_of

BGE = "Represent this sentence for searching relevant passages: "


@pytest.mark.parametrize(
    ("name", "pooling", "query", "document"),
    [
        ("intfloat/e5-small-v2", "mean", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large", "mean", "query: ", "passage: "),
        ("intfloat/multilingual-e5-large-instruct", "mean", "Instruct: ", ""),
        ("BAAI/bge-small-en-v1.5", "cls", BGE, ""),
        ("Xenova/bge-small-en-v1.5", "cls", BGE, ""),
        ("Qdrant/bge-small-en-v1.5-onnx-Q", "cls", BGE, ""),
        ("BAAI/bge-base-zh-v1.5", "cls", "为这个句子", ""),
        ("BAAI/bge-m3", "cls", "", ""),
        ("thenlper/gte-small", "mean", "", ""),
        ("Alibaba-NLP/gte-large-en-v1.5", "cls", "", ""),
        ("nomic-ai/nomic-embed-text-v1.5", "mean", "search_query: ", "search_document: "),
        ("Snowflake/snowflake-arctic-embed-xs", "cls", BGE, ""),
        ("Snowflake/snowflake-arctic-embed-m-v2.0", "cls", "query: ", ""),
        ("Qwen/Qwen3-Embedding-0.6B", "last", "Instruct: ", ""),
        ("sentence-transformers/all-MiniLM-L6-v2", "mean", "", ""),
        ("sentence-transformers/multi-qa-MiniLM-L6-cos-v1", "mean", "", ""),
        ("sentence-transformers/multi-qa-mpnet-base-cls-v1", "cls", "", ""),
    ],
)
def test_known_families(name, pooling, query, document):
    family = family_of(name)
    assert family.pooling == pooling
    assert family.query_prefix.startswith(query)
    assert bool(family.query_prefix) == bool(query)
    assert family.document_prefix == document


@pytest.mark.parametrize(
    "name", ["my-model", "e5", "nice-e5-small", "bge-reranker-base", "gte-reranker", "tiny-model"]
)
def test_names_that_only_look_alike(name):
    assert family_of(name) is None


@pytest.fixture
def silent(folder):
    """A model called like a well-known one, whose files say neither pooling nor prefixes."""
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "config_sentence_transformers.json").unlink()
    return folder.rename(folder.parent / "e5-small-v2")


async def test_a_family_fills_in_what_the_files_leave_open(silent, tiny):
    embedder = OnnxEmbedder(silent)
    identity = embedder.identity
    assert (identity.pooling, identity.query_prefix) == ("mean", "query: ")
    assert identity.document_prefix == "passage: "
    query = await embedder.embed_queries(["abc"])
    assert abs(query - await embedder.embed_documents(["abc"])).max() > 1e-3


async def test_files_come_before_the_family(silent, tiny):
    prompts = {"prompts": {"query": "q: ", "document": "d: "}}
    tiny.describe(silent, "config_sentence_transformers.json", prompts)
    tiny.describe(silent, "1_Pooling/config.json", {"pooling_mode_cls_token": True})
    identity = OnnxEmbedder(silent).identity
    found = (identity.pooling, identity.query_prefix, identity.document_prefix)
    assert found == ("cls", "q: ", "d: ")


async def test_prompts_that_are_all_empty_say_nothing(silent, tiny):
    prompts = {"prompts": {"query": "", "document": ""}, "default_prompt_name": None}
    tiny.describe(silent, "config_sentence_transformers.json", prompts)
    assert OnnxEmbedder(silent).identity.query_prefix == "query: "


def test_options_come_before_both(silent):
    embedder = OnnxEmbedder(silent, query_prefix="", document_prefix="", pooling="max")
    identity = embedder.identity
    found = (identity.pooling, identity.query_prefix, identity.document_prefix)
    assert found == ("max", "", "")


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"query": "q ", "passage": "p "}, ("q ", "p ")),
        ({"retrieval.query": "q ", "retrieval.passage": "p "}, ("q ", "p ")),
        ({"query": "q "}, ("q ", "")),
        ({"default": "x "}, ("x ", "x ")),
    ],
)
def test_prompts_under_their_usual_names(folder, tiny, prompts, expected):
    described = {"prompts": prompts, "default_prompt_name": "default"}
    tiny.describe(folder, "config_sentence_transformers.json", described)
    identity = OnnxEmbedder(folder).identity
    assert (identity.query_prefix, identity.document_prefix) == expected
