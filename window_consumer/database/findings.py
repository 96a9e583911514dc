"""The checks of ``check --connect`` in databases: tables, and the privileges to use them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from window_consumer.config import Config, format_duration
from window_consumer.database.connection_errors import DatabaseUser, place_of, refusal_of
from window_consumer.database.dialects import dialect_of
from window_consumer.database.once.once import Once
from window_consumer.database.once.startup import OnceWorker, check_once, in_transaction, user_of
from window_consumer.database.once.table_contents import OnceDatabase, OnceStatus, status_of
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.setup import OUTBOX, OutboxDatabase
from window_consumer.model.errors import RunError, UsageError

T = TypeVar("T")

_Need = tuple[sa.Table, Sequence[str]]
_OF_IDS: Final = ("SELECT", "INSERT", "DELETE")
_OF_FENCES: Final = ("SELECT", "INSERT", "UPDATE")
_OF_WRITERS: Final = ("INSERT",)
_OF_RELAYS: Final = ("SELECT", "UPDATE", "DELETE")


@frozen
class DatabaseFindings:
    """The result of checking a database for one of its users."""

    used_by: str
    """``once of WORKER`` or ``outbox``."""
    database: str
    """Its URL without the password."""
    tables: tuple[str, ...]

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        yield f"{self.used_by}: {self.database}"
        yield f"  has {' and '.join(self.tables)}, with the privileges needed"


def databases_of(
    config: Config, workers: Iterable[OnceWorker], timeout_s: float | None
) -> tuple[DatabaseFindings, ...]:
    """Check the databases of ``once`` and of the outbox; change nothing.

    Raises UsageError for problems, with the SQL that fixes them, and RunError for a database that
    is not available.
    """
    found = [_of_once(each, timeout_s) for each in workers]
    outbox = config.section(OutboxConfig)
    if outbox.database is not None:
        found.append(_of_outbox(OutboxDatabase.of(outbox), timeout_s))
    return tuple(found)


def _of_once(worker: OnceWorker, timeout_s: float | None) -> DatabaseFindings:
    once, user = worker.once, user_of(worker).name
    needs: list[_Need] = [(once.tables.ids, _OF_IDS)]
    if once.values_for(worker.config).fenced:
        needs.append((once.tables.fences, _OF_FENCES))
    if once.outbox is not None:
        needs.append((once.outbox.table, _OF_WRITERS))

    def ask(connection: sa.Connection) -> None:
        check_once(worker, connection)
        if once.outbox is not None:
            _refuse_without_table(connection, user, once.outbox.table)
        _refuse_missing_rights(connection, user, needs)

    url = once.engine().url
    _within(timeout_s, user_of(worker), url, lambda: in_transaction(once, ask))
    return DatabaseFindings(user, place_of(url), _names(needs))


def statuses_of(databases: Iterable[OnceDatabase], timeout_s: float) -> list[OnceStatus]:
    """Query the tables of ``once`` in these databases; raises like ``databases_of``.

    ``timeout_s`` applies to the first response: counting may take longer.
    """
    found: list[OnceStatus] = []
    for each in databases:
        worker = each.workers[0]
        once, user = worker.once, user_of(worker)
        url = once.engine().url
        _within(timeout_s, user, url, partial(in_transaction, once, _answer))

        def ask(once: Once = once, database: OnceDatabase = each) -> None:
            found.append(in_transaction(once, partial(status_of, database)))

        _within(None, user, url, ask)
    return found


def _answer(connection: sa.Connection) -> None:
    connection.execute(sa.text("SELECT 1"))


def _of_outbox(database: OutboxDatabase, timeout_s: float | None) -> DatabaseFindings:
    needs: list[_Need] = [(database.outbox.table, _OF_RELAYS)]

    def ask() -> None:
        with database.engine.connect() as connection, connection.begin():
            database.check_table(connection)
            _refuse_missing_rights(connection, "outbox", needs)
        database.check()
        database.check_shards()

    try:
        _within(timeout_s, OUTBOX, database.engine.url, ask)
    finally:
        database.engine.dispose()
    return DatabaseFindings(OUTBOX.name, place_of(database.engine.url), _names(needs))


def _names(needs: Sequence[_Need]) -> tuple[str, ...]:
    return tuple(table.fullname for table, _ in needs)


def _refuse_without_table(connection: sa.Connection, user: str, table: sa.Table) -> None:
    if sa.inspect(connection).has_table(table.name, table.schema):
        return
    elements: list[ExecutableDDLElement] = [CreateTable(table), *map(CreateIndex, table.indexes)]
    lines = [f"{str(each.compile(dialect=connection.dialect)).strip()};" for each in elements]
    ddl = "\n".join(lines)
    raise UsageError(f"{user}: the table {table.fullname} does not exist; create it:\n{ddl}")


def _refuse_missing_rights(connection: sa.Connection, user: str, needs: Sequence[_Need]) -> None:
    dialect = dialect_of(connection.dialect.name)
    lines = []
    for table, rights in needs:
        missing = dialect.missing_rights(connection, table, rights)
        if missing:
            name = connection.dialect.identifier_preparer.format_table(table)
            lines.append(f"GRANT {', '.join(missing)} ON {name} TO ...;")
    if lines:
        raise UsageError("\n".join([f"{user}: privileges are missing in the database:", *lines]))


def _within(timeout_s: float | None, user: DatabaseUser, url: sa.URL, ask: Callable[[], T]) -> None:
    """Run ``ask`` on a daemon thread, so that a hanging database cannot hang the process."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            ask()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="wc-database-check", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive() and timeout_s is not None:
        within = format_duration(timeout_s)
        raise RunError(f"{user.name}: the database did not respond within {within}")
    for error in errors:
        raise refusal_of(error, url, user) or error from error
