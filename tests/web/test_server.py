"""The server thread: what clients can do to it."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from window_consumer.config.sections.listening import ListenAddress
from window_consumer.web.protocol import ROOM
from window_consumer.web.server import ServerLimits, WebServer, listen_on

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Greeting:
    """Answers each request."""

    def application(self) -> ASGIApp:
        return PlainTextResponse("hello")

    def start(self) -> None:
        """Nothing to start."""

    def close(self) -> None:
        """Nothing to close."""


def status_of(client: socket.socket) -> bytes:
    """Return the status of an answer; nothing if the connection was closed."""
    try:
        client.sendall(REQUEST)
        return client.recv(4096)[9:12]
    except ConnectionError:
        return b""


def test_too_many_connections_are_refused_and_then_closed_at_once() -> None:
    with listen_on(ListenAddress("127.0.0.1", 0), "web.listen") as listening, ExitStack() as stack:
        limits = ServerLimits(connections=2)
        stack.enter_context(WebServer(Greeting(), listening, "wc-test", limits))

        def connect() -> socket.socket:
            address = listening.getsockname()
            return stack.enter_context(socket.create_connection(address, timeout=60))

        first = connect()
        assert status_of(first) == b"200"
        silent = [connect() for _ in range(ROOM)]
        assert status_of(connect()) == b"503"
        silent += [connect(), connect()]
        assert status_of(connect()) == b""
        for each in silent:
            each.close()
        while (status := status_of(connect())) != b"200":
            assert status in {b"", b"503"}
