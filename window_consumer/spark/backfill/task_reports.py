"""Reports of running tasks to the driver: the number of records, and the breaker's state.

Spark informs the driver only about ended tasks, perhaps half an hour after a breaker opened. So
tasks send a datagram every second. Lost ones do no harm: another follows, and if none arrives, the
progress advances chunk by chunk.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Final, Self

from attrs import field, frozen

from window_consumer.engine.guards.breaker_state import FREE, BreakerNews, BreakerState

_MOST_BYTES: Final = 8192
_MOST_TEXT: Final = 500
_MOST_REASON: Final = 3000
_MOST_PARTITIONS: Final = 20
_EVERY_S: Final = 1.0
_GIVE_UP_REPORTS: Final = 5
_LOOPBACK: Final = "127.0.0.1"
_MOST_TAKEN: Final = 10_000
"""The most datagrams read at once: strangers must not keep the driver busy."""


@frozen
class ReportAddress:
    """Where the driver receives reports."""

    host: str
    port: int
    token: str = field(repr=False)
    """Identifies a chunk: reports without it, such as from an earlier chunk, are ignored."""

    @property
    def is_here(self) -> bool:
        """Whether datagrams to the address stay on this machine."""
        return self.host == _LOOPBACK


@frozen
class TaskReport:
    """The progress of a task."""

    task: int
    attempt: int
    """Number of the attempt: Spark retries tasks that end without a result."""
    done: int
    """Records that have an outcome."""
    partitions: Sequence[int] = ()
    """Partitions of the task's records, at most twenty."""
    breaker: BreakerState = BreakerState.CLOSED
    why: str = ""
    """Why the breaker is in this state; empty if the text would cross a network."""
    gives_up: str | None = None
    """Why the task fails permanently, so that another attempt is useless; None otherwise."""

    @property
    def is_held_up(self) -> bool:
        """Whether the breaker lets almost nothing start."""
        return self.breaker not in FREE


class Mailbox:
    """The driver's end, for one chunk. Owner: the thread that watches it."""

    def __init__(self, address: ReportAddress, opened: socket.socket):
        self.address = address
        self._socket = opened
        self._latest: dict[int, TaskReport] = {}

    @classmethod
    def open(cls, host: str, bind: str | None = None) -> Self:
        """Listen there; raises OSError. ``host`` is how tasks reach this machine."""
        kind, _, _, _, place = socket.getaddrinfo(bind or host, 0, type=socket.SOCK_DGRAM)[0]
        opened = socket.socket(kind, socket.SOCK_DGRAM)
        try:
            opened.bind(place)
            opened.setblocking(False)
            address = ReportAddress(host, opened.getsockname()[1], secrets.token_hex(16))
        except OSError:
            opened.close()
            raise
        return cls(address, opened)

    def close(self) -> None:
        """Stop receiving."""
        self._socket.close()

    def reports(self) -> list[TaskReport]:
        """Return the latest report of each task, from its last attempt."""
        with suppress(OSError):
            for _ in range(_MOST_TAKEN):
                self._take(self._socket.recv(_MOST_BYTES))
        return list(self._latest.values())

    def _take(self, data: bytes) -> None:
        report = _read(data, self.address.token)
        if report is None:
            return
        before = self._latest.get(report.task)
        # Datagrams may arrive out of order.
        if before is None or (report.attempt, report.done) >= (before.attempt, before.done):
            self._latest[report.task] = report


def _read(data: bytes, token: str) -> TaskReport | None:
    try:
        received: dict[str, Any] = json.loads(data)
        if not hmac.compare_digest(str(received.pop("token")).encode(), token.encode()):
            return None
        return TaskReport(
            int(received["task"]),
            int(received["attempt"]),
            int(received["done"]),
            tuple(map(int, received["partitions"])),
            BreakerState(received["breaker"]),
            str(received["why"]),
            None if received["gives_up"] is None else str(received["gives_up"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


class Reporter:
    """A task's end. It never waits or raises. Owner: the task's own thread."""

    def __init__(self, address: ReportAddress, task: int, attempt: int):
        self._address = address
        self._task = (task, attempt)
        self._due = 0.0
        self._last: dict[str, Any] = {}
        self._socket: socket.socket | None = None
        with suppress(OSError):
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
            kind, _, _, _, place = found[0]
            self._socket = socket.socket(kind, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect(place)

    def report(
        self,
        done: int,
        partitions: Iterable[int],
        breaker: BreakerNews | None,
        *,
        at_once: bool = False,
    ) -> None:
        """Report the task's progress, at most once a second unless ``at_once``."""
        now = monotonic()
        if now < self._due and not at_once:
            return
        self._due = now + _EVERY_S
        task, attempt = self._task
        self._last = {
            "token": self._address.token,
            "task": task,
            "attempt": attempt,
            "done": done,
            "partitions": sorted(partitions)[:_MOST_PARTITIONS],
            "breaker": BreakerState.CLOSED if breaker is None else breaker.state,
            "why": breaker.why[:_MOST_TEXT] if breaker and self._address.is_here else "",
            "gives_up": None,
        }
        self._send()

    def give_up(self, why: str, without_error: str) -> None:
        """Report that the task fails permanently, and wait some seconds for the driver to end it.

        If no report arrives, Spark retries the task. Over a network, ``without_error`` is sent.
        """
        reason = (why if self._address.is_here else without_error)[:_MOST_REASON]
        self._last = {**self._last, "gives_up": reason}
        for _ in range(_GIVE_UP_REPORTS):
            self._send()
            sleep(_EVERY_S)

    def _send(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(json.dumps(self._last).encode())

    def close(self) -> None:
        """Stop sending."""
        if self._socket is not None:
            self._socket.close()
