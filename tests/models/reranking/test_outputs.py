"""From a graph's numbers to logits, and how the graph's end is found."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nbrag.errors import ModelInvalid
from nbrag.models.reranking._graph_end import last_operator
from nbrag.models.reranking._outputs import OutputReading, chosen_reading, sigmoid
from nbrag.models.reranking._settings import _relevant


def read(kind, relevant=1):
    return OutputReading(kind, "", relevant).logits


def test_logits_of_one_column_and_of_two():
    assert list(read("logit")(np.array([[2.0], [-1.0]]))) == [2.0, -1.0]
    assert list(read("logit")(np.array([[2.0, 5.0]]))) == [3.0]
    assert list(read("logit", 0)(np.array([[2.0, 5.0]]))) == [-3.0]


def test_probabilities_become_the_logits_that_they_were():
    logits = np.linspace(-30, 14, 50)
    once = sigmoid(logits).astype(np.float32)
    np.testing.assert_allclose(read("probability")(once[:, None]), logits, rtol=0.02)
    both = np.stack([sigmoid(-logits), sigmoid(logits)], axis=1).astype(np.float32)
    np.testing.assert_allclose(read("probability")(both), logits, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(read("probability", 0)(both), -logits, rtol=1e-3, atol=1e-6)


def test_probabilities_of_0_and_1_are_finite_and_in_order():
    found = read("probability")(np.array([[0.0], [1e-30], [0.5], [1.0], [1.004]]))
    assert np.isfinite(found).all()
    assert list(np.sort(found)) == list(found)


@pytest.mark.parametrize("value", [-0.5, 1.2, 7.5])
def test_what_is_no_probability(value):
    with pytest.raises(ModelInvalid, match=f"gave {value}"):
        read("probability")(np.array([[0.5], [value]]))


SHARES = np.array([[0.25, 0.75], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("wanted", "operator", "probe", "kind"),
    [
        ("auto", "Sigmoid", SHARES[:, :1], "probability"),
        ("auto", "Gemm", SHARES[:, :1], "logit"),
        ("auto", None, SHARES[:, :1], "logit"),
        ("auto", None, SHARES, "probability"),
        ("auto", None, SHARES + 0.1, "logit"),
        ("logit", "Softmax", SHARES, "logit"),
        ("probability", "Gemm", SHARES, "probability"),
    ],
)
def test_which_of_the_two_a_graph_gives(wanted, operator, probe, kind):
    assert chosen_reading(wanted, operator, probe, 1).kind == kind


@pytest.mark.parametrize(
    ("labels", "relevant"),
    [
        (("LABEL_0", "LABEL_1"), 1),
        (("irrelevant", "relevant"), 1),
        (("relevant", "irrelevant"), 0),
        (("Yes", "No"), 0),
        (("not_entailment", "entailment"), 1),
        (("entailment", "not_entailment"), 0),
        (("1", "0"), 0),
        (("0", "1"), 1),
        (("Positive", "Negative"), 0),
        (("one", "other"), 1),
        (("LABEL_0",), 1),
        ((), 1),
    ],
)
def test_labels_tell_which_is_relevant(labels, relevant):
    assert _relevant(labels, None) == relevant


def graph(*operators: str):
    names = ["x", *(f"n{place}" for place in range(len(operators)))]
    nodes = [
        helper.make_node(operator, [before], [after])
        for operator, before, after in zip(operators, names, names[1:], strict=False)
    ]
    value = helper.make_tensor_value_info
    return names[-1], helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [value("x", TensorProto.FLOAT, [1])],
            [value(names[-1], TensorProto.FLOAT, [1])],
        )
    )


@pytest.mark.parametrize(
    ("operators", "last"),
    [
        (("Relu", "Sigmoid"), "Sigmoid"),
        (("Sigmoid", "Cast", "Squeeze", "Identity"), "Sigmoid"),
        (("Sigmoid", "Relu"), "Relu"),
        (("Identity",), None),
    ],
)
def test_the_last_operator_that_changes_numbers(tmp_path, operators, last):
    output, model = graph(*operators)
    onnx.save(model, tmp_path / "model.onnx")
    assert last_operator(tmp_path / "model.onnx", output) == last


@pytest.mark.parametrize("content", [b"", b"\x08", b"\x0f" * 40, b"\xff" * 40, b"<html>"])
def test_what_can_t_be_followed_tells_nothing(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert last_operator(path, "logits") is None
