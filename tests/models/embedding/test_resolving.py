from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nbrag.errors import ConfigurationError, ModelNotFound
from nbrag.models.embedding import (
    LiteLLMEmbedder,
    OnnxEmbedder,
    default_embedder,
    resolve_embedder,
)
from nbrag.testing import HashEmbedder


@pytest.mark.parametrize("reference", [None, "minilm"])
def test_the_default_one(reference):
    assert resolve_embedder(reference) is default_embedder()


def test_a_folder_as_text_and_as_a_path(folder):
    for reference in (str(folder), Path(folder), folder / "onnx" / "model.onnx"):
        found = resolve_embedder(reference)
        assert isinstance(found, OnnxEmbedder)
        assert found.identity.name == "tiny-model"


def test_a_provider():
    found = resolve_embedder("litellm:ollama/nomic-embed-text")
    assert isinstance(found, LiteLLMEmbedder)
    assert repr(found) == "LiteLLMEmbedder('ollama/nomic-embed-text')"


def test_options_behind_a_name(folder):
    found = resolve_embedder(f"{folder} dimension=4 pooling=cls query_prefix='ask: '")
    identity = found.identity
    assert (identity.dimension, identity.pooling, identity.query_prefix) == (4, "cls", "ask: ")
    assert resolve_embedder(f'{folder} document_prefix=""').identity.document_prefix == ""
    small = resolve_embedder("minilm dimension=64")
    assert small.identity.dimension == 64
    assert small is not default_embedder()
    assert resolve_embedder("litellm:openai/x dimension=9").identity.dimension == 9


def test_a_path_may_look_like_options(folder):
    odd = folder.rename(folder.parent / "my model dimension=4")
    assert resolve_embedder(str(odd)).identity.dimension == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("dimensions=4", "no option 'dimensions'"),
        ("dimension=many", "not a number"),
        ("dimension=0", "not a number"),
        ("dimension=4 dimension=4", "twice"),
        ("pooling=avg", "unknown pooling"),
        ("dimension=9", "more than the 8"),
    ],
)
def test_options_that_can_not_be_used(folder, options, message):
    with pytest.raises(ConfigurationError, match=message):
        resolve_embedder(f"{folder} {options}")


def test_an_embedder_is_returned():
    embedder = HashEmbedder()
    assert resolve_embedder(embedder) is embedder


def test_an_unknown_name():
    with pytest.raises(ModelNotFound, match="minilmm"):
        resolve_embedder("minilmm")


@pytest.mark.parametrize("reference", ["", "  ", 3, object(), "litellm:"])
def test_what_is_no_embedder(reference):
    with pytest.raises(ConfigurationError):
        resolve_embedder(reference)


def test_importing_and_naming_models_loads_nothing_heavy():
    heavy = ["onnxruntime", "tokenizers", "litellm", "numpy", "tenacity", "huggingface_hub"]
    code = (
        "import sys, nbrag.models.embedding as e, nbrag.models.provider, nbrag.models.files;"
        "e.default_embedder(); e.resolve_embedder('litellm:openai/x');"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
