"""Models of the hub: from the cache without a network, and downloaded from a loopback hub."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from nbrag.errors import MissingDependency, ModelInvalid, ModelNotFound
from nbrag.models.embedding import OnnxEmbedder
from nbrag.models.files import find_files
from nbrag.models.hub_cache import cache_folder, cached_models

from .hub_server import COMMIT, HubServer

TOKEN = "hf_" + "abcdefgh" * 4


def cached(folder, home, *, name="owner/name", revision="main", commit="0" * 40, links=False):
    """Lay a model out as the hub's own cache does."""
    root = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if path.is_file():
            place = snapshot / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            if links:
                blob = root / "blobs" / f"{number:064x}"
                blob.parent.mkdir(exist_ok=True)
                shutil.copy(path, blob)
                place.symlink_to(os.path.relpath(blob, place.parent))
            else:
                shutil.copy(path, place)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / revision).write_text(commit, "ascii")
    return snapshot


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of its own, and nobody may reach for a network."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HF_HOME", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    return folder


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def hub(home, folder, monkeypatch):
    """A loopback hub with one model, and the client pointed to it."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", "utf-8")
    running = HubServer({"owner/name": folder})
    monkeypatch.setenv("HF_ENDPOINT", running.url)
    yield running
    running.close()


# From the cache --------------------------------------------------------------------------


@pytest.mark.parametrize("links", [False, True])
async def test_a_cached_model_asks_nobody(folder, home, no_network, monkeypatch, links):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    snapshot = cached(folder, home, links=links)
    assert find_files("owner/name").model == snapshot / "onnx" / "model.onnx"
    pinned = cached(folder, home, revision="v2", commit="1" * 40, links=links)
    for reference in ("owner/name@v2", "owner/name@" + "1" * 40):
        assert find_files(reference).model == pinned / "onnx" / "model.onnx"
    embedder = OnnxEmbedder("owner/name")
    assert embedder.identity.name == "owner/name"
    assert (await embedder.embed_documents(["abc"])).shape == (1, 8)


@pytest.mark.parametrize("links", [False, True])
async def test_cached_weights_in_a_file_of_their_own(folder, home, tiny, no_network, links):
    tiny.write_encoder(folder / "onnx" / "model.onnx", weights="model.onnx_data")
    here = await OnnxEmbedder(folder).embed_documents(["abc"])
    cached(folder, home, links=links)
    assert ((await OnnxEmbedder("owner/name").embed_documents(["abc"])) == here).all()


def test_a_folder_of_that_name_comes_first(folder, home, tmp_path, monkeypatch, no_network):
    cached(folder, home)
    shutil.copytree(folder, tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    assert find_files("owner/name").model.resolve().is_relative_to(tmp_path / "owner")


@pytest.mark.parametrize(
    "lost", ["tokenizer.json", "onnx/model.onnx", "onnx/model.onnx_data", "refs"]
)
def test_a_cache_that_lacks_something_is_not_taken_for_whole(folder, home, tiny, monkeypatch, lost):
    tiny.write_encoder(folder / "onnx" / "model.onnx", weights="model.onnx_data")
    snapshot = cached(folder, home)
    if lost == "refs":
        shutil.rmtree(snapshot.parents[1] / "refs")
    else:
        (snapshot / lost).unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ModelNotFound, match="or only in part") as caught:
        find_files("owner/name")
    assert "HF_HUB_OFFLINE" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"HF_HUB_CACHE": "/a/b"}, "/a/b"),
        ({"HF_HOME": "/a"}, "/a/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/nobody"}, "huggingface/hub"),
    ],
)
def test_where_the_cache_is(settings, expected):
    assert cache_folder(settings).as_posix().endswith(expected)


def test_all_cached_models_are_listed(folder, home):
    assert cached_models() == []
    cached(folder, home, name="b/two--parts")
    cached(folder, home, name="a/one", revision="v2", commit="1" * 40)
    assert [model.reference for model in cached_models()] == ["a/one@v2", "b/two--parts"]


# Downloaded ------------------------------------------------------------------------------


async def test_a_model_is_downloaded_once(folder, hub, home, no_network_later):
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    files = find_files("owner/name")
    assert files.name == "owner/name"
    assert files.model.read_bytes() == (folder / "onnx" / "model.onnx").read_bytes()
    assert files.description("sentence_bert_config.json") == {"max_seq_length": 16}
    asked = [path for path in hub.asked if path.startswith("GET /owner")]
    assert asked[-1].endswith("onnx/model.onnx")  # the last one makes it complete
    assert not any("pytorch_model" in path for path in hub.asked)
    assert (files.tokenizer.parent / "README.md").is_file()
    hub.asked.clear()
    no_network_later()
    assert find_files("owner/name") == files
    assert (await OnnxEmbedder("owner/name").embed_documents(["abc"])).shape == (1, 8)
    assert hub.asked == []


@pytest.fixture
def no_network_later(monkeypatch):
    def forbid():
        def refuse(*arguments):
            raise AssertionError("the network was asked")

        monkeypatch.setattr(socket.socket, "connect", refuse)

    return forbid


@pytest.mark.parametrize("revision", ["v2", COMMIT])
def test_a_pinned_revision(hub, home, revision):
    files = find_files(f"owner/name@{revision}")
    assert COMMIT in files.model.parts
    assert any(f"/revision/{revision}" in path for path in hub.asked)
    hub.asked.clear()
    assert find_files(f"owner/name@{revision}") == files
    assert hub.asked == []


def test_a_variant_is_downloaded_alone_and_found_again(folder, hub, home):
    shutil.copy(folder / "onnx" / "model.onnx", folder / "onnx" / "model_int8.onnx")
    files = find_files("owner/name", file="onnx/model_int8.onnx")
    assert not (files.model.parent / "model.onnx").exists()
    hub.asked.clear()
    assert find_files("owner/name", file="onnx/model_int8.onnx") == files
    assert hub.asked == []
    # Which graph is taken by default does not depend on what happens to be cached.
    assert find_files("owner/name").model.name == "model.onnx"


def test_a_model_of_variants_only_is_found_again_without_asking(folder, hub, home):
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "model_quantized.onnx")
    files = find_files("owner/name")
    assert files.model.name == "model_quantized.onnx"
    hub.asked.clear()
    assert find_files("owner/name") == files
    assert hub.asked == []


def test_a_variant_that_was_asked_for_does_not_become_the_default(folder, hub, home):
    graph = folder / "onnx" / "model.onnx"
    shutil.copy(graph, graph.with_name("model_int8.onnx"))
    graph.rename(graph.with_name("model_O3.onnx"))
    assert find_files("owner/name", file="onnx/model_int8.onnx").model.stem == "model_int8"
    assert find_files("owner/name").model.stem == "model_O3"


async def test_weights_in_a_file_of_their_own_are_downloaded(folder, hub, home, tiny):
    # Not named after the graph: only the graph knows.
    tiny.write_encoder(folder / "onnx" / "model.onnx", weights="weights.data")
    here = await OnnxEmbedder(folder).embed_documents(["abc"])
    assert ((await OnnxEmbedder("owner/name").embed_documents(["abc"])) == here).all()


DOWNLOAD = """
import sys
from nbrag.models.files import find_files
print(find_files(sys.argv[1]).model)
"""


def test_a_download_that_was_killed_goes_on(folder, hub, home, tiny):
    graph = folder / "onnx" / "model.onnx"
    graph.write_bytes(graph.read_bytes() + b"\x32\x80\x80\x40" + b"x" * 2**20)
    hub.stall_after["onnx/model.onnx"] = 700_000
    command = [sys.executable, "-c", DOWNLOAD, "owner/name"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        assert hub.stalled.wait(30)
        first.kill()
        first.communicate()
    assert not list((home / "hub").rglob("model.onnx"))
    assert [m for m in cached_models() if (m.folder / "onnx" / "model.onnx").exists()] == []
    hub.go_on.set()
    files = find_files("owner/name")
    assert files.model.read_bytes() == graph.read_bytes()


@pytest.mark.parametrize("links", [False, True])
def test_a_truncated_file_in_the_cache_is_downloaded_again(folder, hub, home, links):
    whole = (folder / "onnx" / "model.onnx").read_bytes()
    if links:
        graph = find_files("owner/name").model
        assert graph.is_symlink()
    else:
        graph = cached(folder, home, commit=COMMIT) / "onnx" / "model.onnx"
    graph.write_bytes(whole[:200])
    assert find_files("owner/name").model.read_bytes() == whole


def test_no_connection_takes_what_is_cached(folder, hub, home):
    hub.close()
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "model_int8.onnx")
    cached(folder, home)
    assert find_files("owner/name").model.name == "model_int8.onnx"


# What can go wrong -----------------------------------------------------------------------


def test_the_package_is_only_needed_for_downloads(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependency, match="huggingface_hub") as caught:
        find_files("owner/name")
    assert caught.value.hint == "pip install 'nbrag[hub]'"


def test_an_unknown_name_gives_the_nearest(hub, home, folder):
    with pytest.raises(ModelNotFound, match="no model of that name") as caught:
        find_files("BAAI/bge-smal-en-v1.5")
    assert caught.value.hint == "did you mean 'BAAI/bge-small-en-v1.5'?"
    assert "\n" not in str(caught.value)


def test_an_unknown_revision_and_an_unknown_file(hub, home):
    with pytest.raises(ModelNotFound, match="no revision 'v9'"):
        find_files("owner/name@v9")
    with pytest.raises(ModelNotFound, match=r"no file onnx/modl\.onnx") as caught:
        find_files("owner/name", file="onnx/modl.onnx")
    assert caught.value.hint == "did you mean 'onnx/model.onnx'?"


def test_a_model_without_a_graph_says_how_to_export_it(folder, hub, home):
    shutil.rmtree(folder / "onnx")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelNotFound, match="never loaded") as caught:
        find_files("owner/name")
    assert "optimum-cli export onnx --model owner/name FOLDER" in caught.value.hint
    assert not any("pytorch_model" in path for path in hub.asked)


def test_a_model_without_a_tokenizer(folder, hub, home):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelInvalid, match="no tokenizer"):
        find_files("owner/name")


def test_no_token_in_an_error(hub, home, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("://", f"://user:{TOKEN}@"))
    hub.status = 403
    with pytest.raises(ModelNotFound) as caught:
        find_files("owner/name")
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "\n" not in str(caught.value)


def test_no_connection_is_one_line(hub, home):
    hub.close()
    with pytest.raises(ModelNotFound, match="can't be downloaded") as caught:
        find_files("owner/name")
    assert "\n" not in str(caught.value)
