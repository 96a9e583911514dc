"""What ``once`` says to PostgreSQL, and what to SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from window_consumer.database.dialects import RETRYABLE
from window_consumer.model.errors import UsageError, WindowConsumerError

_LOCK_TIMEOUT: Final = "55P03"
_IDLE: Final = 0
_IN_ERROR: Final = 3
"""libpq's status of a connection without a transaction, and with one that has failed."""
_HAS_ROWS: Final = 2
"""libpq's status of a result with rows."""
_SQLSTATE: Final = ord("C")
"""libpq's number of the field with an error's code."""


class EffectKey(NamedTuple):
    """What an effect is known by within a worker of a group."""

    origin: str
    """The first topic, with the hash of its id: a recreated topic has other records."""
    record_id: str


class EffectOwner(NamedTuple):
    """Whose effects they are."""

    group_name: str
    worker: str


class TransactionFailedError(WindowConsumerError):
    """A statement failed and the handler went on: nothing of its transaction can be committed."""


class OnceStatements(Protocol):
    """The statements for a database that is supported."""

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT that knows ON CONFLICT."""

    def insert_ids(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> Sequence[EffectKey]:
        """Insert ids; return those that were not there."""

    def limit_waits(self, connection: sa.Connection, timeout_s: float) -> None:
        """Bound the waits of this transaction for locks."""

    def refuse_failed(self, connection: sa.Connection) -> None:
        """Raise TransactionFailedError where a commit would be a rollback."""

    def delete_old(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keep_s: float,
        most: int,
    ) -> int | None:
        """Delete at most so many ids that are older; None where another member does so now."""

    def refuse_read_only(self, connection: sa.Connection) -> None:
        """Raise UsageError for a database that takes no changes."""


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
        """See OnceStatements: one statement, which sets the bound for its wait and restores it."""
        sql = _insert_of(connection, table, owner, keys, lock_timeout_s)
        found = _with_begin(connection, sql)
        if found is None:
            escaped = sql.replace("%", "%%").replace(":", "\\:")
            found = connection.execute(sa.text(escaped)).one()
        count, inserted = int(found[0]), found[1]
        if count == len(keys):
            return keys
        return [EffectKey(*each) for each in json.loads(inserted or "[]")]

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
                "a statement of the handler failed, and the handler returned: let it raise, or run"
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
        # By place in the table: it is in the order of time, and needs no further index.
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

_INSERT_IDS: Final = """\
WITH bound AS MATERIALIZED (
  SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', '{ms}', true) AS now
), added AS (
  INSERT INTO {table} (group_name, worker, origin, record_id)
  SELECT {group_name}, {worker}, given.origin, given.record_id
  FROM bound, (VALUES {rows}) AS given (origin, record_id)
  WHERE bound.now IS NOT NULL
  ON CONFLICT DO NOTHING
  RETURNING origin, record_id
)
SELECT count(*), CAST(json_agg(json_build_array(origin, record_id)) AS text),
  set_config('lock_timeout', (SELECT before FROM bound), true)
FROM added"""


def _insert_of(
    connection: sa.Connection,
    table: sa.Table,
    owner: EffectOwner,
    keys: Sequence[EffectKey],
    lock_timeout_s: float,
) -> str:
    return _INSERT_IDS.format(
        ms=max(1, round(lock_timeout_s * 1000)),
        table=connection.dialect.identifier_preparer.format_table(table),
        group_name=_literal(owner.group_name),
        worker=_literal(owner.worker),
        rows=", ".join(f"({_literal(key.origin)}, {_literal(key.record_id)})" for key in keys),
    )


def _literal(text: str) -> str:
    """Return a literal that means the same with and without standard_conforming_strings."""
    quoted = text.replace("'", "''")
    if "\\" in quoted:
        return " E'{}'".format(quoted.replace("\\", "\\\\"))
    return f"'{quoted}'"


def _with_begin(connection: sa.Connection, sql: str) -> tuple[bytes, bytes | None] | None:
    """Begin the transaction and execute a query in one message, without the ways of a cursor.

    This halves what an id costs. Returns the first two columns of its row; None where that cannot
    be done here, or has failed in a way that an ordinary statement reports better.
    """
    dialect = connection.dialect
    if dialect.driver != "psycopg" or dialect.is_async:
        return None
    raw: Any = connection.connection.driver_connection
    modes = (raw.autocommit, raw.isolation_level, raw.read_only, raw.deferrable)
    client = raw.pgconn
    if (
        any(each is not None and each is not False for each in modes)
        or client.transaction_status != _IDLE
        or raw.info.encoding != "utf-8"
    ):
        return None
    result = client.exec_(f"BEGIN; {sql}".encode())
    if result.status == _HAS_ROWS:
        return result.get_value(0, 0), result.get_value(0, 1)
    code = (result.error_field(_SQLSTATE) or b"").decode()
    if code == _LOCK_TIMEOUT or code in RETRYABLE:
        raise sa.exc.OperationalError(sql, None, _CodedError(code))
    client.exec_(b"ROLLBACK")
    return None


class _CodedError(Exception):
    """What PostgreSQL said, as an error of a driver."""

    @property
    def sqlstate(self) -> str:
        """Its code."""
        return str(self.args[0])


@frozen
class SqliteStatements:
    """SQLite in WAL mode, where transactions that write come one after the other."""

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


def is_lock_timeout(error: DBAPIError) -> bool:
    """Return whether the wait for another transaction took too long."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return code == _LOCK_TIMEOUT or "database is locked" in str(error.orig)
