"""``once`` with Django: each call is a transaction on Django's own connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from django.db import connections, router, transaction
from sqlalchemy.pool import NullPool

from window_consumer.config import WorkerConfig
from window_consumer.database.dialects import dialect_of
from window_consumer.database.dialects.dialect import TransactionFailedError
from window_consumer.database.django.borrowed import close_stale, info_of, lend, wake_on_commit
from window_consumer.database.django.models import OnceModel, OutboxModel
from window_consumer.database.django_settings import url_of_alias
from window_consumer.database.once.once import DEFAULT_KEEP, Duration, Once, keep_alive
from window_consumer.database.once.once_ids import BusinessId
from window_consumer.database.once.transactions import EffectTransaction, SyncTransaction
from window_consumer.database.once.writer import WriterTurns
from window_consumer.database.outbox.table import ADDED, Outbox
from window_consumer.model.errors import UsageError
from window_consumer.runtime.calls.layer import CallForm

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

_OPEN = "wc_once_open"
"""The key of a connection's info for the session whose call has not ended."""
_SEEN = "wc_once_seen"
"""The key for the driver's connection that has our settings."""


def once(
    model: type[OnceModel],
    outbox: type[OutboxModel] | None = None,
    *,
    using: str | None = None,
    keep: Duration = DEFAULT_KEEP,
    lock_timeout: Duration = "2s",
    by: BusinessId | None = None,
) -> DjangoOnce:
    """Return a ``once`` that makes each call of a handler one Django transaction.

    The call runs within ``transaction.atomic()``, which first inserts the record's id into the
    table of ``model``; what the handler changes through Django's ORM is committed with it.
    ``outbox`` takes the records that the handler returns. ``using`` is the alias of the database,
    by default the one that Django's routers choose for the model. The rest is as for
    ``window_consumer.database.Once``.
    """
    return DjangoOnce(model, outbox, using, keep, lock_timeout, by)


class DjangoOnce(Once):
    """The result of ``once``."""

    def __init__(
        self,
        model: type[OnceModel],
        outbox: type[OutboxModel] | None,
        using: str | None,
        keep: Duration,
        lock_timeout: Duration,
        by: BusinessId | None,
    ):
        self._alias: str = using or router.db_for_write(model)
        self._connections: set[Any] = set()
        super().__init__(
            partial(_engine_beside, self._alias),
            None if outbox is None else outbox.rows,
            keep,
            lock_timeout,
            by,
            table=model._meta.db_table,  # type: ignore[attr-defined] # noqa: SLF001 - Django's public name
        )

    def transactions(self) -> DjangoTransactions:
        """Return the object that opens Django's transactions."""
        return DjangoTransactions(self._alias, self.writers, self._connections)

    def refuse(self, worker: WorkerConfig, form: CallForm) -> None:
        """Raise UsageError for coroutines, and for ``fenced``."""
        whose = f"worker {worker.name}: once="
        if form.coroutines:
            raise UsageError(
                f"{whose}: the handler is a coroutine, and Django has no transactions for these:"
                " write def instead of async def, and the handler runs on a thread"
            )
        if self.values_for(worker).fenced:
            raise UsageError(f"{whose}: fenced is not supported with Django: leave it out")

    def close_loops(self) -> None:
        """Close the connections of the threads that ran handlers; the threads have ended."""
        while self._connections:
            connection = self._connections.pop()
            connection.inc_thread_sharing()
            connection.close()


class DjangoTransactions:
    """Opens Django's transactions. Any slot may call it."""

    def __init__(self, alias: str, writers: WriterTurns | None, used: set[Any]):
        """``used`` takes the connections; its operations are atomic."""
        self._alias = alias
        self._writers = writers
        self._used = used

    @property
    def writers(self) -> WriterTurns | None:
        """See EffectTransactions."""
        return self._writers

    def open(self) -> EffectTransaction:
        """See EffectTransactions."""
        session = DjangoSession(self._alias)
        self._used.add(session.handed)
        return SyncTransaction(session)

    def apart(self) -> EffectTransaction | None:
        """See EffectTransactions: it is for fences."""
        return None


class DjangoSession:
    """This thread's connection to a database and the transaction of one call.

    Before and after the call, stale and old connections (``CONN_MAX_AGE``) are closed, as between
    two requests.
    """

    def __init__(self, alias: str):
        self.handed = connections[alias]
        self.info = info_of(alias)
        self._alias = alias
        self._atomic: Any = None
        self._lent: sa.Connection | None = None

    def connection(self) -> sa.Connection:
        """See EffectSession."""
        if self._lent is None:
            self._lent = lend(self._alias)
        return self._lent

    def begin_effects(self) -> None:
        """See EffectSession."""
        dropped: DjangoSession | None = self.info.pop(_OPEN, None)
        if dropped is not None:
            dropped.end()
        close_stale()
        self._keep_alive()
        self._atomic = transaction.atomic(self._alias)
        self._atomic.__enter__()
        self.info[_OPEN] = self

    @property
    def lost(self) -> bool:
        """See EffectSession."""
        driver = self.handed.connection
        return self._atomic is not None and bool(driver is None or getattr(driver, "closed", False))

    def discard(self) -> None:
        """See EffectSession."""
        self.handed.errors_occurred = True  # so that Django checks the connection

    def store(self, outbox: Outbox, rows: Sequence[Mapping[str, Any]]) -> None:
        """See EffectSession."""
        outbox.insert(self.connection(), rows, replace=True)
        wake_on_commit(self._alias, outbox.table.fullname)

    def commit_effects(self) -> None:
        """See EffectSession."""
        if self.handed.needs_rollback or not self.handed.in_atomic_block:
            raise TransactionFailedError(
                "a statement of the handler failed, or it asked for a rollback, but it returned:"
                " let it raise, or run what may fail within transaction.atomic()"
            )
        dialect_of(self.connection().dialect.name).refuse_failed(self.connection())
        self._leave(None)

    def end(self) -> None:
        """See EffectSession."""
        self._leave(_NotCommittedError())
        close_stale()

    def _leave(self, error: BaseException | None) -> None:
        """Leave the block: commit, or roll back after an error."""
        lent, self._lent = self._lent, None
        atomic, self._atomic = self._atomic, None
        for key in (_OPEN, ADDED):
            self.info.pop(key, None)
        if lent is not None:
            if lent.invalidated:
                self.handed.errors_occurred = True  # so that Django checks the connection
            lent.close()
        if atomic is not None:
            atomic.__exit__(None if error is None else type(error), error, None)

    def _keep_alive(self) -> None:
        """Set up a new connection, as the engine of ``Once`` does."""
        own = self.handed
        own.ensure_connection()
        if own.vendor == "postgresql" and self.info.get(_SEEN) is not own.connection:
            if not own.in_atomic_block:
                keep_alive(own.connection)
            self.info[_SEEN] = own.connection


class _NotCommittedError(Exception):
    """Makes ``atomic`` roll back."""


def _engine_beside(alias: str) -> sa.Engine:
    """Return an engine for work outside calls: checks, and the deletion of old ids."""
    return sa.create_engine(url_of_alias(alias), poolclass=NullPool)
