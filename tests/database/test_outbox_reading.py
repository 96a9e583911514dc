"""Reads of the relay: they cost what they return, and miss nothing that can be sent."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import pytest
import sqlalchemy as sa

from tests.database.conftest import OutboxBench, bench_at
from window_consumer.database.outbox.reading import OutboxReading
from window_consumer.database.outbox.store import OutboxStore

TOPIC = "order-events"
IN_FRONT = 20_000
FILL = sa.text(
    "INSERT INTO wc_outbox (id, aggregatetype, aggregateid, type, payload, topic, key, shard,"
    " available_at) SELECT gen_random_uuid(), '', '', '', repeat('x', 200)::bytea, :topic, :key, 0,"
    " CAST(:at AS timestamptz) FROM generate_series(1, :count)"
)
FAR = "2999-01-01"


@pytest.fixture
def one_shard(database: str) -> Iterator[OutboxBench]:
    with bench_at(database, shards=1) as bench:
        yield bench


def store_of(bench: OutboxBench, *, span: int) -> OutboxStore:
    """Return statements that take each read for a slow one."""
    store = OutboxStore(bench.outbox, "postgresql")
    store.reading = OutboxReading(
        bench.outbox, store.dialect, slow_s=0.0, span=span, longest_s=60.0
    )
    return store


def fill(bench: OutboxBench, key: bytes, count: int, at: str | None = None) -> None:
    with bench.engine.begin() as connection:
        connection.execute(FILL, {"topic": TOPIC, "key": key, "at": at, "count": count})


def block(bench: OutboxBench, key: bytes) -> None:
    """Have the first row of a key refused."""
    row = bench.table.c
    with bench.engine.begin() as connection:
        first: Any = connection.scalar(sa.select(row.id).where(row.key == key).order_by(row.seq))
        OutboxStore(bench.outbox, "postgresql").refuse(connection, first, "refused", 3600.0)


def blocks_of(connection: sa.Connection, read: Callable[[], object]) -> int:
    """Return how many blocks the statements of a read touch, as EXPLAIN counts them."""
    statements: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, bound: Any, *_: Any) -> None:
        statements.append((statement, bound))

    sa.event.listen(connection, "before_cursor_execute", record)
    read()
    sa.event.remove(connection, "before_cursor_execute", record)
    driver: Any = connection.connection.driver_connection
    found = 0
    for statement, bound in statements:
        explained = driver.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", bound)
        plan = explained.fetchone()[0][0]["Plan"]
        found += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return found


@contextmanager
def rows_in_front(bench: OutboxBench, what: str) -> Iterator[None]:
    """Put rows that cannot be sent in front of 500 others."""
    with bench.engine.connect() as other:
        fill(bench, b"front", IN_FRONT, FAR if what == "delayed" else None)
        fill(bench, b"good", 500)
        if what == "blocked":
            block(bench, b"front")
        if what == "snapshot":
            other.execution_options(isolation_level="REPEATABLE READ")
            other.execute(sa.select(bench.table.c.id).limit(1))
            with bench.engine.begin() as connection:
                connection.execute(bench.table.delete().where(bench.table.c.key == b"front"))
        with bench.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("VACUUM ANALYZE wc_outbox")
        yield


@pytest.mark.parametrize("what", ["blocked", "delayed", "snapshot"])
def test_a_read_costs_what_it_returns(one_shard: OutboxBench, what: str) -> None:
    store = store_of(one_shard, span=5_000)
    with rows_in_front(one_shard, what), one_shard.engine.connect() as connection:
        for _ in range(50):
            with connection.begin():
                assert store.dialect.lock(connection, store.lock_name, 0)
                if store.rows(connection, 0, 100):
                    break
        with connection.begin():
            assert store.dialect.lock(connection, store.lock_name, 0)
            store.rows(connection, 0, 100)  # where it begins is known now
            store.reading._slow_s = 60.0
            assert len(store.rows(connection, 0, 100)) == 100
            assert blocks_of(connection, lambda: store.rows(connection, 0, 100)) < 60
        with connection.begin():
            assert store.due_shards(connection) == [0]
            assert blocks_of(connection, lambda: store.due_shards(connection)) < 60
            assert blocks_of(connection, lambda: store.oldest_s(connection)) < 60


class Writers:
    """Changes to the table at random, some of whose transactions stay open for a while."""

    def __init__(self, bench: OutboxBench, seed: int, stack: ExitStack):
        self.bench = bench
        self.random = random.Random(seed)
        self.stack = stack
        self.open: list[tuple[sa.Connection, sa.RootTransaction]] = []
        self.store = OutboxStore(bench.outbox, "postgresql")
        self.held: set[str] = set()

    def act(self) -> None:
        actions = (self.add, self.add, self.add, self.begin, self.commit, self.refuse, self.release)
        self.random.choice((*actions, self.hold))()

    def add_to(self, connection: sa.Connection) -> None:
        topic, key = self.random.choice("ab"), self.random.choice((b"1", b"2", b"3"))
        at = self.random.choice((None, None, None, "0s", "1h"))
        self.bench.outbox.add(connection, topic, key, delay=at)

    def add(self) -> None:
        with self.bench.engine.begin() as connection:
            for _ in range(self.random.randrange(4)):
                self.add_to(connection)

    def begin(self) -> None:
        if len(self.open) < 3:
            connection = self.stack.enter_context(self.bench.engine.connect())
            transaction = connection.begin()
            self.open.append((connection, transaction))
            self.add_to(connection)

    def commit(self) -> None:
        if self.open:
            connection, transaction = self.open.pop(self.random.randrange(len(self.open)))
            transaction.commit() if self.random.random() < 0.8 else transaction.rollback()
            connection.close()

    def some_id(self, connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Any:
        row = self.bench.table.c
        ids = connection.scalars(sa.select(row.id).where(*where).order_by(row.seq).limit(9)).all()
        return self.random.choice(ids) if ids else None

    def refuse(self) -> None:
        again_s = self.random.choice((3600.0, 3600.0, -1.0, None))
        with self.bench.engine.begin() as connection:
            if (chosen := self.some_id(connection)) is not None:
                self.store.refuse(connection, chosen, "refused", again_s)

    def release(self) -> None:
        is_refused = self.bench.table.c.status != "waiting"
        act: Literal["retry", "skip"] = self.random.choice(("retry", "skip"))
        with self.bench.engine.begin() as connection:
            if (chosen := self.some_id(connection, is_refused)) is not None:
                getattr(self.store, act)(connection, [chosen])

    def hold(self) -> None:
        self.held ^= {self.random.choice("ab")}


def passed(
    bench: OutboxBench, connection: sa.Connection, found: Sequence[Any], expected: Sequence[Any]
) -> list[Any]:
    """Return rows without a delay that later rows of their keys would overtake."""
    row = bench.table.c
    columns = (row.id, row.topic, row.key, row.available_at)
    chosen = sa.select(*columns).where(row.id.in_(expected)).order_by(row.seq.desc())
    overtaking: set[tuple[str, bytes]] = set()
    left_behind = []
    for row_id, topic, key, available_at in connection.execute(chosen):
        if row_id in found:
            overtaking.add((topic, key))
        elif available_at is None and (topic, key) in overtaking:
            left_behind.append(row_id)
    return left_behind


@pytest.mark.parametrize("seed", range(2))
def test_reads_from_a_position_find_what_reads_from_the_start_find(
    one_shard: OutboxBench, seed: int
) -> None:
    with ExitStack() as stack, one_shard.engine.connect() as connection:
        writers = Writers(one_shard, seed, stack)
        store, whole = store_of(one_shard, span=6), OutboxStore(one_shard.outbox, "postgresql")
        moved = 0
        for _ in range(100):
            writers.act()
            batch = writers.random.choice((2, 1_000))
            with connection.begin():
                expected = [row.id for row in whole.rows(connection, 0, 1_000, writers.held)]
                found = [row.id for row in store.rows(connection, 0, batch, writers.held)]
                assert set(found) <= set(expected)
                assert bool(found) == bool(expected)
                assert store.due_shards(connection, writers.held) or not expected
                moved += bool(store.reading._positions(connection, writers.held))
                assert passed(one_shard, connection, found, expected) == []
                if writers.random.random() < 0.7:
                    store.mark(connection, found[:3], keep=False)
        assert moved > 5
