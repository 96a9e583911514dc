"""The relay: sends the rows of the outbox and marks those that Kafka has acknowledged.

A lane is a fixed part of the shards. One transaction locks it while its rows are sent and marked,
so two relays never have rows of one key in flight. A relay that was frozen has lost its lock when
it wakes; Kafka then fences its rows, because another relay has taken over the lane's transactional
id. Rows are marked after Kafka's commit, so a crash repeats rows, with the same id, and loses none.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Self

import sqlalchemy as sa
from attrs import define, field, frozen
from sqlalchemy.exc import SQLAlchemyError

from window_consumer.database.dialects.dialect import is_retryable
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.deletion import OutboxDeletion
from window_consumer.database.outbox.held_topics import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    GrowingPause,
    HeldTopics,
)
from window_consumer.database.outbox.lane_rows import LaneRows
from window_consumer.database.outbox.lanes import LaneClaims, LaneTimes
from window_consumer.database.outbox.metrics import OutboxFigures
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.database.outbox.sender import (
    BatchResult,
    OutboxSender,
    RelayTurn,
    RowsInFlight,
)
from window_consumer.database.outbox.setup import OutboxDatabase
from window_consumer.database.outbox.store import OutboxStore
from window_consumer.database.outbox.wakeup import WakeUp
from window_consumer.kafka.writing.batch_answers import Answer
from window_consumer.kafka.writing.batch_sending import FencedError
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

SEND_S: Final = 3.5
"""How long a batch may take: including its other statements, the transaction stays below 5 s."""

_TOGETHER: Final = 2
"""Lanes of one transaction: one is read while the other is written. With more lanes, a crash would
repeat more rows."""

_OLDEST_EVERY_S: Final = 5.0
_STANDBY_S: Final = 0.5
_AGAIN_S: Final = 0.02
_LOOKS_S: Final = (0.002, 0.01, 0.04, 0.2, 1.0, 5.0)
"""Rechecks after a wake-up without rows: the announced commit may take a moment."""
_LEFT_S: Final = 0.5
"""When to check again for due rows that no relay has sent."""

_STILL_THERE: Final = sa.text("SELECT 1")
_log = own_logger()


@frozen(kw_only=True)
class RelayRules:
    """Settings of a relay."""

    poll_s: float = 0.2
    batch: int = 2_000
    keep_s: float = 0.0
    """How long published rows are kept; 0 deletes them at once."""
    on_refused: Literal["block", "skip"] = "block"
    refused_again_s: float = LONGEST_PAUSE_S
    first_pause_s: float = FIRST_PAUSE_S
    longest_pause_s: float = LONGEST_PAUSE_S
    looks_s: tuple[float, ...] = _LOOKS_S
    lanes: LaneTimes = field(factory=LaneTimes)

    @classmethod
    def of(cls, config: OutboxConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            poll_s=config.poll, batch=config.batch, keep_s=config.keep, on_refused=config.on_refused
        )


@frozen
class _LaneBatch:
    """Rows of a lane that are being sent."""

    lane: int
    rows: list[OutboxRow]
    flight: RowsInFlight


@define
class OutboxRelay:
    """Relays one table until it is stopped. Owner: the thread that calls ``run``."""

    _database: OutboxDatabase
    _sender: OutboxSender
    _rules: RelayRules
    _stop: threading.Event
    wake_up: WakeUp = field(init=False)
    _store: OutboxStore = field(init=False)
    _deletion: OutboxDeletion = field(init=False)
    _held: HeldTopics = field(init=False)
    _rows: LaneRows = field(init=False)
    _acked: list[uuid.UUID] = field(factory=list, init=False)
    """Acknowledged rows whose marking failed: they are marked before anything is sent."""
    _lanes: LaneClaims = field(init=False)
    _are_rows_left: bool = field(default=False, init=False)
    """Whether rows were due at the last check and none of them was sent."""
    _next_oldest: float = field(default=0.0, init=False)
    _sent: int = field(default=0, init=False)
    _refused: int = field(default=0, init=False)
    _oldest_s: float = field(default=0.0, init=False)
    _database_trouble: str | None = field(default=None, init=False)
    _failure: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._store = self._database.store
        self._rows = LaneRows(self._store, self._rules.batch)
        self._held = HeldTopics(self._rules.first_pause_s, self._rules.longest_pause_s)
        self._deletion = OutboxDeletion(self._store, self._rules.keep_s)
        self.wake_up = WakeUp(self._store.outbox.table.fullname)
        self._lanes = LaneClaims(self._store.outbox.shards, self._rules.lanes)

    def figures(self) -> OutboxFigures:
        """Return the relay's counts. Any thread may call."""
        return OutboxFigures(self._sent, self._refused, self._oldest_s, self._failure)

    @property
    def trouble(self) -> str | None:
        """Why rows cannot be sent or marked; None if they can. Any thread may read it."""
        return self._failure or self._database_trouble or self._held.trouble

    def run(self) -> None:
        """Relay until ``stop`` is set; ``wake_up.set`` ends its pauses."""
        pause = GrowingPause(self._rules.first_pause_s, self._rules.longest_pause_s)
        while not self._stop.is_set():
            try:
                with self._store.dialect.exclusive(self._database.engine.url) as chosen:
                    if chosen:
                        self._relay(pause)
                    else:
                        self.wake_up.wait(_STANDBY_S)
            except (SQLAlchemyError, UsageError, OSError) as error:
                if is_retryable(error):
                    self.wake_up.wait(_AGAIN_S)
                    continue
                # After a failover the old connection would lead to the wrong server.
                self._database.engine.dispose()
                self._database_trouble = reason = str(getattr(error, "orig", None) or error).strip()
                pause.extend(time.monotonic())
                _log.warning(
                    "outbox: database error, retrying in %g s: %s",
                    pause.length_s,
                    reason,
                    extra={"event": LogEvent.OUTBOX_DATABASE_FAILED},
                )
                self._wait(pause.length_s)
            except Exception as error:  # a bug: rows stay as they are and the relay restarts
                self._restart(pause, error)
        self._database.engine.dispose()  # now, instead of whenever the garbage collector runs

    def _restart(self, pause: GrowingPause, error: Exception) -> None:
        """Report an unexpected error; called within ``except``."""
        self._database.engine.dispose()
        self._failure = f"{type(error).__name__}: {error}"
        pause.extend(time.monotonic())
        _log.exception(
            "outbox: the relay failed, restarting in %g s",
            pause.length_s,
            extra={"event": LogEvent.OUTBOX_RELAY_FAILED},
        )
        self._wait(pause.length_s)

    def _relay(self, pause: GrowingPause) -> None:
        self._database.check()
        self._store.reading.clear_positions()
        with self._database.engine.connect() as connection:
            with connection.begin():
                self._lanes.name(self._store.outbox, self._store.dialect.identity(connection))
            looks = iter(self._rules.looks_s)
            while not self._stop.is_set():
                found = self.relay_due(connection)
                self._failure = None
                pause.length_s = 0.0
                if found or self.wake_up.wait(self._next_look_s(next(looks, None))):
                    looks = iter(self._rules.looks_s)

    def _next_look_s(self, after_wake_s: float | None) -> float:
        """Return when to check again if nothing wakes the relay: a poll may be long."""
        now = time.monotonic()
        times = [self._rules.poll_s, *self._held.pauses_s(now)]
        if self._are_rows_left:
            times.append(_LEFT_S)
        if after_wake_s is not None:
            times.append(after_wake_s)
        return min(times)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stop.is_set() and (left_s := deadline - time.monotonic()) > 0:
            self.wake_up.wait(min(left_s, _STANDBY_S))

    def relay_due(self, connection: sa.Connection) -> int:
        """Relay a batch of each lane with due rows; return how many rows Kafka acknowledged."""
        now = time.monotonic()
        held = self._held.names(now)
        with connection.begin():
            if self._acked:
                self._store.dialect.limit_statements(connection)
            self._mark(connection, ())
            shards = self._store.due_shards(connection, held)
            if now >= self._next_oldest:
                self._next_oldest = now + _OLDEST_EVERY_S
                self._oldest_s = self._store.oldest_s(connection)
        self._committed()
        self._deletion.run(connection, self._sent)
        self._database_trouble = None
        due = [
            (lane, own)
            for lane, own in self._lanes.due(shards, now)
            if not self._lanes.is_lost(lane) or self._may_take(connection, lane, own, held)
        ]
        sent = 0
        for first in range(0, len(due), _TOGETHER):
            if self._stop.is_set():
                break
            sent += self._relay_lanes(connection, due[first : first + _TOGETHER], held)
        self._are_rows_left = bool(shards) and not sent
        return sent

    def _may_take(
        self, connection: sa.Connection, lane: int, shards: Sequence[int], held: set[str]
    ) -> bool:
        """Return whether to take a lane back from the relay that took it over."""
        with connection.begin():
            first = self._rows.first(connection, min(shards), held)
        return self._lanes.may_take(lane, first and first.id, time.monotonic())

    def _relay_lanes(
        self, connection: sa.Connection, lanes: Iterable[tuple[int, list[int]]], held: set[str]
    ) -> int:
        """Relay a batch of each of these lanes; return how many rows Kafka acknowledged.

        While Kafka writes the rows of one lane, those of the next one are read. They share one
        transaction: if the pool is small, a second connection might wait for this one.
        """
        until = time.monotonic() + SEND_S
        with connection.begin():
            begun = [self._begin_lane(connection, *each, held) for each in lanes]
            sent = sum(self._finish_lane(connection, each, until, held) for each in begun if each)
        self._committed()
        return sent

    def _begin_lane(
        self, connection: sa.Connection, lane: int, shards: Sequence[int], held: set[str]
    ) -> _LaneBatch | None:
        """Lock a lane, read a batch of it and begin to send it; None if there is none."""
        if not self._store.dialect.lock(connection, self._store.lock_name, lane):
            return None
        rows = self._rows.read(connection, lane, shards, held)
        if not rows:
            return None
        turn = RelayTurn(
            self._lanes.transactional_id(lane), lambda: connection.execute(_STILL_THERE)
        )
        return _LaneBatch(lane, rows, self._sender.begin(rows, SEND_S, turn))

    def _finish_lane(
        self, connection: sa.Connection, batch: _LaneBatch, until: float, held: set[str]
    ) -> int:
        """Wait until Kafka has a batch and mark its rows; return how many it acknowledged."""
        try:
            answers = batch.flight.answers(max(0.0, until - time.monotonic()))
        except FencedError:
            self._lanes.lose(batch.lane, time.monotonic())
            _log.info(
                "outbox: another relay has taken over lane %d",
                batch.lane,
                extra={"event": LogEvent.OUTBOX_LANE_LOST},
            )
            return 0
        self._lanes.keep(batch.lane)
        return self._settle(connection, batch.rows, answers, held)

    def _settle(
        self,
        connection: sa.Connection,
        rows: Sequence[OutboxRow],
        answers: Sequence[Answer],
        held: set[str],
    ) -> int:
        """Mark the acknowledged prefix of each key, and record the refused rows."""
        blocks = self._rules.on_refused == "block"
        result = BatchResult.of(rows, answers, blocks=blocks)
        self._mark(connection, result.acked)
        again_s = self._rules.refused_again_s if blocks else None
        for row, why in result.refused:
            self._store.refuse(connection, row.id, why, again_s)
            _log.error(
                "outbox: Kafka refuses row %s to %s: %s",
                row.id,
                row.topic,
                why,
                extra={"event": LogEvent.OUTBOX_ROW_REFUSED},
            )
        self._refused += len(result.refused)
        topics = {row.topic for row in rows}
        self._held.record(topics - result.silent.keys(), result.silent, time.monotonic())
        held.update(result.silent)
        return len(result.acked)

    def _mark(self, connection: sa.Connection, acked: Sequence[uuid.UUID]) -> None:
        """Mark rows in the transaction, including those whose marking failed before."""
        self._acked += acked
        if not self._acked:
            return
        chosen = list(self._acked)
        self._store.mark(connection, chosen, keep=self._rules.keep_s > 0)

    def _committed(self) -> None:
        self._sent += len(self._acked)
        self._acked.clear()
