"""Tiny encoders with random weights, made on the spot: an embedding table and its copy."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
DIMENSION = 8


def table() -> np.ndarray:
    return np.random.default_rng(7).normal(size=(len(WORDS), DIMENSION)).astype(np.float32)


def write_encoder(
    path: Path,
    *,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    output: str = "last_hidden_state",
    pooled: bool = False,
    integer: int = TensorProto.INT64,
    scale: float = 1.0,
    weights: str | None = None,
    location: str | None = None,
) -> None:
    """Write a graph that looks each token up; ``pooled`` averages over all tokens.

    ``weights`` names a file of their own; ``location`` is what the graph says about where it is.
    """
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["tokens"])]
    shape: list[str | int] = ["batch", "sequence", DIMENSION]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", ["tokens", "axes"], [output], keepdims=0))
        shape = ["batch", DIMENSION]
    else:
        nodes.append(helper.make_node("Identity", ["tokens"], [output]))
    constants = [
        numpy_helper.from_array(table() * np.float32(scale), "table"),
        numpy_helper.from_array(np.array([1], dtype=np.int64), "axes"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, integer, ["batch", "sequence"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    if weights is not None:
        external_data_helper.convert_model_to_external_data(
            model, location=weights, size_threshold=0
        )
    onnx.save(model, path)
    if location is not None:
        bent = onnx.load(path, load_external_data=False)
        for tensor in bent.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
        path.write_bytes(bent.SerializeToString())


def mixing_weights() -> np.ndarray:
    return np.random.default_rng(11).normal(size=(DIMENSION, DIMENSION)).astype(np.float32)


def mixed(ids: list[int]) -> np.ndarray:
    """Return the states that :func:`write_mixing_encoder` gives for one text."""
    tokens = table()[ids] + (np.arange(len(ids), dtype=np.float32) * 0.1)[:, None]
    return np.tanh(np.cumsum(tokens, axis=0) @ mixing_weights() + tokens)


def write_mixing_encoder(path: Path, *, positions: bool = True) -> None:
    """Write a causal graph: each state depends on its token, its position and all tokens before.

    What stands at the places of padding is mixed into nothing, but has a state too.
    """
    inputs = ["input_ids", "attention_mask", *(["position_ids"] if positions else [])]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "last"], ["mask"]),
    ]
    if positions:
        nodes += [
            helper.make_node("Cast", ["position_ids"], ["place"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["place", "step"], ["stepped"]),
            helper.make_node("Unsqueeze", ["stepped", "last"], ["shift"]),
            helper.make_node("Add", ["words", "shift"], ["tokens"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["words"], ["tokens"]))
    nodes += [
        helper.make_node("Mul", ["tokens", "mask"], ["counted"]),
        helper.make_node("CumSum", ["counted", "axis"], ["sums"]),
        helper.make_node("MatMul", ["sums", "weights"], ["turned"]),
        helper.make_node("Add", ["turned", "tokens"], ["states"]),
        helper.make_node("Tanh", ["states"], ["last_hidden_state"]),
    ]
    constants = {
        "table": table(),
        "weights": mixing_weights(),
        "last": np.array([2], dtype=np.int64),
        "axis": np.array(1, dtype=np.int64),
        "step": np.array(0.1, dtype=np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "mixing",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "t"]) for name in inputs],
        [
            helper.make_tensor_value_info(
                "last_hidden_state", TensorProto.FLOAT, ["b", "t", DIMENSION]
            )
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def write_tokenizer(path: Path) -> None:
    """Write a character tokenizer with begin and end marks."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    # As published files often have it: a stored length that is not the model's own.
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=12)
    tokenizer.save(str(path))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A model folder in hub layout."""
    root = tmp_path / "tiny-model"
    write_encoder(root / "onnx" / "model.onnx")
    write_tokenizer(root / "tokenizer.json")
    described = {
        "config.json": {"hidden_size": DIMENSION, "max_position_embeddings": 32},
        "sentence_bert_config.json": {"max_seq_length": 16},
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": {"prompts": {"query": "q ", "document": ""}},
    }
    for name, content in described.items():
        describe(root, name, content)
    return root


def describe(root: Path, name: str, content: object) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """What the tests of tiny models build and check with."""
    return SimpleNamespace(
        dimension=DIMENSION,
        words=WORDS,
        table=table(),
        describe=describe,
        write_encoder=write_encoder,
        write_mixing_encoder=write_mixing_encoder,
        mixed=mixed,
    )
