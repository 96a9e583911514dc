"""What the relay and the commands ask of the table: the SQL of the outbox."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from attrs import frozen

from window_consumer.database.dialects import SqlDialect, dialect_of
from window_consumer.database.outbox.table import (
    BLOCKED,
    FAILED,
    REFUSED,
    UNPUBLISHED,
    WAITING,
    Outbox,
    OutboxRow,
    hash_of,
    headers_of,
)

_MAX_ERROR: Final = 1_000
_CLEANED_AT_ONCE: Final = 5_000
"""Rows of one statement: it stays short, and its locks few."""


@frozen
class OutboxCounts:
    """How many rows of each kind there are."""

    waiting: int
    delayed: int
    blocked: int
    failed: int
    published: int
    oldest_s: float
    """The age of the oldest row that is due; 0 without one."""


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
    """The statements. Holds no connection; each caller brings its own."""

    def __init__(self, outbox: Outbox, dialect_name: str):
        self.outbox = outbox
        self.dialect: SqlDialect = dialect_of(dialect_name)
        self._table = table = outbox.table
        self.lock_name = zlib.crc32(table.fullname.encode()) - 2**31
        now = sa.text(self.dialect.now)
        self._due = sa.or_(table.c.available_at.is_(None), table.c.available_at <= now)
        self.selection = self._select_rows()
        """The rows of a shard that are due; bound are ``shard`` and ``batch``."""

    def _select_rows(self) -> sa.Select[Any]:
        row = self._table.c
        earlier = self._table.alias("earlier")
        columns = (row.id, row.topic, row.key, row.payload, row.headers, row.partition)
        is_held_up = sa.exists().where(
            # SQLite uses the index of refused rows only for the very words of its condition.
            sa.text("earlier.status <> 'waiting' AND earlier.published_at IS NULL"),
            sa.text("earlier.status = 'blocked'"),
            earlier.c.shard == row.shard,
            earlier.c.topic == row.topic,
            earlier.c.key == row.key,
            earlier.c.seq < row.seq,
        )
        return (
            sa.select(*columns, row.timestamp)
            .where(row.shard == sa.bindparam("shard"), sa.text(UNPUBLISHED), self._due)
            .where(~is_held_up)
            .order_by(row.seq)
            .limit(sa.bindparam("batch"))
        )

    def due_shards(self, connection: sa.Connection, held: Collection[str] = ()) -> list[int]:
        """Return the shards with rows that are due; not for rows of the topics ``held``."""
        shards = self._shards()
        rows = sa.select(self._table.c.id).where(
            self._table.c.shard == shards.c.shard, sa.text(UNPUBLISHED)
        )
        if held:
            rows = rows.where(self._table.c.topic.not_in(sorted(held)))
        at_once = rows.where(self._table.c.available_at.is_(None))
        later = rows.where(self._table.c.available_at <= sa.text(self.dialect.now))
        due = sa.or_(at_once.exists(), later.exists())
        return list(connection.scalars(sa.select(shards.c.shard).where(due)))

    def _shards(self) -> Any:
        """Return a table of the shards with unpublished rows: one look into the index for each."""
        shard = self._table.c.shard
        lowest = sa.select(sa.func.min(shard).label("shard")).where(sa.text(UNPUBLISHED))
        found = lowest.cte("shards", recursive=True)
        following = (
            sa.select(sa.func.min(shard))
            .where(sa.text(UNPUBLISHED), shard > found.c.shard)
            .correlate(found)
            .scalar_subquery()
        )
        return found.union_all(sa.select(following).where(found.c.shard.is_not(None)))

    def rows(
        self, connection: sa.Connection, shard: int, batch: int, held: Collection[str] = ()
    ) -> list[OutboxRow]:
        """Return the first rows of a shard that are due, in order of ``seq``.

        Never those after a position: ``seq`` becomes visible in the order of commits.
        """
        statement = self.selection
        if held:
            statement = statement.where(self._table.c.topic.not_in(sorted(held)))
        found = connection.execute(statement, {"shard": shard, "batch": batch})
        return [
            OutboxRow(row_id, topic, key, payload, headers_of(row_id, stored), *place)
            for row_id, topic, key, payload, stored, *place in found.all()
        ]

    def hashes(self, connection: sa.Connection, most: int) -> list[tuple[int, int]]:
        """Return what decides about the shards of some unpublished rows, and their shards."""
        row = self._table.c
        some = sa.select(row.topic, row.key, row.id, row.shard).where(sa.text(UNPUBLISHED))
        found = connection.execute(some.limit(most))
        return [(hash_of(*given), shard) for *given, shard in found.all()]

    def mark(self, connection: sa.Connection, ids: Sequence[uuid.UUID], *, keep: bool) -> None:
        """Delete rows that Kafka has, or note when it got them if they are to be kept."""
        if not ids:
            return
        chosen = self.dialect.in_ids(self._table.c.id, list(ids))
        if keep:
            published = {"published_at": sa.text(self.dialect.now), "status": WAITING}
            connection.execute(self._table.update().where(chosen).values(published))
        else:
            connection.execute(self._table.delete().where(chosen))

    def refuse(
        self, connection: sa.Connection, row_id: uuid.UUID, error: str, again_s: float | None
    ) -> None:
        """Record that Kafka has refused a row.

        It is tried again after ``again_s``, and its key waits; with None it is given up.
        """
        values: dict[str, Any] = {
            "attempts": self._table.c.attempts + 1,
            "last_error": error.replace("\x00", "")[:_MAX_ERROR],
            "status": FAILED if again_s is None else BLOCKED,
        }
        if again_s is not None:
            values["available_at"] = datetime.now(UTC) + timedelta(seconds=again_s)
        connection.execute(self._table.update().where(self._table.c.id == row_id).values(values))

    def clean(self, connection: sa.Connection, keep_s: float) -> int:
        """Delete some of the rows that were published longer ago; return how many."""
        before = datetime.now(UTC) - timedelta(seconds=keep_s)
        table = self._table
        old = sa.select(table.c.id).where(table.c.published_at < before).limit(_CLEANED_AT_ONCE)
        return connection.execute(table.delete().where(table.c.id.in_(old))).rowcount

    def oldest_s(self, connection: sa.Connection) -> float:
        """Return the age of the oldest row that is due and unpublished, in seconds; 0 for none."""
        shards = self._shards()
        table = self._table
        since = sa.func.coalesce(table.c.available_at, table.c.created_at)
        first = (
            sa.select(since)
            .where(table.c.shard == shards.c.shard, sa.text(UNPUBLISHED), self._due)
            .order_by(table.c.seq)
            .limit(1)
            .correlate(shards)
            .scalar_subquery()
        )
        found = connection.scalar(
            sa.select(
                sa.func.min(sa.select(first.label("since")).select_from(shards).subquery().c.since)
            )
        )
        return _age_s(found)

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
        """Have refused rows sent again now, all or these; return how many.

        A blocked row stays so until Kafka has it: its key keeps its order.
        """
        table = self._table
        again = sa.case((table.c.status == FAILED, WAITING), else_=BLOCKED)
        values = {"available_at": None, "status": again}
        return self._change(connection, ids, sa.text(REFUSED), values)

    def skip(self, connection: sa.Connection, ids: Iterable[uuid.UUID] | None) -> int:
        """Give up blocked rows, all or these, so that their keys go on; return how many."""
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


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _age_s(since: Any) -> float:
    if since is None:
        return 0.0
    if isinstance(since, str):
        since = datetime.fromisoformat(since)
    return max(0.0, (datetime.now(UTC) - _aware(since)).total_seconds())
