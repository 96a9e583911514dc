"""A database outage during ``once``: calls are held back, and no attempt is spent.

The meaning of a database error depends on when it occurs in a call:

* before the handler, nothing has happened: an error in inserting the id that is not caused by the
  record holds all calls until one of them succeeds;
* in the handler and at the commit, the record has caused the error, unless the connection was lost:
  then the transaction is rolled back, or committed and found by the next call. A record whose calls
  keep losing the connection may be the cause, so of two in a row only the first costs no attempt.
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
"""Most lost connections are isolated: the next call succeeds."""
LONGEST_PAUSE_S: Final = 1.0
"""A new connection each second is no load; the worker notices the end of an outage this late at
most."""
BEHIND_S: Final = 0.2
"""How long other calls wait while one call tries the database."""
TRIES_S: Final = 30.0
"""After this long without an answer another call may try: the first may have been dropped."""

_UNUSABLE: Final = ("08", "28", "3D", "3F", "53", "57P", "58", "25006", "42501", "42P01")
"""Prefixes of PostgreSQL's codes that mean, when an id is inserted, that the database is
unavailable, full or read-only (a replica after a failover), or that the table or the privilege is
missing."""

_UNUSABLE_SQLITE: Final = frozenset({8, 10, 11, 13, 14, 26})
"""SQLite's codes for a file that is read-only, unreadable, damaged, too large for its disk,
missing, or not a database."""


class DatabaseUnavailable(HoldCalls):
    """The database accepts no effects of any record; this call had none."""


class NotConnected(Exception):  # noqa: N818 - becomes DatabaseUnavailable; nothing failed
    """There is no connection to the database; ``__cause__`` has the reason."""


class CallStage(Enum):
    """How far a call has got."""

    ENTRY = "before the handler"
    HANDLER = "in the handler"
    COMMIT = "after the handler"


class DatabaseOutage:
    """The availability of one database to the calls of this process. Any slot may use it.

    While it is unavailable, one call at a time tries it and the others are given back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._why: str | None = None
        """Why it is unavailable; None while it is available."""
        self._pause_s = FIRST_PAUSE_S
        self._until = 0.0
        """When the next call may try."""
        self._trying: float | None = None
        """Since when a call has been trying."""

    @property
    def is_away(self) -> bool:
        """Return whether a call has met the outage and none has succeeded since."""
        return self._why is not None

    def enter(self) -> None:
        """Raise DatabaseUnavailable unless this call may try."""
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
        """Record that a call found it unavailable; return the error for that call."""
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
    """The records whose last call lost its connection. Any slot may use it: sets are atomic."""

    def __init__(self) -> None:
        self._lost: set[tuple[str, int, int]] = set()

    def is_first(self, records: Sequence[Record]) -> bool:
        """Record that a call of these records lost it; return whether none did the last time."""
        places = {_place(each) for each in records}
        if self._lost.isdisjoint(places):
            if len(self._lost) > _MOST_LOST:
                self._lost.clear()  # these may belong to partitions that others have now
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
    """Begin a transaction; raise NotConnected if there is no connection."""
    try:
        session.begin_effects()
    except WindowConsumerError:
        raise
    except Exception as error:
        if is_lock_timeout(error) or is_retryable(error):
            raise
        raise NotConnected(reason_of(error)) from error


def outage_of(error: BaseException, stage: CallStage, *, lost: bool) -> str | None:
    """Return why the database is unavailable; None for an error about the record.

    ``lost`` if the call's connection is lost.
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
