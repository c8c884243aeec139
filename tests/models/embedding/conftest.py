"""A loopback server that speaks /v1/embeddings and fails when it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

SECRET = "sk-test-0123456789abcdef"


def vector_of(text: str, dimension: int) -> list[float]:
    """A text's own direction, of another length than 1."""
    return [float(len(text) + 1), *(float(ord(text[0]) % 7) for _ in range(dimension - 1))]


class EmbeddingServer:
    def __init__(self) -> None:
        #: What the next requests get: (status, headers), "slow", or a function of the rows.
        self.script: deque = deque()
        self.requests: list[dict] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.active = self.most_active = 0
        self.pause = 0.0
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
                    step = outer.script.popleft() if outer.script else None
                time.sleep(outer.pause)
                try:
                    outer.reply(self, body, step)
                finally:
                    with outer.lock:
                        outer.active -= 1

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def reply(self, handler, body, step) -> None:
        status, headers = 200, {}
        dimension = body.get("dimensions") or 5
        rows = [
            {"object": "embedding", "index": place, "embedding": vector_of(text, dimension)}
            for place, text in enumerate(body["input"])
        ]
        if step == "slow":
            time.sleep(1.0)
        elif isinstance(step, tuple):
            status, headers = step
        elif step is not None:
            rows = step(rows)
        answer = {
            "object": "list",
            "data": rows,
            "model": body["model"],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        if status != 200:
            message = f"it went wrong with {status} for key {SECRET}"
            answer = {"error": {"message": message, "type": "x", "code": str(status)}}
        data = json.dumps(answer).encode()
        try:
            handler.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except OSError:
            pass  # the client has given up

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    running = EmbeddingServer()
    yield running
    running.close()
