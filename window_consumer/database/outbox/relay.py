"""The relay: sends the rows of the outbox and marks what Kafka has acknowledged.

A shard at a time is locked in a transaction, which lasts while its rows are sent and marked: two
relays never have rows of one key on their way. A row is marked after its ack, so a crash repeats
rows, with the same id, and loses none.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

import sqlalchemy as sa
from attrs import define, field, frozen
from sqlalchemy.exc import SQLAlchemyError

from window_consumer.database.dialects import is_retryable
from window_consumer.database.outbox.sender import OutboxSender
from window_consumer.database.outbox.store import OutboxStore
from window_consumer.database.outbox.table import OutboxRow, hash_of
from window_consumer.database.outbox.wake import WakeUp
from window_consumer.kafka.batch_sending import Answer
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.figures.measures import OutboxFigures
from window_consumer.runtime.log import own_logger

SEND_S: Final = 4.0
"""How long a batch may take: with the statements around it a transaction stays below 5 s."""

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_BATCH_BYTES: Final = 16 * 1024 * 1024
_OLDEST_EVERY_S: Final = 5.0
_STANDBY_S: Final = 0.5
_AGAIN_S: Final = 0.02
_LOOKS_S: Final = (0.002, 0.01, 0.04)
"""After a wake-up without rows: the commit that it announced may take a moment."""

_log = own_logger()


def report_shards(shards: int) -> None:
    """Report rows of writers with another number of shards: relays cannot keep a key's order."""
    _log.error(
        "outbox: rows were written with another number of shards than outbox.shards, which is %d:"
        " while writers differ, rows of a key may be sent out of order; give each Outbox() the"
        " same number",
        shards,
        extra={"event": LogEvent.OUTBOX_SHARDS_DIFFER},
    )


@frozen(kw_only=True)
class RelayRules:
    """How a relay goes about it."""

    poll_s: float = 0.2
    batch: int = 500
    keep_s: float = 0.0
    """How long published rows stay; 0: they are deleted at once."""
    on_refused: Literal["block", "skip"] = "block"
    refused_again_s: float = LONGEST_PAUSE_S
    first_pause_s: float = FIRST_PAUSE_S
    longest_pause_s: float = LONGEST_PAUSE_S


class RelayedDatabase(Protocol):
    """Where the rows are."""

    @property
    def engine(self) -> sa.Engine:
        """Return the relay's own engine."""

    @property
    def store(self) -> OutboxStore:
        """Return its statements."""

    def check(self) -> None:
        """Raise UsageError if nothing can be relayed from it."""


class StopFlag(Protocol):
    """What ends a relay."""

    def is_set(self) -> bool:
        """Return whether it has to end."""


@define
class _Pause:
    """A wait that doubles."""

    first_s: float
    longest_s: float
    length_s: float = 0.0
    until: float = 0.0

    def extend(self, now: float) -> None:
        self.length_s = min(max(2 * self.length_s, self.first_s), self.longest_s)
        self.until = now + self.length_s


@define
class OutboxRelay:
    """Relays one table until it is stopped. Owner: the thread that calls ``run``."""

    _database: RelayedDatabase
    _sender: OutboxSender
    _rules: RelayRules
    _stop: StopFlag
    wake_up: WakeUp = field(init=False)
    _store: OutboxStore = field(init=False)
    _held: dict[str, _Pause] = field(factory=dict, init=False)
    """Topics that take nothing at the moment."""
    _acked: list[uuid.UUID] = field(factory=list, init=False)
    """Rows that Kafka has, and whose mark failed: they are marked before anything is sent."""
    _row_bytes: float = field(default=0.0, init=False)
    _next_oldest: float = field(default=0.0, init=False)
    _sent: int = field(default=0, init=False)
    _refused: int = field(default=0, init=False)
    _oldest_s: float = field(default=0.0, init=False)
    _shards_differ: bool = field(default=False, init=False)
    _kafka_trouble: str | None = field(default=None, init=False)
    _database_trouble: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._store = self._database.store
        self.wake_up = WakeUp(self._store.outbox.table.fullname)

    def figures(self) -> OutboxFigures:
        """Return what it has done. Any thread may ask."""
        return OutboxFigures(self._sent, self._refused, self._oldest_s)

    @property
    def trouble(self) -> str | None:
        """Why rows cannot be sent or marked, None while all is well. Any thread may ask."""
        return self._database_trouble or self._kafka_trouble

    def run(self) -> None:
        """Relay until ``stop`` is set; wakes up within ``wake_up.set``."""
        pause = _Pause(self._rules.first_pause_s, self._rules.longest_pause_s)
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
                    "outbox: the database fails, trying again in %g s: %s",
                    pause.length_s,
                    reason,
                    extra={"event": LogEvent.OUTBOX_DATABASE_FAILED},
                )
                self._wait(pause.length_s)

    def _relay(self, pause: _Pause) -> None:
        self._database.check()
        with self._database.engine.connect() as connection:
            looks = iter(_LOOKS_S)
            while not self._stop.is_set():
                found = self.relay_due(connection)
                pause.length_s = 0.0
                if found or self.wake_up.wait(next(looks, self._rules.poll_s)):
                    looks = iter(_LOOKS_S)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stop.is_set() and (left_s := deadline - time.monotonic()) > 0:
            self.wake_up.wait(min(left_s, _STANDBY_S))

    def relay_due(self, connection: sa.Connection) -> int:
        """Relay a batch of each shard that has rows; return how many rows Kafka has taken."""
        now = time.monotonic()
        held = {topic for topic, pause in self._held.items() if pause.until > now}
        with connection.begin():
            self._mark(connection, ())
            shards = self._store.due_shards(connection, held)
            if now >= self._next_oldest:
                self._next_oldest = now + _OLDEST_EVERY_S
                self._oldest_s = self._store.oldest_s(connection)
                if self._rules.keep_s:
                    self._store.clean(connection, self._rules.keep_s)
        self._committed()
        self._database_trouble = None
        random.shuffle(shards)  # several relays begin at different ones
        sent = 0
        for shard in shards:
            if self._stop.is_set():
                break
            sent += self.relay_shard(connection, shard, held)
        return sent

    def relay_shard(self, connection: sa.Connection, shard: int, held: set[str]) -> int:
        """Relay a batch of one shard; return how many rows Kafka has taken."""
        with connection.begin():
            if not self._store.dialect.lock(connection, self._store.lock_name, shard):
                return 0
            rows = self._store.rows(connection, shard, self._limit(), held)
            if not rows:
                return 0
            self._row_bytes = sum(row.size for row in rows) / len(rows)
            self._check_shard(rows[0], shard)
            answers = self._sender.send(rows, SEND_S)
            sent = self._settle(connection, rows, answers, held)
        self._committed()
        return sent

    def _check_shard(self, row: OutboxRow, shard: int) -> None:
        """Report, once, a writer with another number of shards; one row of a batch shows it."""
        shards = self._store.outbox.shards
        is_other = hash_of(row.topic, row.key, row.id) % shards != shard
        if is_other and not self._shards_differ:
            self._shards_differ = True
            report_shards(shards)

    def _limit(self) -> int:
        """Return how many rows to read, so that large ones do not fill the memory."""
        fitting = _BATCH_BYTES / max(self._row_bytes, 1.0)
        return max(1, min(self._rules.batch, int(fitting)))

    def _settle(
        self,
        connection: sa.Connection,
        rows: Sequence[OutboxRow],
        answers: Sequence[Answer],
        held: set[str],
    ) -> int:
        """Mark the acknowledged prefix of each key, and record what was refused."""
        if not any(answers):
            acked = [row.id for row in rows]
            self._mark(connection, acked)
            self._hold({}, {row.topic for row in rows}, held)
            return len(acked)
        acked = []
        refused: list[tuple[OutboxRow, str]] = []
        open_lanes: set[tuple[str, bytes]] = set()
        silent: dict[str, str] = {}
        for row, answer in zip(rows, answers, strict=True):
            if row.lane in open_lanes:
                continue
            if answer is None:
                acked.append(row.id)
                continue
            if answer.refused:
                refused.append((row, answer.why))
            else:
                silent[row.topic] = answer.why
            if row.lane is not None and not (answer.refused and self._rules.on_refused == "skip"):
                open_lanes.add(row.lane)
        self._mark(connection, acked)
        again_s = self._rules.refused_again_s if self._rules.on_refused == "block" else None
        for row, why in refused:
            self._store.refuse(connection, row.id, why, again_s)
            _log.error(
                "outbox: Kafka refuses row %s to %s: %s",
                row.id,
                row.topic,
                why,
                extra={"event": LogEvent.OUTBOX_ROW_REFUSED},
            )
        self._refused += len(refused)
        self._hold(silent, {row.topic for row in rows}, held)
        return len(acked)

    def _mark(self, connection: sa.Connection, acked: Sequence[uuid.UUID]) -> None:
        """Mark rows in the transaction, those first whose mark failed before."""
        self._acked += acked
        if not self._acked:
            return
        chosen = list(self._acked)
        self._store.mark(connection, chosen, keep=self._rules.keep_s > 0)

    def _committed(self) -> None:
        self._sent += len(self._acked)
        self._acked.clear()

    def _hold(self, silent: Mapping[str, str], topics: set[str], held: set[str]) -> None:
        """Leave topics alone that gave no answer, each time for longer."""
        now = time.monotonic()
        for topic in topics - silent.keys():
            self._held.pop(topic, None)
        for topic, why in silent.items():
            pause = self._held.setdefault(
                topic, _Pause(self._rules.first_pause_s, self._rules.longest_pause_s)
            )
            pause.extend(now)
            held.add(topic)
            _log.warning(
                "outbox: %s takes nothing, again in %g s: %s",
                topic,
                pause.length_s,
                why,
                extra={"event": LogEvent.OUTBOX_TOPIC_SILENT},
            )
        self._kafka_trouble = next(iter(silent.values()), None)
