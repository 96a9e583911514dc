"""Wakes the relays of this process after a commit, so that they need not wait for their poll."""

from __future__ import annotations

import threading
from typing import Any, Final
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.orm import Session

_ADDED: Final = "wc_outbox_added"
"""The key in ``info`` of a session or connection for the tables that it added rows to."""


class WakeUp:
    """Wakes one relay. Any thread may set it; the relay's thread waits and clears."""

    def __init__(self, table: str):
        self.table = table
        self._event = threading.Event()
        _ALL.add(self)

    def set(self) -> None:
        """Wake the relay: there may be rows, or it must stop."""
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for a wake-up; return whether there was one."""
        woken = self._event.wait(timeout_s)
        if woken:  # a wake-up just after the timeout is for the next wait
            self._event.clear()
        return woken


_ALL: Final[WeakSet[WakeUp]] = WeakSet()


def wake(tables: set[str]) -> None:
    """Wake the relays of these tables in this process."""
    for each in list(_ALL):
        if each.table in tables:
            each.set()


def wake_after_commit(target: Session | sa.Connection, table: str) -> None:
    """Wake the table's relays when the transaction has been committed."""
    info: dict[Any, Any] = target.info
    info.setdefault(_ADDED, set()).add(table)
    if isinstance(target, Session):
        if not sa.event.contains(target, "after_commit", _session_committed):
            sa.event.listen(target, "after_commit", _session_committed)
    elif not sa.event.contains(target.engine, "commit", _connection_commits):
        sa.event.listen(target.engine, "commit", _connection_commits)


def _session_committed(session: Session) -> None:
    if not session.in_nested_transaction():
        wake(session.info.pop(_ADDED, set()))


def _connection_commits(connection: sa.Connection) -> None:
    # The commit itself follows: a relay that finds nothing checks again a few times.
    wake(connection.info.pop(_ADDED, set()))
