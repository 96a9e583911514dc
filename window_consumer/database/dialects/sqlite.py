"""The SQLite dialect: one writer at a time, and no notifications."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.dialects import sqlite

from window_consumer.database.dialects.dialect import (
    ONCE_READ_ONLY,
    READ_ONLY,
    EffectKey,
    EffectOwner,
    ReadOnlyDatabaseError,
)
from window_consumer.model.errors import UsageError

_SQLITE_BUSY_S: Final = 10.0


@frozen
class SqliteDialect:
    """SQLite in WAL mode, in a file: one relay at a time."""

    name: str = "sqlite"
    has_one_writer: bool = True
    now: str = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    has_positions: bool = False

    def engine(self, url: sa.URL) -> sa.Engine:
        """See SqlDialect."""
        if not url.database or url.database == ":memory:":
            raise UsageError("an in-memory SQLite database exists for one connection: name a file")
        engine = sa.create_engine(url, connect_args={"timeout": _SQLITE_BUSY_S})
        sa.event.listen(engine, "connect", _use_wal)
        return engine

    def blocking(self, url: sa.URL) -> sa.URL | None:
        """See SqlDialect."""
        return url.set(drivername="sqlite")

    def next_seq(self, table: sa.Table) -> sa.ScalarSelect[int] | None:
        """See SqlDialect. Writers are serialized, so it is unique within its shard."""
        highest = sa.func.coalesce(sa.func.max(table.c.seq), 0) + 1
        rows = sa.select(highest).where(
            table.c.shard == sa.bindparam("of_shard"),
            table.c.published_at.is_(None),
            table.c.status != sa.literal_column("'failed'"),
        )
        return rows.correlate(None).scalar_subquery()

    def lock(self, connection: sa.Connection, name: int, shard: int) -> bool:  # noqa: ARG002 - one relay
        """See SqlDialect."""
        return True

    @contextmanager
    def exclusive(self, url: sa.URL) -> Iterator[bool]:
        """See SqlDialect."""
        with Path(f"{url.database}.outbox-relay.lock").open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def check_writable(self, connection: sa.Connection, table: sa.Table) -> None:
        """See SqlDialect."""
        file = connection.engine.url.database or ""
        query_only = connection.scalar(sa.text("PRAGMA query_only"))
        if query_only or not os.access(file, os.W_OK):
            raise ReadOnlyDatabaseError(READ_ONLY.format(table=table.fullname))

    def missing_rights(
        self,
        connection: sa.Connection,
        table: sa.Table,  # noqa: ARG002 - a file has no rights for each table
        rights: Sequence[str],
    ) -> list[str]:
        """See SqlDialect."""
        file = connection.engine.url.database or ""
        is_writable = not file or os.access(file, os.W_OK)
        return [right for right in rights if right != "SELECT" and not is_writable]

    def identity(self, connection: sa.Connection) -> str:
        """See SqlDialect."""
        return f"{socket.gethostname()}/{Path(connection.engine.url.database or '').resolve()}"

    def in_ids(self, column: sa.Column[Any], ids: list[Any]) -> sa.ColumnElement[bool]:
        """See SqlDialect."""
        return column.in_(ids)

    def notify(self, connection: sa.Connection, channel: str) -> None:
        """See SqlDialect: SQLite cannot; not an error, as an application's tests may use it."""

    def check_listens(self, url: sa.URL) -> None:  # noqa: ARG002 - whatever it is
        """See SqlDialect."""
        raise UsageError("outbox.notify needs PostgreSQL: leave it out with SQLite")

    def limit_statements(self, connection: sa.Connection) -> None:
        """See SqlDialect: statements wait only for other writers, which busy_timeout limits."""

    def read_by_index(self, connection: sa.Connection) -> None:
        """See SqlDialect: it has no positions."""

    def insert(self, table: sa.Table) -> Any:
        """See SqlDialect."""
        return sqlite.insert(table)

    def insert_ids(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> Sequence[EffectKey]:
        """See SqlDialect."""
        before = connection.scalar(sa.text("PRAGMA busy_timeout"))
        self.limit_waits(connection, lock_timeout_s)
        statement = (
            sqlite.insert(table)
            .on_conflict_do_nothing()
            .returning(table.c.origin, table.c.record_id)
        )
        rows = [{**owner._asdict(), **key._asdict()} for key in keys]
        try:
            inserted = [
                EffectKey(each.origin, each.record_id)
                for row in rows
                for each in connection.execute(statement, row)
            ]
        finally:
            self.limit_waits(connection, int(before or 0) / 1000)
        return inserted

    def limit_waits(self, connection: sa.Connection, timeout_s: float) -> None:
        """See SqlDialect."""
        connection.execute(sa.text(f"PRAGMA busy_timeout = {round(timeout_s * 1000)}"))

    def refuse_failed(self, connection: sa.Connection) -> None:
        """See SqlDialect: a failed statement leaves the transaction as it was."""

    def delete_old(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keep_s: float,
        most: int,
    ) -> int | None:
        """See SqlDialect."""
        old = (
            sa.select(*table.primary_key)
            .where(
                table.c.group_name == owner.group_name,
                table.c.worker == owner.worker,
                table.c.done_at < sa.func.datetime("now", f"-{keep_s} seconds"),
            )
            .limit(most)
        )
        columns = sa.tuple_(*table.primary_key)
        return int(connection.execute(table.delete().where(columns.in_(old))).rowcount)

    def refuse_read_only(self, connection: sa.Connection) -> None:
        """See SqlDialect."""
        if connection.scalar(sa.text("PRAGMA query_only")):
            raise UsageError(ONCE_READ_ONLY)


def _use_wal(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
