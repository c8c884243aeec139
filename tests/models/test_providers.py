"""Providers by short names, and what is said about one that is not there."""

from __future__ import annotations

import importlib.metadata

import pytest

import nbrag
from nbrag.errors import ConfigurationError
from nbrag.models import sessions
from nbrag.models.embedding import OnnxEmbedder
from nbrag.models.embedding._reference import split_reference
from nbrag.models.sessions import open_session, provider_mark, runs_prepared


def test_short_names_are_known(folder):
    session = open_session(folder / "onnx" / "model.onnx", providers=["cpu"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert runs_prepared(["cpu"])
    assert runs_prepared(["CPUExecutionProvider"])
    assert not runs_prepared(["openvino", "cpu"])


def test_less_precise_vectors_are_marked(folder):
    assert provider_mark(["openvino"]) == "-bf16"
    assert provider_mark(["OpenVINOExecutionProvider"]) == ""
    plain = OnnxEmbedder(folder, pooling="mean").identity
    marked = OnnxEmbedder(folder, pooling="mean", providers=["openvino"]).identity
    assert marked.revision == f"{plain.revision}-bf16"


@pytest.mark.parametrize("there", [False, True])
def test_what_to_do_about_openvino(folder, monkeypatch, there):
    """Both builds of the runtime go into one folder, so one may hide the other."""

    def version(name):
        if name == "onnxruntime-openvino" and not there:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.24.1"

    monkeypatch.setattr(sessions.metadata, "version", version)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    embedder = OnnxEmbedder(folder, pooling="mean", providers=["openvino"])
    with pytest.raises(ConfigurationError, match="'openvino' is not available") as caught:
        nbrag.run(embedder.embed_documents(["a"]))
    assert ("--force-reinstall" if there else "nbrag[openvino]") in caught.value.hint


def test_options_behind_a_name():
    name, options = split_reference("minilm prepared=false providers=openvino,cpu")
    assert (name, options) == ("minilm", {"prepared": False, "providers": ("openvino", "cpu")})
    with pytest.raises(ConfigurationError, match="prepared=perhaps is not true or false"):
        split_reference("minilm prepared=perhaps")
