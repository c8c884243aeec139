"""A chat model on this machine: found, started, asked, and never left running."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

from nbrag.errors import (
    ChatError,
    ConfigurationError,
    MissingDependency,
    ModelError,
    ModelInvalid,
    ModelNotFound,
    ReplyInvalid,
)
from nbrag.models.chat import LocalChatClient, ask
from nbrag.models.chat import _local_model as local_model
from nbrag.models.chat import _local_server as local_server
from nbrag.protocols import StreamingChatClient
from nbrag.types import ChatMessage

pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

#: Reports an address and waits like the real one.
WAITING = 'import sys; print(\'{"address": "http://127.0.0.1:9"}\', flush=True); sys.stdin.read()'

#: Writes to the log before something else does.
NOISE = "import sys\nlog = sys.stderr\nprint('0.0 I loading', file=log)\n"


def running(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ends(process: int) -> bool:
    limit = time.monotonic() + 10
    while running(process) and time.monotonic() < limit:
        time.sleep(0.02)
    return not running(process)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a script in the place of the one that runs llama.cpp."""

    def put(source: str) -> None:
        path = tmp_path / "server.py"
        path.write_text(source, "utf-8")
        monkeypatch.setattr(local_server, "_SCRIPT", path)

    return put


def start() -> local_server.LocalServer:
    return local_server.LocalServer(Path("m.gguf"), context=16, threads=1)


def test_a_server_runs_until_it_is_stopped(script: Any) -> None:
    script(WAITING)
    server = start()
    assert server.address == "http://127.0.0.1:9"
    assert server.running
    assert running(server.process)
    server.stop()
    server.stop()
    assert not server.running
    assert not running(server.process)


def test_a_server_that_does_not_want_to_stop_is_killed(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(f"{WAITING}\nimport time; time.sleep(60)")
    monkeypatch.setattr(local_server, "_STOP_LIMIT", 0.2)
    server = start()
    server.stop()
    assert not running(server.process)


def test_a_server_ends_with_its_object(script: Any) -> None:
    script(WAITING)
    process = start().process
    assert ends(process)


def test_a_server_that_died_is_seen(script: Any) -> None:
    script(WAITING)
    server = start()
    os.kill(server.process, signal.SIGTERM)
    assert ends(server.process)
    assert not server.running
    server.stop()


@pytest.mark.parametrize(
    "ending", ["", "os._exit(1)", "os.kill(os.getpid(), 9)", "raise SystemExit"]
)
def test_a_server_ends_with_the_program_however_that_ends(script: Any, ending: str) -> None:
    script(WAITING)
    program = (
        "import os\nfrom pathlib import Path\nfrom nbrag.models.chat import _local_server as s\n"
        f"s._SCRIPT = {os.fspath(local_server._SCRIPT)!r}\n"
        "server = s.LocalServer(Path('m'), context=1, threads=1)\n"
        f"print(server.process, flush=True)\n{ending}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=60
    )
    assert ends(int(done.stdout))
    assert done.stderr == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_stop_its_parents_server(script: Any) -> None:
    script(WAITING)
    server = start()
    local_server._stopped(server._process, os.getpid() + 1)
    assert server.running
    server.stop()


@pytest.mark.skipif(not hasattr(os, "getsid"), reason="there are no sessions here")
def test_an_interrupt_of_the_notebook_does_not_reach_the_server(script: Any) -> None:
    script(WAITING)
    server = start()
    assert os.getsid(server.process) == server.process
    server.stop()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; os.abort()", "ended with code -6"),
        ("print('noise')", "ended with code 0"),
        ("print('{\"address', end='')", "ended with code 0"),
        ('print(\'{"error": "no luck."}\')', "m.gguf: no luck. Hint"),
        (f"{NOISE}print('0.1 E gguf_init_x: bad magic', file=log)", "m.gguf: bad magic. Hint"),
        (
            f"{NOISE}print('0.1 E load: error loading model: not whole', file=log)\nsys.exit(3)",
            "m.gguf: not whole. Hint",
        ),
        (f"{NOISE}print('0.1 E something else', file=log)", "m.gguf: something else. Hint"),
    ],
)
def test_a_server_that_fails_is_one_clear_error(script: Any, source: str, words: str) -> None:
    script(source)
    with pytest.raises(ModelInvalid) as caught:
        start()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_hangs_is_given_up(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script("import time; time.sleep(60)")
    monkeypatch.setattr(local_server, "_START_LIMIT", 0.3)
    with pytest.raises(ModelInvalid, match="ended with code"):
        start()


def test_without_llama_cpp_the_extra_is_named(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script('print(\'{"missing": "No module named xllamacpp"}\')')
    with pytest.raises(MissingDependency, match=r"pip install 'nbrag\[local\]'"):
        start()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'nbrag\[local\]'"):
        LocalChatClient()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have llama.cpp's package in place, whether it is or not."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.usefixtures("installed")
def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(ModelNotFound, match=str(path)):
            LocalChatClient(path)


@pytest.mark.usefixtures("installed")
def test_without_any_model_the_ways_to_get_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "PACKAGE", "no-such-package-as-this")
    with pytest.raises(ModelNotFound) as caught:
        LocalChatClient()
    assert "pip install 'nbrag[local]'" in caught.value.hint
    assert "local:/path/to/model.gguf" in caught.value.hint


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("option", ["context", "threads", "max_tokens", "timeout"])
def test_options_that_cant_be_used_are_refused(tmp_path: Path, option: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ConfigurationError, match=option):
        LocalChatClient(path, **{option: -1})
    with pytest.raises(ConfigurationError, match="key"):
        LocalChatClient(path, api_key="x")


@pytest.mark.usefixtures("installed")
def test_a_client_names_its_model_and_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "small model.gguf"
    path.write_bytes(b"GGUF")
    client = LocalChatClient(path, temperature=0)
    assert client.model == "local/small model"
    assert repr(client) == "LocalChatClient('small model')"
    assert client.options["temperature"] == 0
    assert client.options["file_size"] == 4
    assert isinstance(client, StreamingChatClient)
    assert client._server is None
    client.close()


def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    """Make packages that carry a model in two parts, the second one in a package of its own."""
    places = {
        "carrier": (["p1 (==1.0)", "p2>=1"], {"data/SHA256SUMS": f"{digest}  m.gguf\n"}),
        "p1": ([], {"data/m.gguf.part00": "GGUF"}),
        "p2": ([], {"data/m.gguf.part01": "rest"}),
    }
    for name, (required, files) in places.items():
        information = tmp_path / "site" / f"{name}-1.0.dist-info"
        information.mkdir(parents=True)
        lines = [f"Requires-Dist: {one}" for one in required]
        header = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines]
        (information / "METADATA").write_text("\n".join(header))
        (information / "RECORD").write_text("".join(f"{name}/{file},,\n" for file in files))
        for file, text in files.items():
            path = tmp_path / "site" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(local_model, "PACKAGE", "carrier")
    monkeypatch.setenv("NBRAG_CACHE", str(tmp_path / "cache"))


def test_a_model_in_parts_is_joined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(tmp_path, monkeypatch, hashlib.sha256(b"GGUFrest").hexdigest())
    model = local_model.find_model(None)
    assert (model.name, model.size) == ("m", 8)
    assert not (tmp_path / "cache").exists()
    file = model.file()
    assert file.read_bytes() == b"GGUFrest"
    before = file.stat()
    assert model.file().stat().st_mtime_ns == before.st_mtime_ns
    file.write_bytes(b"GGU")
    assert model.file().read_bytes() == b"GGUFrest"
    assert list(file.parent.iterdir()) == [file]


def test_parts_that_dont_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(tmp_path, monkeypatch, "0" * 64)
    with pytest.raises(ModelInvalid, match="don't make up the model"):
        local_model.find_model(None).file()
    assert not list((tmp_path / "cache").rglob("*.*"))


@pytest.mark.parametrize("listed", [True, False])
def test_a_missing_part_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    packaged(tmp_path, monkeypatch, "0" * 64)
    if not listed:
        # As some versions of importlib.metadata do.
        record = tmp_path / "site" / "p2-1.0.dist-info" / "RECORD"
        record.write_text("")
    (tmp_path / "site" / "p2" / "data" / "m.gguf.part01").unlink()
    with pytest.raises(ModelNotFound, match="without its model's files"):
        local_model.find_model(None)


def test_a_cache_that_cant_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged(tmp_path, monkeypatch, hashlib.sha256(b"GGUFrest").hexdigest())
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ModelError, match="can't be put together") as caught:
        local_model.find_model(None).file()
    assert "NBRAG_CACHE" in caught.value.hint


class Variants(BaseModel):
    variants: list[str]


ASKED = [ChatMessage("user", "Give three variants of the question: how tall is the tower?")]


@pytest.fixture(scope="module")
def local():
    """The real model over real HTTP."""
    with LocalChatClient() as client:
        yield client


@pytest.mark.model
async def test_the_real_model_answers_in_the_form_or_is_invalid(local: LocalChatClient) -> None:
    started = time.monotonic()
    try:
        answer = await ask(local, ASKED, Variants, temperature=0)
    except ReplyInvalid as error:
        outcome = error.message
    else:
        assert isinstance(answer, Variants)
        outcome = "an answer"
    assert outcome == "an answer" or outcome.startswith("local/gemma-3-270m-q4_k_m did not")
    assert time.monotonic() - started < 60


@pytest.mark.model
async def test_the_real_model_counts_and_costs_nothing(
    local: LocalChatClient, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = [ChatMessage("user", "one two three four")]
    reply = await local.complete(asked, temperature=0, max_tokens=8, stop=[])
    assert reply.input_tokens
    assert 0 < (reply.output_tokens or 0) <= 8
    assert (reply.cost, reply.model) == (0.0, "local/gemma-3-270m-q4_k_m")
    pieces = local.stream(asked, temperature=0, max_tokens=8, stop=[])
    assert "".join([piece async for piece in pieces]) == reply.text
    assert pieces.reply is not None
    assert pieces.reply.cost == 0.0
    assert capfd.readouterr() == ("", "")


@pytest.mark.model
async def test_the_real_model_refuses_what_is_too_long(local: LocalChatClient) -> None:
    with pytest.raises(ChatError, match=r"local/gemma-3-270m-q4_k_m") as caught:
        await local.complete([ChatMessage("user", "word " * 10_000)], max_tokens=1)
    assert "hosted_vllm" not in caught.value.message


@pytest.mark.model
async def test_the_real_server_is_started_again_and_stopped() -> None:
    asked = [ChatMessage("user", "one two")]
    client = LocalChatClient(context=256, max_tokens=1)
    for _ in range(2):
        await client.complete(asked)
        assert client._server is not None
        first = client._server.process
        client._server._process.kill()
        client._server._process.wait()
    await client.complete(asked)
    assert client._server.process != first
    last = client._server.process
    client.close()
    assert not running(last)


@pytest.mark.model
@pytest.mark.parametrize("size", [0, 4, 1000, 1_000_000])
async def test_a_truncated_file_is_one_clear_error(
    tmp_path: Path, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    part = next(
        Path(str(file.locate()))
        for file in metadata.files(f"{local_model.PACKAGE}-part1") or ()
        if file.name.endswith(".part00")
    )
    path = tmp_path / "cut.gguf"
    with part.open("rb") as stream:
        path.write_bytes(stream.read(size))
    started = time.monotonic()
    with pytest.raises(ModelInvalid, match=r"can't load .*cut\.gguf: \w+"):
        await LocalChatClient(path).complete(ASKED)
    assert time.monotonic() - started < 20
    assert capfd.readouterr() == ("", "")
