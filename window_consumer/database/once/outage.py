"""An outage that calls of ``once`` meet: they are held back, and no attempt is spent.

What an error of the database means depends on when a call meets it:

* before the handler, nothing has happened: whatever keeps the database from taking the id, and does
  not lie in the record, holds all calls until one of them gets through;
* in the handler and at the commit, an error is the record's, unless the connection was lost: then
  the transaction is rolled back, or committed and found by the next call. A record whose calls keep
  losing the connection may be the reason for that, so only the first of two in a row is free.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from enum import Enum
from typing import Final

from sqlalchemy.exc import DBAPIError

from window_consumer.database.connection_errors import reason_of, remedy_of
from window_consumer.database.dialects.dialect import (
    is_lock_timeout,
    is_retryable,
    sqlite_code_of,
    sqlstate_of,
)
from window_consumer.database.once.session import EffectSession
from window_consumer.model.errors import HandlerSignal, HoldCalls, WindowConsumerError
from window_consumer.model.record import Record

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

FIRST_PAUSE_S: Final = 0.1
"""Most lost connections are single ones: the next call gets through."""
LONGEST_PAUSE_S: Final = 1.0
"""A new connection each second is no load, and so long an outage ends later for the worker."""
BEHIND_S: Final = 0.2
"""How long other calls wait while one tries the database."""
TRIES_S: Final = 30.0
"""After this long without an answer another call may try, too: the first may have been dropped."""

_UNUSABLE: Final = ("08", "28", "3D", "3F", "53", "57P", "58", "25006", "42501", "42P01")
"""How PostgreSQL's codes begin that say of the insertion of an id that the database is away, full,
read-only (a replica after a failover), or lacks the table or the privilege."""

_UNUSABLE_SQLITE: Final = frozenset({8, 10, 11, 13, 14, 26})
"""SQLite's codes for a file that is read-only, unreadable, damaged, too large for its disk, gone,
or something else."""


class DatabaseUnavailable(HoldCalls):
    """The database takes no effects, whatever the record; there was none of this call."""


class NotConnected(Exception):  # noqa: N818 - becomes DatabaseUnavailable; nothing failed
    """There is no connection to the database; its cause says why."""


class CallStage(Enum):
    """How far a call has come."""

    ENTRY = "before the handler"
    HANDLER = "in the handler"
    COMMIT = "after the handler"


class DatabaseOutage:
    """What the calls of this process know of one database. Any slot may call.

    While it is away, one call at a time tries it, and the others are given back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._why: str | None = None
        """Why it is away; None while it is not."""
        self._pause_s = FIRST_PAUSE_S
        self._until = 0.0
        """When the next call may try."""
        self._trying: float | None = None
        """Since when one tries."""

    @property
    def is_away(self) -> bool:
        """Return whether a call has met the outage, and none has got through since."""
        return self._why is not None

    def enter(self) -> None:
        """Raise DatabaseUnavailable, unless the call that asks may try."""
        if not self.is_away:
            return
        with self._lock:
            why, now = self._why, time.monotonic()
            if why is None:
                return
            left_s = self._until - now
            if left_s <= 0:
                tries_s = TRIES_S if self._trying is None else now - self._trying
                if tries_s >= TRIES_S:
                    self._trying = now
                    return
                left_s = BEHIND_S if tries_s < LONGEST_PAUSE_S else LONGEST_PAUSE_S
        raise DatabaseUnavailable(left_s, why)

    def met(self, why: str, began: float) -> DatabaseUnavailable:
        """Record that a call found it away; return what that call raises."""
        with self._lock:
            now = time.monotonic()
            if self._why is None:
                self._pause_s = FIRST_PAUSE_S
            elif began >= self._until:
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            if self._why is None or began >= self._until:
                self._until, self._trying = now + self._pause_s, None
            self._why = why
            return DatabaseUnavailable(max(self._until - now, FIRST_PAUSE_S), why)

    def over(self) -> None:
        """Record that the database has answered a call."""
        if self.is_away:
            with self._lock:
                self._why = self._trying = None


class LostCalls:
    """The records whose last call lost its connection. Any slot may call: sets are atomic."""

    def __init__(self) -> None:
        self._lost: set[tuple[str, int, int]] = set()

    def is_first(self, records: Sequence[Record]) -> bool:
        """Record that a call of these records lost it; return whether none did so the last time."""
        places = {_place(each) for each in records}
        if self._lost.isdisjoint(places):
            if len(self._lost) > _MOST_LOST:
                self._lost.clear()  # of partitions that others have now
            self._lost |= places
            return True
        self._lost -= places
        return False

    def over(self, records: Sequence[Record]) -> None:
        """Record that a call of these records did not lose it."""
        if self._lost:
            self._lost.difference_update(map(_place, records))


_MOST_LOST: Final = 100_000


def begin(session: EffectSession) -> None:
    """Begin a transaction; raises NotConnected if the database gives no connection."""
    try:
        session.begin_effects()
    except WindowConsumerError:
        raise
    except Exception as error:
        if is_lock_timeout(error) or is_retryable(error):
            raise
        raise NotConnected(reason_of(error)) from error


def outage_of(error: BaseException, stage: CallStage, *, lost: bool) -> str | None:
    """Return why the database is away; None for an error that says something of the record.

    ``lost`` if the connection of the call is.
    """
    if not isinstance(error, Exception):
        return None  # the call is cancelled, which closes its connection
    if stage is CallStage.ENTRY:
        met = isinstance(error, NotConnected) or lost or _is_unusable(error)
    else:
        met = lost and not isinstance(error, HandlerSignal)
    if not met:
        return None
    cause = error.__cause__ if isinstance(error, NotConnected) else error
    assert cause is not None
    remedy = remedy_of(cause)
    why = " ".join(reason_of(cause).split()) or type(cause).__name__
    return why if remedy is None else f"{why}: {remedy}"


def _is_unusable(error: BaseException) -> bool:
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    code, state = sqlite_code_of(error), sqlstate_of(error)
    if code is not None:
        return code & 0xFF in _UNUSABLE_SQLITE or "no such table" in str(error)
    return state is not None and state.startswith(_UNUSABLE)


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
