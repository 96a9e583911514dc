"""The single writer of SQLite: which call holds the lock that others wait for.

A call with ``once`` writes its id first, so it holds the lock until it returns. SQLite reports
neither holders nor waiters, so this covers only the calls of this process.
"""

from __future__ import annotations

import time
from typing import Final

from attrs import define

from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Record
from window_consumer.runtime.log import own_logger

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

WAITED_S: Final = 1.0
"""A call that holds the lock for this long is logged if other calls wait for it."""
LONG_S: Final = 4.0
"""The same if no call waits: other programs may wait, and Python's sqlite3 gives up after 5 s."""
QUIET_S: Final = 10.0
"""The interval of these log lines."""

_log = own_logger()


@define(eq=False)
class WriterTurn:
    """A call that waits for the lock or holds it."""

    worker: str
    record: Record
    """The call's first record."""
    record_id: str
    since: float | None = None
    """When it got the lock."""

    def take(self) -> None:
        """Record that the call has the lock."""
        self.since = time.monotonic()


class WriterTurns:
    """The calls of one ``Once`` that write or wait. Any slot may use it; one thread checks it.

    The set's operations are atomic.
    """

    def __init__(self) -> None:
        self._turns: set[WriterTurn] = set()
        self._logged_at = float("-inf")

    def wait(self, worker: str, record: Record, record_id: str) -> WriterTurn:
        """Record that a call waits for the lock."""
        turn = WriterTurn(worker, record, record_id)
        self._turns.add(turn)
        return turn

    def over(self, turn: WriterTurn) -> None:
        """Remove a call that has ended."""
        self._turns.discard(turn)

    def holder(self) -> str:
        """Return the holder of the lock, as text."""
        now = time.monotonic()
        for each in self._turns.copy():
            if each.since is not None:
                return f"{_named(each)} has held SQLite's write lock for {now - each.since:.1f} s"
        return "another program, or another worker, holds SQLite's write lock"

    def check(self) -> None:
        """Log which call holds the lock, if others wait for it. Owner: one thread."""
        now = time.monotonic()
        turns = self._turns.copy()
        holding = [(each, each.since) for each in turns if each.since is not None]
        if not holding or now - self._logged_at < QUIET_S:
            return
        turn, since = min(holding, key=lambda each: each[1])
        held_s, waiting = now - since, len(turns) - len(holding)
        if held_s < (WAITED_S if waiting else LONG_S):
            return
        self._logged_at = now
        _log.warning(
            "%s: once: %s has held SQLite's write lock for %.1f s; %d calls of this process are"
            " waiting, and writes of other programs fail after their timeout (database is locked)",
            turn.worker,
            _named(turn),
            held_s,
            waiting,
            extra={
                "event": LogEvent.ONCE_HOLDS_LOCK,
                "worker": turn.worker,
                "topic": turn.record.topic,
                "partition": turn.record.partition,
                "offset": turn.record.offset,
                "id": turn.record_id,
                "held_s": round(held_s, 3),
                "waiting": waiting,
            },
        )

    def last_check(self) -> None:
        """Do nothing: the calls end with their worker."""


def _named(turn: WriterTurn) -> str:
    record = turn.record
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    return f"the call for {place} with the id {turn.record_id}"
