from __future__ import annotations

import json
import sys

import pytest

import nbrag
from nbrag.models import list_models
from nbrag.models.known import KNOWN_MODELS
from nbrag.models.sessions import open_session


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("HF_HOME", str(folder))
    return folder


def cached(folder, home, name, *, commit="0" * 40, revision="main"):
    root = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    snapshot.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(snapshot)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / revision).write_text(commit, "ascii")
    return snapshot


def row(view, name):
    (found,) = [entry for entry in view if entry.name == name]
    return found


def test_a_bare_machine_has_the_built_in_model_and_says_how_to_get_others():
    view = nbrag.models.list_models()
    built_in = row(view, "minilm")
    assert (built_in.purpose, built_in.place) == ("embedding", "installed")
    assert built_in.licence == "Apache-2.0"
    assert 22_000_000 < built_in.size < 25_000_000
    assert {entry.name for entry in view[1:]} == {model.name for model in KNOWN_MODELS}
    for entry in view[1:]:
        assert entry.place == "not here"
        assert entry.remark.startswith("not here yet: pip install 'nbrag[hub]', then ")
        assert entry.licence
    assert {entry.purpose for entry in view} == {"embedding", "reranking"}
    assert repr(view) == "<ModelsView: 1 models here>"


def test_a_cached_model_with_its_licence_and_size(folder, home):
    (folder / "README.md").write_text("---\nlicense: mit\ntags: [a]\n---\n# e5\n", "utf-8")
    size = sum((folder / name).stat().st_size for name in ("onnx/model.onnx", "tokenizer.json"))
    snapshot = cached(folder, home, "owner/name", revision="v2")
    entry = row(list_models({"owner/name": ["collection docs"]}), "owner/name@v2")
    assert (entry.purpose, entry.place, entry.licence) == ("embedding", "hub cache", "mit")
    assert (entry.size, entry.used_by) == (size, ("collection docs",))
    assert not entry.loaded
    session = open_session(snapshot / "onnx" / "model.onnx")
    assert row(list_models(), "owner/name@v2").loaded
    del session


def test_a_known_model_that_is_here_is_not_listed_as_missing(folder, home):
    cached(folder, home, "BAAI/bge-small-en-v1.5")
    found = [entry for entry in list_models() if entry.name == "BAAI/bge-small-en-v1.5"]
    assert [entry.place for entry in found] == ["hub cache"]


def test_a_folder_in_use(folder, tiny):
    tiny.describe(folder, "config.json", {"architectures": ["BertForSequenceClassification"]})
    for name in ("1_Pooling/config.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    entry = row(list_models({str(folder): ["pipeline careful"]}), "tiny-model")
    assert (entry.purpose, entry.place) == ("reranking", "folder")
    assert entry.used_by == ("pipeline careful",)


def test_a_folder_s_collections_know_it_by_its_last_part(folder):
    used = {str(folder): ["embedder"], "tiny-model": ["collection docs"]}
    view = list_models(used)
    assert row(view, "tiny-model").used_by == ("embedder", "collection docs")


def test_what_is_named_but_not_here():
    entry = row(list_models({"gone": ["collection old"]}), "gone")
    assert (entry.place, entry.used_by) == ("not here", ("collection old",))
    assert "not found" in entry.remark


@pytest.mark.parametrize(
    ("spoil", "remark"),
    [
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda f: (f / "onnx" / "model.onnx").write_bytes(b"version https://git-lfs"), "pointer"),
        (lambda f: (f / "onnx" / "model.onnx").rename(f / "pytorch_model.bin"), "never loaded"),
    ],
)
def test_a_damaged_model_is_a_row_with_what_is_wrong(folder, spoil, remark):
    spoil(folder)
    entry = row(list_models({str(folder): ["embedder"]}), "tiny-model")
    assert remark in entry.remark
    assert str(folder.parent) not in entry.remark


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: [mit, apache-2.0]\n---\n", "mit, apache-2.0"),
        ("---\nlicense: other\nlicense_name: own-terms\n---\n", "own-terms"),
        ("---\nlicense: [\n---\n", ""),
        ("no front matter\nlicense: mit\n", ""),
        ("", ""),
    ],
)
def test_licences_of_model_cards(folder, card, licence):
    (folder / "README.md").write_text(card, "utf-8")
    assert row(list_models({str(folder): ["x"]}), "tiny-model").licence == licence


def test_it_shows_as_a_table_without_paths(folder):
    shown = list_models({str(folder): ["<b>embedder</b>"]})._repr_mimebundle_()
    assert str(folder.parent) not in json.dumps(shown)
    assert "<b>" not in shown["text/html"]
    assert "unknown" in shown["text/plain"]
    assert "tiny-model" in shown["text/markdown"]


def test_nothing_heavy_is_imported_and_nothing_asked(monkeypatch):
    import subprocess

    code = (
        "import sys, nbrag; nbrag.models.list_models();"
        "print([n for n in ('onnxruntime', 'huggingface_hub', 'tokenizers') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
