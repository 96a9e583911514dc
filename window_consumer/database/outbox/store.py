"""The SQL of the outbox, for the relay and the commands."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from attrs import frozen

from window_consumer.database.dialects import dialect_of
from window_consumer.database.dialects.dialect import SqlDialect
from window_consumer.database.outbox.locked_rows import LockedRows
from window_consumer.database.outbox.reading import OutboxReading
from window_consumer.database.outbox.row import OutboxRow, fault_of, hash_of, headers_of
from window_consumer.database.outbox.table import (
    BLOCKED,
    FAILED,
    PUBLISHED,
    REFUSED,
    UNPUBLISHED,
    WAITING,
    Outbox,
)

_MAX_ERROR: Final = 1_000


@frozen
class OutboxCounts:
    """The number of rows of each kind."""

    waiting: int
    delayed: int
    blocked: int
    failed: int
    published: int
    oldest_s: float
    """The age of the oldest due row; 0 if there is none."""


@frozen
class RefusedRow:
    """A row that Kafka has refused."""

    id: uuid.UUID
    topic: str
    key: bytes | None
    status: str
    attempts: int
    created_at: datetime
    last_error: str


class OutboxStore:
    """The statements. It holds no connection; each caller passes its own."""

    def __init__(self, outbox: Outbox, dialect_name: str):
        self.outbox = outbox
        self.dialect: SqlDialect = dialect_of(dialect_name)
        self._table = table = outbox.table
        self.lock_name = zlib.crc32(table.fullname.encode()) - 2**31
        self._locked = LockedRows(table, self.dialect)
        self.reading = OutboxReading(outbox, self.dialect)
        self._due = self.reading.due

    def due_shards(self, connection: sa.Connection, held: Collection[str] = ()) -> list[int]:
        """Return the shards with due rows, ignoring rows of the topics ``held``."""
        return self.reading.due_shards(connection, held)

    def rows(
        self, connection: sa.Connection, shard: int, batch: int, held: Collection[str] = ()
    ) -> list[OutboxRow]:
        """Return the first due rows of a shard, in order of ``seq``.

        After a row was found locked by another session, leaves out rows that are locked or wait
        for a locked row of their key.
        """
        found = self.reading.rows(connection, shard, batch, held)
        rows = [_row_of(*each[:-1]) for each in found]
        return self._locked.without(connection, rows) if self._locked.are_expected else rows

    def hashes(self, connection: sa.Connection, most: int) -> list[tuple[int, int]]:
        """Return the hashes and the shards of some unpublished rows."""
        row = self._table.c
        some = sa.select(row.topic, row.key, row.id, row.shard).where(sa.text(UNPUBLISHED))
        found = connection.execute(some.limit(most))
        return [(hash_of(*given), shard) for *given, shard in found.all()]

    def mark(self, connection: sa.Connection, ids: Sequence[uuid.UUID], *, keep: bool) -> None:
        """Delete rows that Kafka has, or set their ``published_at`` if they are kept.

        Rows that another session has locked may be left out; they are sent again.
        """
        if not ids:
            return
        if self._locked.are_expected:
            ids = self._locked.markable(connection, ids)
        chosen = self.dialect.in_ids(self._table.c.id, list(ids))
        published = {"published_at": sa.text(self.dialect.now), "status": WAITING}
        with self._locked.noticed():
            if keep:
                connection.execute(self._table.update().where(chosen).values(published))
            else:
                connection.execute(self._table.delete().where(chosen))

    def refuse(
        self, connection: sa.Connection, row_id: uuid.UUID, error: str, again_s: float | None
    ) -> None:
        """Record that Kafka has refused a row.

        It is retried after ``again_s``, and its key waits; with None it is given up.
        """
        values: dict[str, Any] = {
            "attempts": self._table.c.attempts + 1,
            "last_error": error.replace("\x00", "")[:_MAX_ERROR],
            "status": FAILED if again_s is None else BLOCKED,
        }
        if again_s is not None:
            values["available_at"] = datetime.now(UTC) + timedelta(seconds=again_s)
        statement = self._table.update().where(self._table.c.id == row_id).values(values)
        with self._locked.noticed():
            connection.execute(statement)

    def clean(self, connection: sa.Connection, keep_s: float, most: int) -> int:
        """Delete up to ``most`` rows published more than ``keep_s`` ago, the oldest first.

        Returns how many. Skips rows that another transaction has locked.
        """
        before = datetime.now(UTC) - timedelta(seconds=keep_s)
        table = self._table
        old = (
            sa.select(table.c.id)
            .where(sa.text(PUBLISHED), table.c.published_at < before)
            .order_by(table.c.published_at)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        return connection.execute(table.delete().where(table.c.id.in_(old))).rowcount

    def oldest_s(self, connection: sa.Connection) -> float:
        """Return the age of the oldest due, unpublished row, in seconds; 0 if there is none."""
        return _age_s(self.reading.oldest_since(connection))

    def counts(self, connection: sa.Connection) -> OutboxCounts:
        """Count the rows; reads the whole table."""
        table = self._table
        unpublished = table.c.published_at.is_(None)
        is_waiting = sa.and_(unpublished, table.c.status == WAITING)
        found = connection.execute(
            sa.select(
                sa.func.count().filter(is_waiting, self._due),
                sa.func.count().filter(is_waiting, sa.not_(self._due)),
                sa.func.count().filter(unpublished, table.c.status == BLOCKED),
                sa.func.count().filter(unpublished, table.c.status == FAILED),
                sa.func.count().filter(table.c.published_at.is_not(None)),
            )
        ).one()
        return OutboxCounts(*found, self.oldest_s(connection))

    def refused(self, connection: sa.Connection, limit: int) -> list[RefusedRow]:
        """Return rows that Kafka has refused, the earliest first."""
        row = self._table.c
        columns = (row.id, row.topic, row.key, row.status, row.attempts, row.created_at)
        found = connection.execute(
            sa.select(*columns, row.last_error)
            .where(sa.text(REFUSED))
            .order_by(row.seq)
            .limit(limit)
        )
        return [RefusedRow(*each[:5], _aware(each[5]), each[6] or "") for each in found]

    def retry(self, connection: sa.Connection, ids: Iterable[uuid.UUID] | None) -> int:
        """Schedule refused rows for sending now, all or these; return how many.

        A blocked row stays blocked until Kafka has it, so that its key stays in order.
        """
        table = self._table
        again = sa.case((table.c.status == FAILED, WAITING), else_=BLOCKED)
        # With a time, relays find the row even before their read position.
        values = {"available_at": sa.text(self.dialect.now), "status": again}
        return self._change(connection, ids, sa.text(REFUSED), values)

    def skip(self, connection: sa.Connection, ids: Iterable[uuid.UUID] | None) -> int:
        """Give up blocked rows, all or these, to unblock their keys; return how many."""
        blocked = sa.and_(self._table.c.status == BLOCKED, self._table.c.published_at.is_(None))
        return self._change(connection, ids, blocked, {"status": FAILED})

    def _change(
        self,
        connection: sa.Connection,
        ids: Iterable[uuid.UUID] | None,
        which: Any,
        values: dict[str, Any],
    ) -> int:
        statement = self._table.update().where(which).values(values)
        if ids is not None:
            statement = statement.where(self.dialect.in_ids(self._table.c.id, list(ids)))
        return connection.execute(statement).rowcount


def _row_of(  # noqa: PLR0913 - a row has that many columns
    row_id: uuid.UUID,
    topic: str,
    key: bytes | None,
    payload: bytes | None,
    stored: str | None,
    partition: int | None,
    timestamp: int | None,
) -> OutboxRow:
    headers: list[tuple[str, bytes | None]] = []
    fault = fault_of(topic, key, payload, partition, timestamp)
    if fault is None:
        try:
            headers = headers_of(row_id, stored)
        except (ValueError, RecursionError) as error:
            fault = f"headers: {error}"
    else:
        key = key if isinstance(key, bytes) else None
        payload = payload if isinstance(payload, bytes) else None
    return OutboxRow(row_id, topic, key, payload, headers, partition, timestamp, fault)


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _age_s(since: Any) -> float:
    if since is None:
        return 0.0
    if isinstance(since, str):
        since = datetime.fromisoformat(since)
    return max(0.0, (datetime.now(UTC) - _aware(since)).total_seconds())
