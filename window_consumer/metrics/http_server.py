"""A small HTTP server for a few paths, for probes and scrapers, on the standard library.

Each connection gets one answer and is closed. No client can delay another: slow ones are cut off,
and above ``MOST_AT_ONCE`` connections the oldest makes room for the next one.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.replica import TEXT, HttpAnswer

DEADLINE_S: Final = 5.0
"""The time for a request to arrive, and for an answer to be read."""

MOST_AT_ONCE: Final = 32

_ROOM_S: Final = 0.2
"""How long a connection that is cut off may take to end."""

_MEANWHILE_S: Final = 0.5

_LOG = own_logger()

Routes = Mapping[str, Callable[[], HttpAnswer]]
"""Functions that answer, by path. Called on a thread of the server."""


class _MetricsServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: Any, routes: Routes, deadline_s: float = DEADLINE_S):
        self.routes = routes
        self.deadline_s = deadline_s
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._asking: dict[socket.socket, None] = {}
        """Connections being answered, the oldest first."""
        super().__init__(address, _RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a separate thread; if there are too many, cut off the oldest."""
        if not self._free.acquire(blocking=False):
            self._cut_off_oldest()
            if not self._free.acquire(timeout=_ROOM_S):
                self.shutdown_request(request)
                return
        self._asking[request] = None
        super().process_request(request, client_address)

    def _cut_off_oldest(self) -> None:
        # A probe is answered within milliseconds, so the oldest connection is not one.
        for oldest in list(self._asking)[:1]:
            self._asking.pop(oldest, None)
            with suppress(OSError):  # it has just been answered
                oldest.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._asking.pop(request, None)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client has gone, or sent something other than HTTP."""


class _Server6(_MetricsServer):
    address_family = socket.AF_INET6


class _UnixServer(_MetricsServer):
    address_family = socket.AF_UNIX
    allow_reuse_address = False


class _RequestHandler(BaseHTTPRequestHandler):
    """One request. HTTP/1.0: the connection ends with the answer."""

    server: _MetricsServer
    server_version = "window-consumer"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.deadline_s)

    def do_GET(self) -> None:
        self._answer(with_text=True)

    def do_HEAD(self) -> None:
        self._answer(with_text=False)

    def _answer(self, *, with_text: bool) -> None:
        path = self.path.partition("?")[0]
        route = self.server.routes.get(path)
        if route is None:
            known = ", ".join(self.server.routes)
            answer = HttpAnswer(404, f"no such path; known are {known}\n")
        else:
            answer = route()
        data = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_text:
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the standard library's
        """Refuse a request without repeating any part of it."""
        self.close_connection = True
        why = HTTPStatus(code).phrase
        data = f"{why}\n".encode()
        self.send_response(code, why)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Write nothing: probes arrive every few seconds."""


class HttpServer:
    """Answers at one address until it is closed."""

    def __init__(self, server: _MetricsServer, where: str, meanwhile: Callable[[], None]):
        self._server = server
        self.where = where
        """The address, as a URL or a path."""
        self._meanwhile = meanwhile
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="wc-http", daemon=True
        )
        self._thread.start()
        # Not on the server's thread: this waits for poll threads, and probes must not.
        threading.Thread(target=self._run_meanwhile, name="wc-http-look", daemon=True).start()

    @classmethod
    def on_port(
        cls,
        host: str,
        port: int,
        routes: Routes,
        meanwhile: Callable[[], None],
        *,
        key: str,
        deadline_s: float = DEADLINE_S,
    ) -> HttpServer:
        """Listen on a TCP port, any free one for 0; ``key`` is where the address was configured.

        ``meanwhile`` is called about twice a second, on a separate thread. Raises UsageError if the
        address is not available.
        """
        kind = _Server6 if ":" in host else _MetricsServer
        try:
            server = kind((host, port), routes, deadline_s)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(
                f"{key}: cannot listen on {_joined(host, port)}: {why}; choose another address,"
                " or port 0 for any free one"
            ) from error
        return cls(server, f"http://{_joined(host, server.server_address[1])}", meanwhile)

    @classmethod
    def on_path(cls, path: Path, routes: Routes, meanwhile: Callable[[], None]) -> HttpServer:
        """Listen on a Unix socket, replacing any other listener. Raises OSError on failure."""
        path.unlink(missing_ok=True)
        return cls(_UnixServer(str(path), routes), str(path), meanwhile)

    def close(self) -> None:
        """Stop answering; may be called again."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _run_meanwhile(self) -> None:
        while not self._closed.wait(_MEANWHILE_S):
            try:
                self._meanwhile()
            except Exception as error:
                # Only a sample is missing; the next one may succeed.
                _LOG.debug(
                    "health: %s",
                    error,
                    exc_info=True,
                    extra={"event": LogEvent.HEALTH_SAMPLE_FAILED},
                )


def _joined(host: str, port: Any) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
