"""Models in folders: what their own files say is done, and bad files get one line."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from nbrag.errors import ConfigurationError, ModelError, ModelInvalid, ModelNotFound
from nbrag.models.embedding import OnnxEmbedder


@pytest.fixture
def states(tiny):
    """Return the token vectors that the tiny encoder gives for a text."""

    def of(text: str) -> np.ndarray:
        ids = [2, *(tiny.words.index(letter) for letter in text if letter != " "), 3]
        return tiny.table[ids]

    return of


def unit(vector) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


POOLED = {
    "mean": lambda rows: rows.mean(axis=0),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
    "max": lambda rows: rows.max(axis=0),
    "weightedmean": lambda rows: np.arange(1, len(rows) + 1) @ rows,
}
FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
    "max": "pooling_mode_max_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
}


@pytest.mark.parametrize("pooling", list(POOLED))
@pytest.mark.parametrize("newer", [False, True])
async def test_pooling_is_read_from_the_files(folder, tiny, states, pooling, newer):
    flags = {flag: name == pooling for name, flag in FLAGS.items()}
    stated = "lasttoken" if pooling == "last" else pooling
    tiny.describe(folder, "1_Pooling/config.json", {"pooling_mode": stated} if newer else flags)
    embedder = OnnxEmbedder(folder)
    assert embedder.identity.pooling == pooling
    vectors = await embedder.embed_documents(["abc", "z", "hello 42"])
    for vector, text in zip(vectors, ["abc", "z", "hello 42"], strict=True):
        np.testing.assert_allclose(vector, unit(POOLED[pooling](states(text))), atol=1e-6)


async def test_prefixes_limit_and_stored_padding(folder, states):
    embedder = OnnxEmbedder(folder)
    assert embedder.max_tokens == 16
    assert embedder.identity.query_prefix == "q "
    (query,) = await embedder.embed_queries(["abc"])
    np.testing.assert_allclose(query, unit(states("qabc").mean(axis=0)), atol=1e-6)
    (document,) = await embedder.embed_documents(["a" * 40])
    np.testing.assert_allclose(document, unit(states("a" * 14).mean(axis=0)), atol=1e-6)
    assert embedder.count_tokens(["a" * 40, "ab"]) == [42, 4]


async def test_a_document_prefix_takes_its_share(folder, states):
    embedder = OnnxEmbedder(folder, document_prefix="abc ")
    assert embedder.max_tokens == 13
    text = "x" * 11
    assert embedder.count_tokens([text]) == [embedder.max_tokens]
    (vector,) = await embedder.embed_documents([text])
    np.testing.assert_allclose(vector, unit(states("abc" + text).mean(axis=0)), atol=1e-6)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 20}}, 20),
        ({"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 24}}, 24),
        (
            {"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 1e30}},
            32,
        ),
        ({"sentence_bert_config.json": {"max_seq_length": 512}}, 32),
        (
            {
                "sentence_bert_config.json": {},
                "config.json": {
                    "hidden_size": 8,
                    "max_position_embeddings": 34,
                    "model_type": "xlm-roberta",
                    "pad_token_id": 1,
                },
            },
            32,
        ),
    ],
)
def test_the_limit_is_read_from_the_files(folder, tiny, limits, expected):
    for name, content in limits.items():
        tiny.describe(folder, name, content)
    assert OnnxEmbedder(folder).max_tokens == expected


def test_a_model_without_a_limit_needs_one(folder):
    (folder / "config.json").unlink()
    (folder / "sentence_bert_config.json").unlink()
    with pytest.raises(ModelInvalid, match="how many tokens") as caught:
        OnnxEmbedder(folder)
    assert "max_tokens=" in caught.value.hint
    assert OnnxEmbedder(folder, max_tokens=12).max_tokens == 12


def test_a_model_without_pooling_needs_it(folder):
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ModelInvalid, match="how token vectors are pooled"):
        _ = OnnxEmbedder(folder).identity
    assert OnnxEmbedder(folder, pooling="cls").identity.pooling == "cls"


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": "attention"}, "attention"),
    ],
)
def test_unsupported_pooling_is_refused(folder, tiny, pooling, message):
    tiny.describe(folder, "1_Pooling/config.json", pooling)
    with pytest.raises(ModelInvalid, match=message):
        OnnxEmbedder(folder)


async def test_only_inputs_that_the_graph_has_are_fed(folder, tiny, states):
    graph = folder / "onnx" / "model.onnx"
    for inputs in [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")]:
        for kind in (TensorProto.INT64, TensorProto.INT32):
            tiny.write_encoder(graph, inputs=inputs, integer=kind)
            (vector,) = await OnnxEmbedder(folder).embed_documents(["abc"])
            np.testing.assert_allclose(vector, unit(states("abc").mean(axis=0)), atol=1e-6)


async def test_a_graph_that_pools_itself(folder, tiny, states):
    graph = folder / "onnx" / "model.onnx"
    tiny.write_encoder(graph, output="sentence_embedding", pooled=True)
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "config.json").unlink()
    embedder = OnnxEmbedder(folder)
    assert embedder.identity.pooling == "none"
    assert embedder.identity.dimension == tiny.dimension
    (vector,) = await embedder.embed_documents(["abc"])
    np.testing.assert_allclose(vector, unit(states("abc").mean(axis=0)), atol=1e-6)


async def test_a_model_with_a_further_layer_needs_a_graph_with_it(folder, tiny):
    layers = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Dense")]
    tiny.describe(folder, "modules.json", layers)
    with pytest.raises(ModelInvalid, match="no vectors for texts"):
        await OnnxEmbedder(folder).embed_documents(["abc"])
    tiny.write_encoder(folder / "onnx" / "model.onnx", output="sentence_embedding", pooled=True)
    assert (await OnnxEmbedder(folder).embed_documents(["abc"])).shape == (1, tiny.dimension)


BAD_GRAPHS = {
    "other inputs": ({"inputs": ("input_ids", "pixel_values")}, "its inputs are input_ids, pixel"),
    "zero vectors": ({"scale": 0.0}, "zero or not a number"),
    "overflow": ({"scale": float("nan")}, "zero or not a number"),
}


@pytest.mark.parametrize("case", list(BAD_GRAPHS))
async def test_a_bad_graph_is_one_line(folder, tiny, case):
    options, message = BAD_GRAPHS[case]
    tiny.write_encoder(folder / "onnx" / "model.onnx", **options)
    with pytest.raises(ModelInvalid, match=message) as caught:
        await OnnxEmbedder(folder).embed_documents(["abc"])
    assert "\n" not in str(caught.value)


async def test_a_wrong_output_shape_is_one_line(folder, tiny):
    tiny.describe(folder, "config.json", {"hidden_size": 12, "max_position_embeddings": 32})
    with pytest.raises(ModelInvalid, match=r"length 8, but .* 12"):
        await OnnxEmbedder(folder).embed_documents(["abc"])
    tiny.write_encoder(folder / "onnx" / "model.onnx", output="logits", pooled=True)
    tiny.describe(folder, "config.json", {"hidden_size": 8, "max_position_embeddings": 32})
    with pytest.raises(ModelInvalid, match="outputs are logits"):
        await OnnxEmbedder(folder).embed_documents(["abc"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"not a graph at all", "no ONNX graph"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (None, "can't be opened"),
    ],
)
async def test_a_damaged_graph_is_one_line(folder, content, message):
    graph = folder / "onnx" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:300] if content is None else content)
    with pytest.raises(ModelInvalid, match=message) as caught:
        await OnnxEmbedder(folder).embed_documents(["abc"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": {"type": "WordPiece"'])
def test_a_damaged_tokenizer_is_one_line(folder, content):
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelInvalid, match="can't be read as a tokenizer") as caught:
        OnnxEmbedder(folder).count_tokens(["abc"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_pointer_in_place_of_a_description_is_told(folder, name):
    (folder / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    with pytest.raises(ModelInvalid, match="Git LFS pointer") as caught:
        OnnxEmbedder(folder).count_tokens(["abc"])
    assert caught.value.hint == "git lfs pull"


async def test_a_graph_that_goes_away_is_told(folder):
    embedder = OnnxEmbedder(folder)
    (folder / "onnx" / "model.onnx").unlink()
    with pytest.raises(ModelNotFound, match="is missing"):
        await embedder.embed_documents(["abc"])


async def test_an_error_leaves_the_embedder_usable(folder, tiny):
    graph = folder / "onnx" / "model.onnx"
    good = graph.read_bytes()
    graph.write_bytes(b"bad")
    embedder = OnnxEmbedder(folder)
    with pytest.raises(ModelError):
        await embedder.embed_documents(["abc"])
    graph.write_bytes(good)
    assert (await embedder.embed_documents(["abc"])).shape == (1, tiny.dimension)


def test_a_limit_beyond_the_model_is_refused(folder):
    with pytest.raises(ConfigurationError, match="at most 32"):
        OnnxEmbedder(folder, max_tokens=33)
