"""A token server on loopback: a test sets its answers and reads its requests."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import define, field, frozen

DEADLINE_S = 60.0


@frozen
class TokenRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By their names in lower case."""
    form: Mapping[str, str]

    @property
    def credentials(self) -> str:
        """The credentials of Basic authorization."""
        return base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode()


Answer = tuple[int, Any]
"""Status, and a body that becomes JSON; bytes stay unchanged."""


@define
class TokenServer:
    """Answers each request with ``answer``, which any thread may replace."""

    url: str
    answer: Callable[[TokenRequest], Answer]
    requests: list[TokenRequest] = field(factory=list)
    news: threading.Condition = field(factory=threading.Condition)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://").rpartition("/")[0]

    def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` have come."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.requests) >= count, DEADLINE_S)

    def wait_for_more(self, count: int) -> None:
        """Wait for ``count`` more."""
        self.wait_for_requests(len(self.requests) + count)


def unsigned(user: str, lifetime_s: float) -> str:
    """Return a token that a test broker believes."""
    now = time.time()
    parts = [{"alg": "none"}, {"sub": user, "iat": now - 1, "exp": now + lifetime_s}]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*texts, b""]).decode()


def granting(user: str = "admin", lifetime_s: float = 600.0) -> Callable[[TokenRequest], Answer]:
    """Return a server's answer with a token for a user."""

    def answer(_: TokenRequest) -> Answer:
        token = unsigned(user, lifetime_s)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s}

    return answer


def refusing(status: int = 401, **answer: str) -> Callable[[TokenRequest], Answer]:
    """Return a server's refusal."""
    return lambda _: (status, answer)


@contextmanager
def serving(answer: Callable[[TokenRequest], Answer]) -> Iterator[TokenServer]:
    """Run a token server on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    tokens = TokenServer(f"http://127.0.0.1:{server.server_address[1]}/token", answer)
    server.tokens = tokens  # type: ignore[attr-defined] # what its handlers share
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield tokens
    finally:
        server.shutdown()
        server.server_close()
        thread.join(DEADLINE_S)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        tokens: TokenServer = self.server.tokens  # type: ignore[attr-defined] # see serving
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        form = dict(parse_qsl(body.decode()))
        request = TokenRequest(self.command, url.path, dict(parse_qsl(url.query)), headers, form)
        with tokens.news:
            tokens.requests.append(request)
            tokens.news.notify_all()
        status, said = tokens.answer(request)
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status in {301, 302, 307}:
            self.send_header("Location", str(tokens.url.replace("/token", "/elsewhere")))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass
