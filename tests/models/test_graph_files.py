from __future__ import annotations

import contextlib

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nbrag.errors import ModelInvalid, ModelNotFound
from nbrag.models.embedding import OnnxEmbedder
from nbrag.models.graph_files import check_graph, external_weights
from nbrag.models.sessions import is_loaded, open_session


@pytest.fixture
def graph(folder):
    return folder / "onnx" / "model.onnx"


def test_a_whole_graph(graph):
    assert check_graph(graph) == ()


def test_a_graph_with_its_weights_beside_it(graph, tiny):
    tiny.write_encoder(graph, weights="model.onnx_data")
    weights = graph.with_name("model.onnx_data")
    assert check_graph(graph) == (weights,)
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(ModelInvalid, match="is truncated: it has"):
        check_graph(graph)
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelInvalid, match="Git LFS pointer"):
        check_graph(graph)
    weights.unlink()
    with pytest.raises(ModelInvalid, match=r"model\.onnx_data, which is missing"):
        check_graph(graph)


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "a/../../b", "..\\secret", "C:\\secret", "."]
)
async def test_weights_outside_the_folder_are_refused(graph, tiny, folder, location):
    (folder / "secret").write_bytes(b"\0" * 4096)
    tiny.write_encoder(graph, weights="model.onnx_data", location=location)
    with pytest.raises(ModelInvalid, match="outside its own folder: refused") as caught:
        check_graph(graph)
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelInvalid, match="refused"):
        await OnnxEmbedder(folder).embed_documents(["abc"])


def test_weights_of_a_graph_within_a_graph_are_seen(tmp_path):
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="../secret")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    constant = helper.make_node("Constant", [], ["y"], value=tensor)
    branch = helper.make_graph([constant], "branch", [], [output])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [1])
    path = tmp_path / "model.onnx"
    model = helper.make_model(helper.make_graph([choice], "g", [condition], [output]))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelInvalid, match="refused"):
        check_graph(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"\x80\x04\x95", "pickle"),
        (b"PK\x03\x04" + b"\0" * 30, "ZIP archive"),
        (b"<!doctype html><html>", "web page"),
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"not a graph at all", "no ONNX graph"),
        (b"\x08\x09", "holds no graph"),
    ],
)
def test_what_is_no_graph_is_told_apart(graph, content, message):
    graph.write_bytes(content)
    with pytest.raises(ModelInvalid, match=message) as caught:
        check_graph(graph)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ModelNotFound, match="is missing"):
        check_graph(tmp_path / "none.onnx")


def test_every_truncation_is_seen(graph):
    whole = graph.read_bytes()
    for size in range(1, len(whole) - 12, 7):
        graph.write_bytes(whole[:size])
        with pytest.raises(ModelInvalid):
            check_graph(graph)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(min_size=1, max_size=300))
def test_any_bytes_are_either_taken_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "model.onnx"
    path.write_bytes(b"\x3a" + content + b"location")
    with contextlib.suppress(ModelInvalid):
        assert isinstance(external_weights(path), dict)


def test_operators_of_other_libraries_are_never_loaded(graph):
    model = onnx.load(graph)
    model.graph.node.append(helper.make_node("Evil", ["tokens"], ["more"], domain="com.evil"))
    model.opset_import.append(helper.make_opsetid("com.evil", 1))
    onnx.save(model, graph)
    with pytest.raises(ModelInvalid, match="can't be opened") as caught:
        open_session(graph)
    assert "libraries of operators are never loaded" in caught.value.hint


def test_what_is_open_is_known(graph):
    assert not is_loaded(graph)
    session = open_session(graph)
    assert is_loaded(graph)
    del session
    assert not is_loaded(graph)
