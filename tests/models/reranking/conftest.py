"""The tiny classifiers, and variants of them that are made on the spot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

KINDS = ("bert", "xlm-roberta", "modernbert")
HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def folders(repository: Path) -> dict[str, Path]:
    """The committed classifiers by their kind."""
    return {
        "bert": repository / "notebooks" / "models" / "tiny-random-bert",
        "xlm-roberta": HERE / "models" / "tiny-random-xlm-roberta",
        "modernbert": HERE / "models" / "tiny-random-modernbert",
    }


@pytest.fixture(scope="session")
def golden() -> Any:
    """Pairs and the reference's logits: ``make_models.py`` says how they came about."""
    return json.loads((HERE / "golden.json").read_text("utf-8"))


def ending(graph: Any, change: str) -> None:
    """Give a graph's one logit another form at its end."""
    output = graph.graph.output[0]
    for node in graph.graph.node:
        node.output[:] = ["raw" if name == "logits" else name for name in node.output]
    halves = {"two": [[-0.5, 0.5]], "two-swapped": [[0.5, -0.5]], "three": [[1.0, 0.0, -1.0]]}
    two = halves.get(change.removesuffix("-softmax"))
    last, columns = "raw", 1
    if two is not None:
        columns = len(two[0])
        graph.graph.initializer.append(
            numpy_helper.from_array(np.array(two, dtype=np.float32), "halves")
        )
        graph.graph.node.append(helper.make_node("Mul", ["raw", "halves"], ["columns"]))
        last = "columns"
    if change.endswith("softmax"):
        graph.graph.node.append(helper.make_node("Softmax", [last], ["shares"], axis=-1))
        last = "shares"
    if change in ("sigmoid", "sigmoid-flat"):
        graph.graph.node.append(helper.make_node("Sigmoid", [last], ["squashed"]))
        last = "squashed"
    if change == "two-shares":  # a softmax that no operator tells of
        nodes = [
            helper.make_node("Exp", [last], ["grown"]),
            helper.make_node("Add", ["grown", "one"], ["sum"]),
            helper.make_node("Div", ["one", "sum"], ["other"]),
            helper.make_node("Div", ["grown", "sum"], ["share"]),
            helper.make_node("Concat", ["other", "share"], ["both"], axis=1),
        ]
        graph.graph.initializer.append(numpy_helper.from_array(np.float32([[1]]), "one"))
        graph.graph.node.extend(nodes)
        last, columns = "both", 2
    if change == "nan":
        graph.graph.initializer.append(numpy_helper.from_array(np.float32([[np.nan]]), "nan"))
        graph.graph.node.append(helper.make_node("Add", [last, "nan"], ["lost"]))
        last = "lost"
    flat = change in ("flat", "sigmoid-flat")
    if flat:
        graph.graph.initializer.append(numpy_helper.from_array(np.array([1]), "second"))
        graph.graph.node.append(helper.make_node("Squeeze", [last, "second"], ["logits"]))
    else:
        graph.graph.node.append(helper.make_node("Identity", [last], ["logits"]))
    shape = ["batch"] if flat else ["batch", columns]
    output.CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape))


def narrow_inputs(graph: Any) -> None:
    """Let a graph take int32, as some exporters do."""
    for entry in graph.graph.input:
        entry.type.tensor_type.elem_type = TensorProto.INT32
        wide = f"{entry.name}_wide"
        for node in graph.graph.node:
            node.input[:] = [wide if name == entry.name else name for name in node.input]
        cast = helper.make_node("Cast", [entry.name], [wide], to=TensorProto.INT64)
        graph.graph.node.insert(0, cast)


def made(source: Path, target: Path, change: str) -> None:
    """Write a variant of a graph."""
    if change == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)
        return
    graph = onnx.load(source)
    if change == "fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        graph = convert_float_to_float16(graph, keep_io_types=False)
    elif change == "int32":
        narrow_inputs(graph)
    else:
        ending(graph, change)
    onnx.save(graph, target)


@pytest.fixture
def variant(folders: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Copies a classifier's folder, with a changed graph and lines of its ``config.json``."""

    def make(kind: str = "bert", change: str = "", **config: Any) -> Path:
        target = tmp_path / f"{kind}-{change or 'copy'}-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(folders[kind], target)
        if change:
            made(folders[kind] / "model.onnx", target / "model.onnx", change)
        if config:
            path = target / "config.json"
            described = {**json.loads(path.read_text("utf-8")), **config}
            path.write_text(json.dumps(described), "utf-8")
        return target

    return make
