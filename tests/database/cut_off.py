"""A proxy that can cut a server off: it drops all connections and accepts none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import sqlalchemy as sa

_LISTEN_S = 0.05


class CutOff:
    """Passes bytes to a server and back, unless it is cut off. Any thread may cut."""

    def __init__(self, host: str, port: int):
        self._server = (host, port)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_LISTEN_S)
        self.port = int(self._listener.getsockname()[1])
        self._is_cut = self._is_mute = self._is_over = False
        self.refused = 0
        """Connections that it did not take."""
        self._start(self._accept)

    def cut(self) -> None:
        """Drop all connections, and take none from now on."""
        self._is_cut = True
        for each in list(self._open):
            _close(each)

    def lose_answer(self) -> None:
        """Let the next request reach the server, and drop the connection instead of its answer."""
        self._is_mute = True

    def mend(self) -> None:
        """Take connections again."""
        self._is_cut = False

    def close(self) -> None:
        """End, with all connections."""
        self._is_over = True
        self.cut()
        for each in self._threads:
            each.join()
        self._listener.close()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_over:
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                client.settimeout(None)
                if self._is_cut:
                    self.refused += 1
                    client.close()
                    continue
                behind = socket.create_connection(self._server)
                self._open |= {client, behind}
                self._start(partial(self._pass, client, behind, is_answer=False))
                self._start(partial(self._pass, behind, client, is_answer=True))

    def _pass(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self._is_mute and is_answer:
                    self._is_mute = False
                    break
                target.sendall(data)
        for each in (source, target):
            self._open.discard(each)
            _close(each)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextmanager
def cut_off(url: str) -> Iterator[tuple[CutOff, str]]:
    """Yield a proxy in front of a database, and the database's URL through it."""
    behind = sa.make_url(url)
    between = CutOff(str(behind.host), int(behind.port or 5432))
    try:
        through = behind.set(host="127.0.0.1", port=between.port)
        yield between, through.render_as_string(hide_password=False)
    finally:
        between.close()
