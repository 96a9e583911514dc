"""What differs between PostgreSQL and SQLite, for the outbox and for engines."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import DBAPIError

from window_consumer.model.errors import UsageError

LONGEST_TRANSACTION_S: Final = 5.0
"""None of our transactions stays open longer, whatever Kafka does."""

_SQLITE_BUSY_S: Final = 10.0
_LOCK_TIMEOUT: Final = "55P03"
RETRYABLE: Final = frozenset({"40001", "40P01"})
"""PostgreSQL's codes for a serialization failure and a deadlock."""


_NOT_PREPARED: Final = frozenset({"26000", "42P05"})
"""PostgreSQL's codes for a prepared statement that does not exist, or already exists."""


class SqlDialect(Protocol):
    """A supported database."""

    @property
    def name(self) -> str:
        """Return SQLAlchemy's name for it."""

    @property
    def has_one_writer(self) -> bool:
        """Return whether only one transaction can write at a time."""

    @property
    def now(self) -> str:
        """Return SQL for the current time, in the format of stored timestamps."""

    def engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine for one of our threads; does not connect yet."""

    def blocking(self, url: sa.URL) -> sa.URL | None:
        """Return the URL for a driver of the standard library; None if there is none."""

    @property
    def has_positions(self) -> bool:
        """Whether a relay may remember its read position: it can see which writers are active."""

    def next_seq(self, table: sa.Table) -> sa.ScalarSelect[int] | None:
        """Return the next ``seq`` of the shard ``of_shard``; None with an identity column."""

    def lock(self, connection: sa.Connection, name: int, shard: int) -> bool:
        """Lock a shard until the transaction ends; return False if another relay has it.

        Also limits the transaction's duration. Raises ReadOnlyDatabaseError.
        """

    def exclusive(self, url: sa.URL) -> AbstractContextManager[bool]:
        """Yield whether this relay may run until the end of the block."""

    def check_writable(self, connection: sa.Connection, table: sa.Table) -> None:
        """Raise ReadOnlyDatabaseError if rows could be sent but not marked."""

    def missing_rights(
        self, connection: sa.Connection, table: sa.Table, rights: Sequence[str]
    ) -> list[str]:
        """Return those of the privileges, such as INSERT, that we lack on a table."""

    def identity(self, connection: sa.Connection) -> str:
        """Return a unique name of this database, whatever its address is."""

    def in_ids(self, column: sa.Column[Any], ids: list[Any]) -> sa.ColumnElement[bool]:
        """Return the condition that a row has one of these ids."""

    def notify(self, connection: sa.Connection, channel: str) -> None:
        """Notify the listeners of a channel when the transaction commits, if supported."""

    def check_listens(self, url: sa.URL) -> None:
        """Raise UsageError if nobody can listen to a channel."""

    def limit_statements(self, connection: sa.Connection) -> None:
        """Limit statements of this transaction to ``LONGEST_TRANSACTION_S``, lock waits to 1 s."""

    def read_by_index(self, connection: sa.Connection) -> None:
        """Make this transaction read rows in index order, as one with ``lock`` does.

        The planner's estimates ignore the dead rows before a position.
        """


class ReadOnlyDatabaseError(UsageError):
    """The database accepts no changes: it is a replica, or a privilege is missing."""


_READ_ONLY = (
    "the database is read-only (a replica?), or this user lacks UPDATE and DELETE on {table}: sent"
    " rows could not be marked; point outbox.database to the primary"
)


@frozen
class PostgresDialect:
    """PostgreSQL 13 and later."""

    name: str = "postgresql"
    has_one_writer: bool = False
    now: str = "now()"
    has_positions: bool = True

    def engine(self, url: sa.URL) -> sa.Engine:
        """See SqlDialect."""
        arguments: dict[str, Any] = {}
        if url.get_driver_name() == "psycopg":
            arguments = {"connect_timeout": 5}
        engine = sa.create_engine(
            url,
            pool_size=1,
            max_overflow=0,
            # Once we get another transaction's lock, its rows must be visible.
            isolation_level="READ COMMITTED",
            connect_args=arguments,
        )
        _prepare_where_possible(engine)
        return engine

    def blocking(self, url: sa.URL) -> sa.URL | None:  # noqa: ARG002 - whatever it is
        """See SqlDialect."""
        return None

    def next_seq(self, table: sa.Table) -> sa.ScalarSelect[int] | None:  # noqa: ARG002 - an identity
        """See SqlDialect."""
        return None

    def lock(self, connection: sa.Connection, name: int, shard: int) -> bool:
        """See SqlDialect."""
        bound = {"name": name, "shard": shard, "ms": str(round(LONGEST_TRANSACTION_S * 1000))}
        row = connection.execute(_LOCK, bound).one()
        if row.read_only:
            raise ReadOnlyDatabaseError(_READ_ONLY.format(table="the outbox"))
        return bool(row.locked)

    @contextmanager
    def exclusive(self, url: sa.URL) -> Iterator[bool]:  # noqa: ARG002 - shards are locked instead
        """See SqlDialect."""
        yield True

    def check_writable(self, connection: sa.Connection, table: sa.Table) -> None:
        """See SqlDialect."""
        quoted = connection.dialect.identifier_preparer.format_table(table)
        may = connection.scalar(
            sa.text(
                "SELECT current_setting('transaction_read_only') = 'off'"
                " AND has_table_privilege(:t, 'UPDATE') AND has_table_privilege(:t, 'DELETE')"
            ),
            {"t": quoted},
        )
        if not may:
            raise ReadOnlyDatabaseError(_READ_ONLY.format(table=quoted))

    def missing_rights(
        self, connection: sa.Connection, table: sa.Table, rights: Sequence[str]
    ) -> list[str]:
        """See SqlDialect."""
        quoted = connection.dialect.identifier_preparer.format_table(table)
        asked = sa.text("SELECT has_table_privilege(:t, :right)")
        return [
            right for right in rights if not connection.scalar(asked, {"t": quoted, "right": right})
        ]

    def identity(self, connection: sa.Connection) -> str:
        """See SqlDialect."""
        server = ""
        if connection.scalar(sa.text(_MAY_IDENTIFY)):
            server = connection.scalar(sa.text(_IDENTIFY))
        ours = "SELECT oid FROM pg_database WHERE datname = current_database()"
        return f"{server}/{connection.scalar(sa.text(ours))}"

    def in_ids(self, column: sa.Column[Any], ids: list[Any]) -> sa.ColumnElement[bool]:
        """See SqlDialect."""
        return column == sa.any_(sa.bindparam("ids", ids, type_=sa.ARRAY(sa.Uuid())))

    def notify(self, connection: sa.Connection, channel: str) -> None:
        """See SqlDialect."""
        connection.execute(_NOTIFY, {"channel": channel})

    def check_listens(self, url: sa.URL) -> None:
        """See SqlDialect."""
        if (driver := url.get_driver_name()) != _LISTENS:
            raise UsageError(
                f"outbox.notify needs the driver {_LISTENS}, not {driver}: write"
                f" postgresql+{_LISTENS}://..., or leave notify out"
            )

    def limit_statements(self, connection: sa.Connection) -> None:
        """See SqlDialect."""
        bound = {"ms": str(round(LONGEST_TRANSACTION_S * 1000))}
        connection.execute(_LIMIT, bound)

    def read_by_index(self, connection: sa.Connection) -> None:
        """See SqlDialect."""
        connection.execute(_BY_INDEX)


def _prepare_where_possible(engine: sa.Engine) -> None:
    """Stop preparing statements once a PgBouncer before 1.21 loses one."""
    is_lost = False

    @sa.event.listens_for(engine, "handle_error")
    def record_lost(context: sa.ExceptionContext) -> None:
        nonlocal is_lost
        is_lost = is_lost or getattr(context.original_exception, "sqlstate", None) in _NOT_PREPARED

    @sa.event.listens_for(engine, "connect")
    def set_threshold(connection: Any, _record: object) -> None:
        if is_lost:
            connection.prepare_threshold = None


# If PostgreSQL loses a mark in a crash, the row is only sent again with the same id, so the commit
# need not wait for the disk. The timeouts take the shard from a frozen process.
_LOCK: Final = sa.text(
    "SELECT set_config('synchronous_commit', 'off', true),"
    " set_config('idle_in_transaction_session_timeout', :ms, true),"
    " set_config('statement_timeout', :ms, true),"
    " set_config('lock_timeout', '1000', true),"
    " set_config('enable_sort', 'off', true),"
    " current_setting('transaction_read_only') = 'on' AS read_only,"
    " pg_try_advisory_xact_lock(:name, :shard) AS locked"
)

_LIMIT: Final = sa.text(
    "SELECT set_config('statement_timeout', :ms, true), set_config('lock_timeout', '1000', true)"
)

_BY_INDEX: Final = sa.text("SELECT set_config('enable_sort', 'off', true)")
_MAY_IDENTIFY: Final = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
_IDENTIFY: Final = "SELECT system_identifier FROM pg_control_system()"
_NOTIFY: Final = sa.text("SELECT pg_notify(:channel, '')")
_LISTENS: Final = "psycopg"
"""The driver whose connections can wait for notifications (LISTEN)."""


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
            raise ReadOnlyDatabaseError(_READ_ONLY.format(table=table.fullname))

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


def _use_wal(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


_DIALECTS: Final[dict[str, SqlDialect]] = {
    each.name: each for each in (PostgresDialect(), SqliteDialect())
}


def dialect_of(name: str) -> SqlDialect:
    """Return a supported database by SQLAlchemy's name for it; raises UsageError."""
    if name not in _DIALECTS:
        raise UsageError(f"{name} is not supported; supported are {' and '.join(_DIALECTS)}")
    return _DIALECTS[name]


def is_lock_timeout(error: DBAPIError) -> bool:
    """Return whether PostgreSQL canceled a statement that waited for another session's lock."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return code == _LOCK_TIMEOUT


def is_retryable(error: BaseException) -> bool:
    """Return whether a retry may succeed: a deadlock, a serialization failure, a busy SQLite."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return code in RETRYABLE or "database is locked" in str(error.orig)
