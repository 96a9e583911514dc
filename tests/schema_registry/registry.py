"""The protocol of a Schema Registry on a socket: the calls of its clients, and failures."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from attrs import define, field

Answer = tuple[int, Any]
"""A status, and a body that becomes JSON; bytes are sent unchanged."""


@define
class Registry:
    """Registers schemas and returns them. Any thread may change it."""

    broken: Answer | None = None
    """The answer to every request while it fails."""
    gate: threading.Event = field(factory=threading.Event)
    """Requests for a schema wait until it is set, as it is at the beginning."""
    login: tuple[str, str] | None = None
    schemas: dict[int, dict[str, Any]] = field(factory=dict)
    """By their ids, from 1."""
    subjects: dict[str, list[int]] = field(factory=dict)
    asked: list[str] = field(factory=list)
    """The paths of requests for a schema, in their order."""
    _server: ThreadingHTTPServer = field(init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self.gate.set()
        handler = type("Handler", (RequestHandler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: Any, authorization: str | None) -> Answer:
        """Return the answer to a request."""
        if self.login is not None:
            expected = "Basic " + b64encode(":".join(self.login).encode()).decode()
            if authorization != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = path.strip("/").split("/")
        if method == "POST":
            return self._registered(unquote(parts[1]), body)
        if parts[:2] == ["schemas", "ids"]:
            self.asked.append(path)
            self.gate.wait(60)
        return self.broken or self._found(parts)

    def _found(self, parts: list[str]) -> Answer:
        match parts:
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["schemas", "ids", number]:
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                ids = self.subjects[subject]
                about = {"subject": subject, "version": len(ids), "id": ids[-1]}
                return 200, {**self.schemas[ids[-1]], **about}
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found."}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _registered(self, subject: str, schema: dict[str, Any]) -> Answer:
        ids = self.subjects.setdefault(subject, [])
        known = next((number for number in ids if self.schemas[number] == schema), None)
        if known is None:
            known = len(self.schemas) + 1
            self.schemas[known] = schema
            ids.append(known)
        return 200, {"id": known}


class RequestHandler(BaseHTTPRequestHandler):
    """Reads requests, and writes the registry's answers."""

    registry: Registry
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together: apart, each answer takes 40 ms

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        path, authorization = urlsplit(self.path).path, self.headers["Authorization"]
        status, content = self.registry.answer(self.command, path, body, authorization)
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
