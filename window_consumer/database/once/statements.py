"""The statements of ``once`` for PostgreSQL and for SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from window_consumer.database.once.once_ids import EffectKey, EffectOwner
from window_consumer.database.once.postgres_ids import LOCK_TIMEOUT, insert_in_postgres
from window_consumer.model.errors import UsageError, WindowConsumerError

_IN_ERROR: Final = 3
"""libpq's status of a connection whose transaction has failed."""


class TransactionFailedError(WindowConsumerError):
    """A statement failed and the handler continued: its transaction cannot be committed."""


class OnceStatements(Protocol):
    """The statements for a supported database."""

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT that supports ON CONFLICT."""

    def insert_ids(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> Sequence[EffectKey]:
        """Insert ids; return those that the database reports as inserted."""

    def limit_waits(self, connection: sa.Connection, timeout_s: float) -> None:
        """Limit the lock waits of this transaction."""

    def refuse_failed(self, connection: sa.Connection) -> None:
        """Raise TransactionFailedError if a commit would be a rollback."""

    def delete_old(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keep_s: float,
        most: int,
    ) -> int | None:
        """Delete up to ``most`` ids older than ``keep_s``; None if another member is doing so."""

    def refuse_read_only(self, connection: sa.Connection) -> None:
        """Raise UsageError for a read-only database."""


@frozen
class PostgresStatements:
    """PostgreSQL 13 and later."""

    def insert(self, table: sa.Table) -> Any:
        """See OnceStatements."""
        return postgresql.insert(table)

    def insert_ids(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> Sequence[EffectKey]:
        """See OnceStatements."""
        return insert_in_postgres(connection, table, owner, keys, lock_timeout_s)

    def limit_waits(self, connection: sa.Connection, timeout_s: float) -> None:
        """See OnceStatements."""
        bound = {"ms": str(max(1, round(timeout_s * 1000)))}
        connection.execute(sa.text("SELECT set_config('lock_timeout', :ms, true)"), bound)

    def refuse_failed(self, connection: sa.Connection) -> None:
        """See OnceStatements: PostgreSQL answers COMMIT with ROLLBACK, and no driver raises."""
        info = getattr(connection.connection.driver_connection, "info", None)
        status = getattr(info, "transaction_status", None)
        if status is None:
            connection.execute(sa.text("SELECT 1"))  # raises
        elif status == _IN_ERROR:
            raise TransactionFailedError(
                "a statement of the handler failed, but the handler returned: let it raise, or run"
                " what may fail within session.begin_nested()"
            )

    def delete_old(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keep_s: float,
        most: int,
    ) -> int | None:
        """See OnceStatements."""
        name = connection.dialect.identifier_preparer.format_table(table)
        lock = sa.text("SELECT pg_try_advisory_xact_lock(hashtext(:name))")
        if not connection.scalar(lock, {"name": f"window-consumer cleaner of {name}"}):
            return None
        # By ctid: rows are in time order, so this needs no additional index.
        statement = sa.text(
            f"DELETE FROM {name} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {name}"  # noqa: S608 - our table
            " WHERE done_at < now() - make_interval(secs => :keep) AND group_name = :group_name"
            " AND worker = :worker LIMIT :most))"
        )
        bound = {**owner._asdict(), "keep": keep_s, "most": most}
        return int(connection.execute(statement, bound).rowcount)

    def refuse_read_only(self, connection: sa.Connection) -> None:
        """See OnceStatements."""
        if connection.scalar(sa.text("SELECT current_setting('transaction_read_only')")) == "on":
            raise UsageError(READ_ONLY)


READ_ONLY: Final = (
    "once: the database is read-only (a replica?): point the engine of Once() to the primary"
)


@frozen
class SqliteStatements:
    """SQLite in WAL mode, which serializes writing transactions."""

    def insert(self, table: sa.Table) -> Any:
        """See OnceStatements."""
        return sqlite.insert(table)

    def insert_ids(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> Sequence[EffectKey]:
        """See OnceStatements."""
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
        """See OnceStatements."""
        connection.execute(sa.text(f"PRAGMA busy_timeout = {round(timeout_s * 1000)}"))

    def refuse_failed(self, connection: sa.Connection) -> None:
        """See OnceStatements: a failed statement leaves the transaction as it was."""

    def delete_old(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keep_s: float,
        most: int,
    ) -> int | None:
        """See OnceStatements."""
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
        """See OnceStatements."""
        if connection.scalar(sa.text("PRAGMA query_only")):
            raise UsageError(READ_ONLY)


_STATEMENTS: Final[dict[str, OnceStatements]] = {
    "postgresql": PostgresStatements(),
    "sqlite": SqliteStatements(),
}


def statements_of(connection: sa.Connection) -> OnceStatements:
    """Return the statements for a connection's database."""
    return _STATEMENTS[connection.dialect.name]


def is_lock_timeout(error: BaseException) -> bool:
    """Return whether waiting for another transaction's lock timed out."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return code == LOCK_TIMEOUT or "database is locked" in str(error.orig)
