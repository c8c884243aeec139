"""A loopback server that speaks the hub's file endpoints, and can stand still in the middle."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "c0ffee" + "0" * 34
_INFO = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/revision/([^/?]+))?(?:\?.*)?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class HubServer:
    """A hub of models in folders.

    Parameters
    ----------
    models
        Folders by ``owner/name``.
    """

    def __init__(self, models: dict[str, Path]) -> None:
        self.models = models
        self.asked: list[str] = []
        self.ranges: list[str] = []
        self.tokens: list[str] = []
        #: Bytes after which a file's answer stands still, by its path; each once.
        self.stall_after: dict[str, int] = {}
        self.stalled = threading.Event()
        self.go_on = threading.Event()
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                outer.answer(self, body=True)

            def do_HEAD(self):
                outer.answer(self, body=False)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, *, body: bool) -> None:
        self.asked.append(f"{handler.command} {handler.path}")
        self.tokens.append(handler.headers.get("Authorization", ""))
        if self.status != 200:
            return self.send(handler, self.status, {"X-Error-Message": "it went wrong"}, b"", body)
        path = unquote(handler.path)
        if found := _INFO.fullmatch(path):
            return self.send_info(handler, *found.groups(), body)
        if found := _FILE.fullmatch(path):
            return self.send_file(handler, *found.groups(), body)
        return self.send(handler, 404, {}, b"", body)

    def send_info(self, handler, name, revision, body) -> None:
        if name not in self.models:
            return self.send(handler, 401, {"X-Error-Code": "RepoNotFound"}, b"", body)
        if revision not in (None, "main", "v2", COMMIT):
            return self.send(handler, 404, {"X-Error-Code": "RevisionNotFound"}, b"", body)
        root = self.models[name]
        files = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
        info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
        content = json.dumps(info).encode()
        return self.send(handler, 200, {"Content-Type": "application/json"}, content, body)

    def send_file(self, handler, name, _revision, file, body) -> None:
        headers = {"X-Repo-Commit": COMMIT}
        path = self.models[name] / file
        if not path.is_file():
            headers["X-Error-Code"] = "EntryNotFound"
            return self.send(handler, 404, headers, b"", body)
        content = path.read_bytes()
        headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()}"'
        headers["Accept-Ranges"] = "bytes"
        status = 200
        if (wanted := handler.headers.get("Range")) and body:
            self.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content, status = content[start:], 206
        stop = self.stall_after.pop(file, None) if body else None
        return self.send(handler, status, headers, content, body, stop)

    def send(self, handler, status, headers, content, body, stop=None) -> None:  # noqa: PLR0917
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if body:
            handler.wfile.write(content[:stop])
        if stop is not None:
            handler.wfile.flush()
            self.stalled.set()
            self.go_on.wait(20)
            handler.close_connection = True
