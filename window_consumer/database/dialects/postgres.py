"""The PostgreSQL dialect: advisory locks, notifications, settings of a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.dialects import postgresql

from window_consumer.database.dialects.dialect import (
    LONGEST_TRANSACTION_S,
    ONCE_READ_ONLY,
    READ_ONLY,
    EffectKey,
    EffectOwner,
    ReadOnlyDatabaseError,
    TransactionFailedError,
)
from window_consumer.database.dialects.postgres_ids import insert_in_postgres
from window_consumer.model.errors import UsageError

_NOT_PREPARED: Final = frozenset({"26000", "42P05"})
"""PostgreSQL's codes for a prepared statement that does not exist, or already exists."""

_IN_ERROR: Final = 3
"""libpq's status of a connection whose transaction has failed."""


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
            # Once we get another transaction's lock, we must see its rows.
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
            raise ReadOnlyDatabaseError(READ_ONLY.format(table="the outbox"))
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
            raise ReadOnlyDatabaseError(READ_ONLY.format(table=quoted))

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

    def insert(self, table: sa.Table) -> Any:
        """See SqlDialect."""
        return postgresql.insert(table)

    def insert_ids(
        self,
        connection: sa.Connection,
        table: sa.Table,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> Sequence[EffectKey]:
        """See SqlDialect."""
        return insert_in_postgres(connection, table, owner, keys, lock_timeout_s)

    def limit_waits(self, connection: sa.Connection, timeout_s: float) -> None:
        """See SqlDialect."""
        bound = {"ms": str(max(1, round(timeout_s * 1000)))}
        connection.execute(sa.text("SELECT set_config('lock_timeout', :ms, true)"), bound)

    def refuse_failed(self, connection: sa.Connection) -> None:
        """See SqlDialect: PostgreSQL answers COMMIT with ROLLBACK, and no driver raises."""
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
        """See SqlDialect."""
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
        """See SqlDialect."""
        if connection.scalar(sa.text("SELECT current_setting('transaction_read_only')")) == "on":
            raise UsageError(ONCE_READ_ONLY)


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
