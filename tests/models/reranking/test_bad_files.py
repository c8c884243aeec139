"""Files that are no reranker's: one clear line each, at load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nbrag.errors import ConfigurationError, ModelError, ModelInvalid, ModelNotFound
from nbrag.models.reranking import OnnxCrossEncoder


async def loaded(folder: Path, **options) -> None:
    await OnnxCrossEncoder(folder, **options).load()


def write_graph(
    path: Path,
    shape: list,
    *,
    output: str = "logits",
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    kind: int = TensorProto.INT64,
    sizes: tuple = ("batch", "sequence"),
    more: tuple[str, ...] = (),
) -> None:
    """Write a graph that looks tokens up and gives an output of some shape."""
    width = shape[-1] if isinstance(shape[-1], int) and len(shape) > 1 else 1
    table = np.random.default_rng(0).normal(size=(600, width)).astype(np.float32)
    axes = {1: [1, 2], 2: [1], 3: []}[len(shape)]
    weights = [numpy_helper.from_array(table, "table")]
    nodes = [helper.make_node("Gather", ["table", inputs[0]], ["rows"])]
    if axes:
        weights.append(numpy_helper.from_array(np.array(axes), "axes"))
        nodes.append(helper.make_node("ReduceSum", ["rows", "axes"], [output], keepdims=0))
    else:
        nodes.append(helper.make_node("Identity", ["rows"], [output]))
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
    for name in more:
        nodes.append(helper.make_node("Identity", [output], [name]))
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, kind, list(sizes)) for name in inputs],
        outputs,
        weights,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path
    )


GRAPHS: dict[str, tuple[dict, str]] = {
    "an embedder per token": (
        {"shape": ["batch", "sequence", 8], "output": "last_hidden_state"},
        "is not a classifier: its outputs are last_hidden_state",
    ),
    "an embedder per text": (
        {"shape": ["batch", 8], "output": "sentence_embedding"},
        "is not a classifier",
    ),
    "labels of tokens": ({"shape": ["batch", "sequence", 3]}, "is not a classifier"),
    "three logits": ({"shape": ["batch", 3]}, "gives 3 numbers per pair"),
    "other inputs": (
        {"shape": ["batch", 1], "inputs": ("input_ids", "pixel_values")},
        "its inputs are input_ids, pixel_values",
    ),
    "no token ids": ({"shape": ["batch", 1], "inputs": ("tokens",)}, "its inputs are tokens"),
    "one size only": ({"shape": ["batch", 1], "sizes": (1, 128)}, r"shape \[1, 128\]"),
    "two candidates": (
        {"shape": ["batch", 1], "output": "one", "more": ("two",)},
        "leaves open which output has the scores",
    ),
}


@pytest.mark.parametrize("name", list(GRAPHS))
async def test_a_graph_that_is_no_reranker(variant, name):
    made, said = GRAPHS[name]
    folder = variant()
    write_graph(folder / "model.onnx", **made)
    with pytest.raises(ModelInvalid, match=said) as caught:
        await loaded(folder)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


async def test_a_shape_that_only_a_trial_shows(variant):
    folder = variant()
    graph = folder / "model.onnx"
    write_graph(graph, ["batch", 8], output="embedding")
    model = onnx.load(graph)
    # What is left over of a selection is not known before it is made.
    model.graph.initializer.append(numpy_helper.from_array(np.ones(8, dtype=bool), "all"))
    model.graph.node[-1].output[0] = "sums"
    model.graph.node.append(helper.make_node("Compress", ["sums", "all"], ["embedding"], axis=1))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "hidden"
    onnx.save(model, graph)
    with pytest.raises(ModelInvalid, match=r"not a classifier.*shape \(2, 8\) for 2 pairs"):
        await loaded(folder)


def emptied(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"")


def truncated(folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(path.read_bytes()[:50_000])


def garbled(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"not a graph at all " * 100)


def pickled(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"\x80\x04\x95" + b"0" * 100)


def pointer(folder: Path) -> None:
    (folder / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1\n", "utf-8")


def foreign_operator(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    model.graph.node[-1].domain = "somebody.elses"
    model.opset_import.append(helper.make_opsetid("somebody.elses", 1))
    onnx.save(model, folder / "model.onnx")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def bad_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}", "utf-8")


def bad_config(folder: Path) -> None:
    (folder / "config.json").write_text("{", "utf-8")


def three_labels(folder: Path) -> None:
    labels = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    (folder / "config.json").write_text(json.dumps({"id2label": labels}), "utf-8")


def no_limit(folder: Path) -> None:
    (folder / "config.json").write_text("{}", "utf-8")
    (folder / "tokenizer_config.json").unlink()


def tiny_limit(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 4}', "utf-8")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (emptied, "empty"),
        (truncated, "truncated"),
        (garbled, "can't be opened as an ONNX model"),
        (pickled, "pickle"),
        (pointer, "Git LFS pointer"),
        (foreign_operator, "can't be opened as an ONNX model"),
        (no_tokenizer, "has no tokenizer"),
        (bad_tokenizer, "can't be read as a tokenizer"),
        (bad_config, "is not JSON"),
        (three_labels, r"has 3 labels \(contradiction, entailment, neutral\)"),
        (no_limit, "don't say how many tokens"),
        (tiny_limit, "takes 4 tokens, too few"),
    ],
)
async def test_a_spoilt_file_gets_one_line(
    variant, spoil: Callable[[Path], None], said: str
) -> None:
    folder = variant()
    spoil(folder)
    with pytest.raises(ModelError, match=said) as caught:
        await loaded(folder)
    assert "\n" not in caught.value.message


async def test_what_is_not_there(tmp_path, folders):
    with pytest.raises(ModelNotFound, match="no model at"):
        OnnxCrossEncoder(tmp_path / "nowhere")
    with pytest.raises(ModelNotFound, match="there is no tokenizer at"):
        OnnxCrossEncoder(folders["bert"], tokenizer=tmp_path / "tokenizer.json")


async def test_the_tokenizer_may_lie_elsewhere(folders, tmp_path, golden):
    graph = tmp_path / "graphs" / "reranker.onnx"
    graph.parent.mkdir()
    graph.write_bytes((folders["xlm-roberta"] / "model.onnx").read_bytes())
    for tokenizer in (folders["xlm-roberta"], folders["xlm-roberta"] / "tokenizer.json"):
        for model in (graph, str(graph)):
            found = await OnnxCrossEncoder(model, tokenizer=tokenizer).score(
                golden["questions"][0], golden["passages"]
            )
            np.testing.assert_allclose(
                found.logits, golden["logits"]["xlm-roberta"][:20], atol=1e-4
            )
    graph.rename(graph.with_name("model.onnx"))
    model = OnnxCrossEncoder(graph.parent, tokenizer=folders["xlm-roberta"])
    assert (model.name, model.max_tokens) == ("graphs", 128)
    with pytest.raises(ModelInvalid, match="has no tokenizer"):
        OnnxCrossEncoder(graph.parent)


async def test_a_score_that_is_no_number_is_an_error(variant):
    with pytest.raises(ModelInvalid, match="gave a score that is not a number"):
        await OnnxCrossEncoder(variant("bert", "nan")).score("a", ["b"])


async def test_an_option_that_the_numbers_contradict(folders):
    with pytest.raises(ModelInvalid, match="which is no probability") as caught:
        await OnnxCrossEncoder(folders["xlm-roberta"], outputs="probability").score("a", ["b"])
    assert "outputs=logit" in caught.value.hint


async def test_an_option_goes_before_what_was_found(variant):
    model = OnnxCrossEncoder(variant("bert", "sigmoid"), outputs="logit")
    assert 0 < (await model.score("a", ["b"])).logits[0] < 1
    assert model.outputs == "logit (as asked)"


async def test_wrong_window_sizes_are_no_model_errors(folders):
    with pytest.raises(ConfigurationError):
        await OnnxCrossEncoder(folders["bert"]).score("a", ["b"], windows=-1)
