"""A loopback server that speaks /v1/chat/completions and misbehaves when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

SECRET = "sk-test-0123456789abcdef"


@dataclass
class Answer:
    """What one request gets; ``pause`` is in seconds, ``cut`` drops the connection half-way."""

    text: str | None = "fine"
    status: int = 200
    headers: dict = field(default_factory=dict)
    error: str = ""
    pause: float = 0.0
    cut: bool = False
    usage: bool = True
    raw: bytes | None = None
    finish: str = "stop"
    message: dict = field(default_factory=dict)


class ChatServer:
    def __init__(self) -> None:
        #: What the next requests get: an Answer, or a function of the request that gives one.
        self.script: deque = deque()
        #: What all others get.
        self.otherwise = lambda request: Answer(f"echo: {request['messages'][-1]['content']}")
        self.requests: list[dict] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.active = self.most_active = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.requests.append(body)
                    outer.keys.append(self.headers.get("Authorization", ""))
                    outer.times.append(time.monotonic())
                    outer.active += 1
                    outer.most_active = max(outer.most_active, outer.active)
                    step = outer.script.popleft() if outer.script else outer.otherwise
                try:
                    outer.reply(self, body, step if isinstance(step, Answer) else step(body))
                except OSError:
                    self.close_connection = True  # the client has given up
                finally:
                    with outer.lock:
                        outer.active -= 1

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def reply(self, handler, body, answer: Answer) -> None:
        time.sleep(answer.pause)
        if body.get("stream") and answer.status == 200:
            self.stream(handler, body, answer)
            return
        data = answer.raw or json.dumps(self.words(body, answer)).encode()
        handler.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2] if answer.cut else data)
        handler.close_connection = handler.close_connection or answer.cut

    def words(self, body, answer: Answer) -> dict:
        if answer.status != 200:
            message = answer.error or f"it went wrong with {answer.status} for key {SECRET}"
            return {"error": {"message": message, "type": "x", "code": str(answer.status)}}
        message = {"role": "assistant", "content": answer.text, **answer.message}
        choice = {"index": 0, "finish_reason": answer.finish, "message": message}
        reply = {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
        }
        if answer.usage:
            reply["usage"] = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return reply

    def stream(self, handler, body, answer: Answer) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        head = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1}
        pieces = (answer.text or "").split(" ")
        for place, piece in enumerate(pieces):
            if answer.cut and place == len(pieces) // 2:
                handler.close_connection = True
                return
            delta = {"role": "assistant", "content": piece if place == 0 else f" {piece}"}
            self.event(handler, head, body, [{"index": 0, "delta": delta}])
        self.event(handler, head, body, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if body.get("stream_options"):
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            self.event(handler, head | {"usage": usage}, body, [])
        self.send(handler, b"data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    def event(self, handler, head, body, choices) -> None:
        event = head | {"model": body["model"], "choices": choices}
        self.send(handler, f"data: {json.dumps(event)}\n\n".encode())

    def send(self, handler, data: bytes) -> None:
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        handler.wfile.flush()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    running = ChatServer()
    yield running
    running.close()


@pytest.fixture
def answer():
    """The class of a server's answers: conftest files can't be imported by name."""
    return Answer


@pytest.fixture
def delayed_server(monkeypatch):
    """A server in another process that answers after 200 ms; ``calls()`` says how many it got."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    script = Path(__file__).with_name("delayed_server.py")
    with subprocess.Popen(
        [sys.executable, str(script), "0.2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"

        def calls() -> int:
            with urllib.request.urlopen(url) as reply:
                return json.load(reply)["calls"]

        yield SimpleNamespace(url=url, calls=calls)
        process.stdin.close()
        process.wait(10)
