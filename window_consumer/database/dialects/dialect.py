"""The differences between the supported databases, in one class for each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from window_consumer.model.errors import UsageError, WindowConsumerError

LONGEST_TRANSACTION_S: Final = 5.0
"""None of our transactions stays open longer, whatever Kafka does."""

LOCK_TIMEOUT: Final = "55P03"
"""PostgreSQL's code for a lock timeout."""

RETRYABLE: Final = frozenset({"40001", "40P01"})
"""PostgreSQL's codes for a serialization failure and a deadlock."""

_DJANGO_ERRORS: Final = "django.db.utils"

READ_ONLY: Final = (
    "the database is read-only (a replica?), or this user lacks UPDATE and DELETE on {table}: sent"
    " rows could not be marked; point outbox.database to the primary"
)

ONCE_READ_ONLY: Final = (
    "once: the database is read-only (a replica?): point the engine of Once() to the primary"
)


class ReadOnlyDatabaseError(UsageError):
    """The database accepts no changes: it is a replica, or a privilege is missing."""

    code = "WC141"


class TransactionFailedError(WindowConsumerError):
    """A statement failed and the handler continued: its transaction cannot be committed."""

    code = "WC142"


class EffectKey(NamedTuple):
    """The key of an effect within a worker of a group."""

    origin: str
    """The first topic with the hash of its id: a recreated topic has different records."""
    record_id: str


class EffectOwner(NamedTuple):
    """The owner of effects."""

    group_name: str
    worker: str


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
        """Return SQL for the current time in the format of stored timestamps."""

    def engine(self, url: sa.URL) -> sa.Engine:
        """Return an engine for one of our threads; does not connect yet."""

    def blocking(self, url: sa.URL) -> sa.URL | None:
        """Return the URL for a driver of the standard library; None if there is none."""

    @property
    def has_positions(self) -> bool:
        """Whether a relay may remember its read position: it can see the active writers."""

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
        """Return which of the privileges, such as INSERT, we lack on a table."""

    def identity(self, connection: sa.Connection) -> str:
        """Return a unique name of this database, whatever its address is."""

    def in_ids(self, column: sa.Column[Any], ids: list[Any]) -> sa.ColumnElement[bool]:
        """Return the condition that a row has one of these ids."""

    def notify(self, connection: sa.Connection, channel: str) -> None:
        """Notify the listeners of a channel when the transaction commits, if supported."""

    def check_listens(self, url: sa.URL) -> None:
        """Raise UsageError if listening to a channel is impossible."""

    def limit_statements(self, connection: sa.Connection) -> None:
        """Limit statements of this transaction to ``LONGEST_TRANSACTION_S``, lock waits to 1 s."""

    def read_by_index(self, connection: sa.Connection) -> None:
        """Make this transaction read rows in index order, like one with ``lock``.

        The planner's estimates ignore the dead rows before a position.
        """

    # ---- once

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


def sqlstate_of(error: BaseException) -> str | None:
    """Return PostgreSQL's code of an error; None without one."""
    driver = _driver_error_of(error)
    code: str | None = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    return code


def sqlite_code_of(error: BaseException) -> int | None:
    """Return SQLite's extended code of an error; None without one."""
    code: int | None = getattr(_driver_error_of(error), "sqlite_errorcode", None)
    return code


def _driver_error_of(error: BaseException) -> BaseException | None:
    """Return the driver's exception: SQLAlchemy keeps it in ``orig``, Django as the cause."""
    if isinstance(error, DBAPIError):
        return error.orig
    return error.__cause__ if type(error).__module__ == _DJANGO_ERRORS else None


def is_lock_timeout(error: BaseException) -> bool:
    """Return whether waiting for another transaction's lock timed out."""
    return sqlstate_of(error) == LOCK_TIMEOUT or _is_busy(error)


def is_retryable(error: BaseException) -> bool:
    """Return whether a retry may succeed: a deadlock, a serialization failure, a busy SQLite."""
    return sqlstate_of(error) in RETRYABLE or _is_busy(error)


def _is_busy(error: BaseException) -> bool:
    return "database is locked" in str(_driver_error_of(error))
