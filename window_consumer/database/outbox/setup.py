"""The outbox of a configuration: its database, its table, and checks of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, NoSuchTableError
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from window_consumer.config import Config, WorkerConfig, effective_kafka
from window_consumer.database.connection_errors import DatabaseUser
from window_consumer.database.dialects import dialect_of
from window_consumer.database.django_settings import DJANGO, url_of_alias
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.lane_rows import report_shards
from window_consumer.database.outbox.store import OutboxStore
from window_consumer.database.outbox.table import MOST_SHARDS, Outbox
from window_consumer.kafka.settings import CONSUMER_ONLY, PRODUCER_ONLY
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

_log = own_logger()

OUTBOX: Final = DatabaseUser("outbox", "outbox.database")
"""The name of the outbox in errors."""

_SYNC_DRIVERS: Final[Mapping[str, str]] = {"postgresql": "psycopg", "sqlite": "pysqlite"}


class WrongTableError(UsageError):
    """The table of the outbox is missing, or lacks columns."""

    code = "WC145"


class ShardsDifferError(UsageError):
    """``outbox.shards`` differs from the number given to Outbox()."""

    code = "WC146"


_SAMPLED: Final = 200
"""Rows sampled: enough to infer the number of shards almost certainly."""


@frozen
class OutboxDatabase:
    """The outbox of a configuration. Owner: one thread at a time."""

    config: OutboxConfig
    outbox: Outbox
    engine: sa.Engine
    store: OutboxStore

    @classmethod
    def of(cls, config: OutboxConfig) -> Self:
        """Return the outbox without connecting. Raises UsageError for an unusable database."""
        if config.database is None:
            raise UsageError("outbox.database is missing: set it to the URL of the database")
        url = _url_of(config.database)
        outbox = Outbox(sa.MetaData(), config.table, config.shards)
        dialect = dialect_of(url.get_backend_name())
        if config.notify:
            dialect.check_listens(url)
        try:
            engine = dialect.engine(url)
        except ArgumentError as error:
            raise UsageError(f"outbox.database: {error}") from None
        except ImportError as error:
            other = f"{url.get_backend_name()}+{_SYNC_DRIVERS.get(url.get_backend_name(), '...')}"
            raise UsageError(
                f"outbox.database: {error}: write {other}://..., or install this driver"
            ) from None
        return cls(config, outbox, engine, OutboxStore(outbox, dialect.name))

    def listening_engine(self) -> sa.Engine:
        """Return an engine for the connection that listens for commits of other processes."""
        return self.store.dialect.engine(self.engine.url)

    def ddl(self) -> str:
        """Return the statements that create the table and its indexes."""
        table = self.outbox.table
        elements: list[ExecutableDDLElement] = [
            CreateTable(table),
            *map(CreateIndex, sorted(table.indexes, key=_name_of)),
        ]
        dialect = self.engine.dialect
        return "\n".join(f"{str(each.compile(dialect=dialect)).strip()};" for each in elements)

    def check(self) -> None:
        """Raise UsageError if the table is missing or wrong, or the database is read-only."""
        with self.engine.connect() as connection, connection.begin():
            self.check_table(connection)
            self.store.dialect.check_writable(connection, self.outbox.table)

    def report_missing_indexes(self) -> None:
        """Log the SQL of missing indexes: an older version may have created the table."""
        table = self.outbox.table
        found = sa.inspect(self.engine).get_indexes(table.name, table.schema)
        there = {each["name"] for each in found}
        for index in sorted(table.indexes, key=_name_of):
            if index.name not in there:
                _log.warning(
                    "outbox: the table %s lacks an index, so reading or deleting rows is slow;"
                    " create it (in PostgreSQL with CREATE INDEX CONCURRENTLY): %s",
                    table.fullname,
                    str(CreateIndex(index).compile(dialect=self.engine.dialect)).strip(),
                    extra={"event": LogEvent.OUTBOX_INDEX_MISSING, "index": index.name},
                )

    def check_shards(self) -> None:
        """Raise UsageError if rows were written with a number of shards other than configured.

        Rows of several writers with different numbers are only reported, and sent anyway.
        """
        with self.engine.connect() as connection, connection.begin():
            sample = self.store.hashes(connection, _SAMPLED)
        ours = self.config.shards
        if all(hashed % ours == shard for hashed, shard in sample):
            return
        fitting = [
            number
            for number in range(1, MOST_SHARDS + 1)
            if all(hashed % number == shard for hashed, shard in sample)
        ]
        if fitting:
            number = str(fitting[0]) if len(fitting) == 1 else "another number"
            raise ShardsDifferError(
                f"outbox.shards is {ours}, but the rows of {self.outbox.table.fullname} were"
                f" written by Outbox(shards=...) with {number}: use the same number in both"
                " places, and change it only while the table is empty"
            )
        report_shards(ours)

    def check_table(self, connection: sa.Connection) -> None:
        """Raise WrongTableError, with the DDL, if the table is missing or lacks columns."""
        table = self.outbox.table
        try:
            found = sa.inspect(connection).get_columns(table.name, table.schema)
        except NoSuchTableError:
            raise WrongTableError(
                f"outbox: the table {table.fullname} does not exist; create it:\n{self.ddl()}"
            ) from None
        missing = {column.name for column in table.columns} - {each["name"] for each in found}
        if missing:
            names = ", ".join(sorted(missing))
            raise WrongTableError(
                f"outbox: the table {table.fullname} lacks the columns {names}; it must be:\n"
                f"{self.ddl()}"
            )


def _name_of(index: sa.Index) -> str:
    return str(index.name)


def _url_of(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
        if url.drivername == DJANGO:
            return url_of_alias(url.host or "")
        driver = url.get_driver_name()
        backend = url.get_backend_name()
        is_async = url.get_dialect().is_async
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(f"outbox.database: {error}") from None
    if is_async:
        other = f"{backend}+{_SYNC_DRIVERS.get(backend, '...')}"
        raise UsageError(f"outbox.database: {driver} is asynchronous: use {other}://...")
    return url


def producer_properties(config: Config) -> dict[str, Any]:
    """Return the Kafka properties of the relay's producer.

    They are those at the top of the file, or the first worker's if these name no brokers.
    """
    for worker in (WorkerConfig(group=""), *config.workers.values()):
        found = effective_kafka(
            config, worker, "producer", consumer_only=CONSUMER_ONLY, producer_only=PRODUCER_ONLY
        )
        if "bootstrap.servers" in found:
            return found
    raise UsageError("outbox: kafka.bootstrap.servers is missing")
