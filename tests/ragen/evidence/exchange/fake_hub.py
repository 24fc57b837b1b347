"""Loopback server for the few Hugging Face Hub requests of a push; it records what it receives."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_REPOSITORY = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+?)(?:/(preupload|commit)/main)?(?:\?.*)?$")


@dataclass
class Repository:
    """A repository: whether it is private, and its files by path."""

    is_private: bool
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class FakeHub:
    """A hub with one token that has write access.

    Attributes:
        url: Address of the server.
        token: Token with write access.
        repositories: Repositories by kind and name, such as `models/me/mine`.
        authorisations: Authorization headers received.
    """

    url: str
    token: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    authorisations: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, authorisation: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON of the response."""
        self.authorisations.append(authorisation)
        if authorisation != f"Bearer {self.token}":
            return 401, {"error": f"the token {authorisation} is not one of ours"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        found = _REPOSITORY.match(path)
        if found is None or f"{found[1]}/{found[2]}" not in self.repositories:
            return 404, {"error": f"{method} {path}"}
        repository = self.repositories[f"{found[1]}/{found[2]}"]
        if found[3] == "preupload":
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return 200, {"files": files}
        if found[3] == "commit":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    repository.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"{self.url}/{found[2]}/commit/{'c' * 40}"
            return 200, {"success": True, "commitOid": "c" * 40, "commitUrl": url, "hookOutput": ""}
        return 200, {"id": found[2], "private": repository.is_private, "sha": "c" * 40, "tags": [], "siblings": []}

    def _create(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        kind = f"{asked.get('type', 'model')}s"
        name = f"{asked['organization']}/{asked['name']}"
        url = {"url": f"{self.url}/{'' if kind == 'models' else 'datasets/'}{name}", "name": name}
        if f"{kind}/{name}" in self.repositories:
            return 409, {**url, "error": "there already"}
        self.repositories[f"{kind}/{name}"] = Repository(asked.get("visibility") == "private")
        return 200, url


@contextmanager
def fake_hub(token: str) -> Iterator[FakeHub]:
    """Serve a hub for the duration of the block."""

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = hub.answer(self.command, self.path, self.headers.get("authorization", ""), body)
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = _respond  # noqa: N815 (names of the base class)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_port}", token)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
