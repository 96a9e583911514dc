"""Django's connections, lent to SQLAlchemy for statements within Django's own transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from django.db import connections, transaction
from sqlalchemy.pool import NullPool

from window_consumer.database.django_settings import driver_of
from window_consumer.database.outbox.wakeup import wake
from window_consumer.model.errors import UsageError

_INFO: Final[WeakKeyDictionary[Any, dict[Any, Any]]] = WeakKeyDictionary()


class LentConnection:
    """A driver's connection that the borrower can neither commit, roll back nor close."""

    def __init__(self, lent: Any):
        self._lent = lent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lent, name)

    def commit(self) -> None:
        """Do nothing: the transaction is Django's."""

    def rollback(self) -> None:
        """Do nothing, likewise."""

    def close(self) -> None:
        """Do nothing, likewise."""


def info_of(alias: str) -> dict[Any, Any]:
    """Return the data that we store with this thread's connection to a database."""
    return _INFO.setdefault(connections[alias], {})


def lend(alias: str) -> sa.Connection:
    """Return an SQLAlchemy connection within this thread's transaction; the caller closes it."""
    lent = _engine(alias, connections[alias].vendor).connect()
    lent.info.update(info_of(alias))
    return lent


@contextmanager
def borrowed(alias: str, what: str) -> Iterator[sa.Connection]:
    """Yield an SQLAlchemy connection within this thread's transaction.

    Raises UsageError, which names ``what``, without a transaction. If the block raises, Django can
    no longer commit the transaction, as after one of its own errors.
    """
    own = connections[alias]
    if own.get_autocommit():
        raise UsageError(
            f"{what} needs a transaction, so that the record is sent if and only if your changes"
            " are committed: call it within transaction.atomic()"
        )
    own.validate_no_broken_transaction()
    with transaction.mark_for_rollback_on_error(alias), lend(alias) as lent:
        yield lent


class _Opened:
    """The driver's connections of one thread by alias; they close when the thread ends.

    Django leaves connections with ``CONN_MAX_AGE: None`` to the garbage collector.
    """

    def __init__(self) -> None:
        self.of: dict[str, Any] = {}

    def __del__(self) -> None:
        for connection in self.of.values():
            with suppress(Exception):  # fails if the server has closed the connection
                connection.close()


_thread: Final = threading.local()


def close_stale() -> None:
    """Close this thread's broken and old connections, unless they are in a transaction.

    Django's ``close_old_connections`` would close those too. The others close when the thread ends.
    """
    opened: _Opened | None = getattr(_thread, "opened", None)
    if opened is None:
        opened = _thread.opened = _Opened()
    for each in connections.all(initialized_only=True):
        if not each.in_atomic_block:
            each.close_if_unusable_or_obsolete()
        opened.of[each.alias] = each.connection
    opened.of = {alias: open_ for alias, open_ in opened.of.items() if open_ is not None}


def fresh_connections(record: Any, call_next: Callable[[Any], Any]) -> Any:
    """Call with fresh connections, as Django does for each request; a middleware of handlers."""
    close_stale()
    try:
        return call_next(record)
    finally:
        close_stale()


def wake_on_commit(alias: str, table: str) -> None:
    """Wake the relays of this process that read a table, once the transaction is committed."""
    transaction.on_commit(partial(wake, {table}), using=alias)


@cache
def _engine(alias: str, vendor: str) -> sa.Engine:
    """Return an engine that uses Django's connections, of each thread its own."""
    url = sa.URL.create(driver_of(vendor, f"the database {alias!r}"))
    kind: Any = url.get_dialect()
    dialect = kind(dbapi=kind.import_dbapi())
    pool = NullPool(partial(_lent, alias), dialect=dialect, reset_on_return=None)
    # Not create_engine: its listeners would change settings of Django's connection.
    return sa.Engine(pool, dialect, url)


def _lent(alias: str) -> LentConnection:
    own = connections[alias]
    own.ensure_connection()
    return LentConnection(own.connection)
