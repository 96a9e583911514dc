"""A proxy of a broker that can report, for a while, that the cluster has no brokers, and hang up.

It can also keep records back, as a broker does whose disk hangs.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_HOST: Final = b"127.0.0.1"
_PRODUCE: Final = 0
_METADATA: Final = 3
_LEADER_NOT_AVAILABLE: Final = 5
_NO_RIGHTS_ASKED: Final = -(2**31)


class FencedBroker:
    """Stands before one broker and puts its own address into the broker's answers.

    While ``is_fenced``, it answers questions for metadata itself: no brokers, one topic without
    partitions; and ends the connection. So does a broker that is alone while it stops.
    """

    def __init__(self, bootstrap: str, topic: str):
        self._broker = int(bootstrap.rsplit(":", 1)[1])
        self._topic = topic.encode()
        self._listener = socket.create_server((_HOST.decode(), 0))
        self._port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.takes_records = threading.Event()
        """Unless it is set, requests that carry records are held."""
        self.takes_records.set()
        self.is_fenced = False
        self.answers = 0
        """How many answers said that there are no brokers."""

    @property
    def bootstrap(self) -> str:
        return f"{_HOST.decode()}:{self._port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        self.takes_records.set()
        _hang_up(self._listener, *self._ends)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, work: Callable[..., None], *ends: socket.socket) -> None:
        thread = threading.Thread(target=work, args=ends, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is shut down at the end
            while True:
                client, _ = self._listener.accept()
                self._ends.append(client)
                broker = socket.create_connection((_HOST.decode(), self._broker))
                self._ends.append(broker)
                self._start(self._ask, client, broker)
                self._start(self._answer, client, broker)

    def _ask(self, client: socket.socket, broker: socket.socket) -> None:
        """Pass requests on, from one side."""
        with suppress(OSError, EOFError):
            while True:
                request = _frame(client)
                kind, version, number = struct.unpack(">hhi", request[:8])
                if kind == _METADATA and self.is_fenced:
                    self.answers += 1
                    _send(client, self._nobody(version, number))
                    break
                if kind == _PRODUCE:
                    self.takes_records.wait()
                _send(broker, request)
        _hang_up(client, broker)

    def _answer(self, client: socket.socket, broker: socket.socket) -> None:
        """Pass answers back, with this address instead of the broker's."""
        theirs, ours = (_HOST + struct.pack(">i", port) for port in (self._broker, self._port))
        with suppress(OSError, EOFError):
            while True:
                _send(client, _frame(broker).replace(theirs, ours))
        _hang_up(client, broker)

    def _nobody(self, version: int, number: int) -> bytes:
        """Return an answer of version 9 or later, see Kafka's MetadataResponse.json."""
        topic = struct.pack(">hB", _LEADER_NOT_AVAILABLE, len(self._topic) + 1) + self._topic
        topic += bytes(16) if version >= 10 else b""  # its id
        topic += struct.pack(">?Bi", False, 1, _NO_RIGHTS_ASKED) + b"\0"
        answer = struct.pack(">iBi", number, 0, 0)  # no tags, not throttled
        answer += struct.pack(">BBi", 1, 0, -1)  # no brokers, no cluster id, no controller
        answer += struct.pack(">B", 2) + topic
        if version in {9, 10}:
            answer += struct.pack(">i", _NO_RIGHTS_ASKED)
        if version >= 13:
            answer += struct.pack(">h", 0)
        return answer + b"\0"


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _frame(end: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(end, 4))
    return _exactly(end, length)


def _exactly(end: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = end.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _send(end: socket.socket, frame: bytes) -> None:
    end.sendall(struct.pack(">i", len(frame)) + frame)
