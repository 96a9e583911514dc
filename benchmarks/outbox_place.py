"""A database with an outbox, for the benchmarks of the relay."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from attrs import frozen

from benchmarks.records import records
from benchmarks.workloads import Workload
from window_consumer.database.outbox.table import Outbox
from window_consumer.model.errors import RunError
from window_consumer.model.produce import Produce
from window_consumer.testing.real_postgres import RealPostgres

_END_S: Final = 120.0
_LOOK_S: Final = 0.02
_INSERTED_AT_ONCE: Final = 5_000


@frozen
class OutboxPlace:
    """A database with an outbox."""

    url: str
    outbox: Outbox
    engine: sa.Engine

    def count(self) -> int:
        """Return how many rows there are."""
        with self.engine.connect() as connection:
            return int(connection.scalar(sa.select(sa.func.count(self.outbox.table.c.id))) or 0)

    def waiting(self) -> int:
        """Return how many rows are neither sent nor given up."""
        table = self.outbox.table
        waiting = sa.select(sa.func.count(table.c.id)).where(table.c.status != "failed")
        with self.engine.connect() as connection:
            return int(connection.scalar(waiting) or 0)

    def fill(self, topic: str, workload: Workload) -> None:
        """Add the workload's records."""
        wanted = [Produce(topic, key, value) for _, key, value in records(workload.topic)]
        with self.engine.begin() as connection:
            for first in range(0, len(wanted), _INSERTED_AT_ONCE):
                part = wanted[first : first + _INSERTED_AT_ONCE]
                self.outbox.insert(connection, self.outbox.rows(part))
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE wc_outbox")


@contextmanager
def place_with_outbox(*, notify: bool = False) -> Iterator[OutboxPlace]:
    """Start PostgreSQL with an empty outbox; with ``notify`` its writers wake other processes."""
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as directory,
        RealPostgres.start(Path(directory)) as postgres,
    ):
        metadata = sa.MetaData()
        outbox = Outbox(metadata, notify=notify)
        url = postgres.create_database("shop")
        engine = sa.create_engine(url)
        metadata.create_all(engine)
        yield OutboxPlace(url, outbox, engine)
        engine.dispose()


def until(holds: Callable[[], bool], within_s: float = _END_S) -> None:
    """Wait until a condition holds; end the benchmark if it never does."""
    deadline = time.perf_counter() + within_s
    while not holds():
        if time.perf_counter() > deadline:
            raise RunError(f"the outbox was not emptied within {within_s:.0f} s")
        time.sleep(_LOOK_S)
