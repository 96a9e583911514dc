"""Relays and writers that are not alone: other processes, other transactions, a PgBouncer."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.commands import Commands, kafka_of
from tests.database.conftest import OutboxBench, arrived, bench_at, relaying
from tests.database.pgbouncer import bouncing
from tests.logged import events_in
from tests.waiting import wait_until
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.setup import OutboxDatabase, ShardsDifferError
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent

TOPIC = "order-events"
LISTENERS = sa.text("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 1)
    return embedded


# ---- commits of other processes


def configure(commands: Commands, broker: EmbeddedBroker, url: str, **outbox: object) -> None:
    commands.configure({"kafka": kafka_of(broker), "outbox": {"database": url, **outbox}})


def test_a_commit_wakes_the_relay_of_another_process(
    database: str, broker: EmbeddedBroker, commands: Commands
) -> None:
    with bench_at(database, notify=True) as bench:
        configure(commands, broker, database, notify=True, poll="1m")
        daemon = commands.start("outbox", "run", "--log-format", "json")
        for number in range(1, 4):  # the second comes when the relay would wait for a minute
            bench.add(TOPIC, b"1", b"%d" % number)
            daemon.wait_for(LogEvent.OUTBOX_STARTED)
            arrived(broker, TOPIC, number)
            wait_until(lambda: bench.count() == 0)
        with bench.engine.begin() as connection:
            listening = connection.scalars(LISTENERS).all()
            for pid in listening:
                connection.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        assert len(listening) == 1
        daemon.wait_for(LogEvent.OUTBOX_NOT_LISTENING)
        bench.add(TOPIC, b"1", b"4")  # it is seen when the listener is back, at the latest
        arrived(broker, TOPIC, 4)
        ended = daemon.stop()
    assert ended.code == 0, ended.said


def test_notify_needs_a_database_and_a_driver_that_can(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path / 'shop.db'}", "postgresql+psycopg2://shop@db/shop"):
        with pytest.raises(UsageError) as raised:
            OutboxDatabase.of(OutboxConfig(database=url, notify=True))
        assert "outbox.notify" in str(raised.value)


def test_a_writer_that_notifies_may_have_sqlite(tmp_path: Path) -> None:
    with bench_at(f"sqlite:///{tmp_path / 'shop.db'}", notify=True) as bench:
        bench.add(TOPIC, b"1")
        assert bench.count() == 1


# ---- shards


def check_shards(bench: OutboxBench, **config: int) -> None:
    database = bench.database(**config)
    try:
        database.check_shards()
    finally:
        database.engine.dispose()


def test_a_relay_with_another_number_of_shards_does_not_start(
    url: str, broker: EmbeddedBroker, commands: Commands
) -> None:
    with bench_at(url, shards=48) as bench:
        for number in range(100):
            bench.add(TOPIC, b"%d" % number)
        configure(commands, broker, url)
        ended = commands.run("outbox", "run")
        assert ended.code == 2, ended.said
        assert {"64", "48"} <= set(re.findall(r"\d+", ended.err))
        assert bench.count() == 100
        configure(commands, broker, url, shards=48)
        daemon = commands.start("outbox", "run")
        wait_until(lambda: bench.count() == 0)
        assert daemon.stop().code == 0


def test_rows_of_writers_that_differ_are_sent_and_reported(
    bench: OutboxBench, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with bench_at(bench.url, shards=3) as other:
        for number in range(50):
            bench.add(TOPIC, b"%d" % number)
            other.add(TOPIC, b"%d" % number)
        check_shards(bench)
        assert events_in(caplog) == [LogEvent.OUTBOX_SHARDS_DIFFER]
        caplog.clear()
        with relaying(bench, broker.bootstrap):
            wait_until(lambda: bench.count() == 0)
    assert events_in(caplog).count(LogEvent.OUTBOX_SHARDS_DIFFER) == 1


def test_a_mismatch_is_found_whatever_the_keys(bench: OutboxBench) -> None:
    with bench_at(bench.url, shards=128) as other:
        for _ in range(20):
            other.add(TOPIC)
        check_shards(other, shards=128)
        with pytest.raises(ShardsDifferError):
            check_shards(bench)


SHOP = """
from sqlalchemy import MetaData, create_engine
from window_consumer import App, Produce, Record
from window_consumer.database import Once, Outbox

app = App("shop")
metadata = MetaData()
engine = create_engine({url!r})
once = Once(engine, outbox=Outbox(metadata, shards=32))
metadata.create_all(engine)
once.tables.metadata.create_all(engine)


@app.handler("orders", group="shop", once=once)
def place(order: Record) -> Produce:
    return Produce("order-events", order.key, b"placed")
"""


def test_a_worker_whose_outbox_has_another_number_of_shards_does_not_start(
    url: str, broker: EmbeddedBroker, commands: Commands
) -> None:
    broker.create_topic("orders", 1)
    commands.application(SHOP.format(url=url))
    kafka = kafka_of(broker)
    workers: dict[str, object] = {"place": {}}
    for shards, code in ((64, 2), (32, 0)):
        outbox = {"database": url, "shards": shards}
        commands.configure({"kafka": kafka, "outbox": outbox, "workers": workers})
        worker = commands.start("run", "shop:app")
        if code == 0:
            worker.wait_for("reads 1 partition")
            assert worker.stop().code == 0
            continue
        ended = worker.wait()
        assert ended.code == 2, ended.said
        assert "shards=32" in ended.err


# ---- other transactions


def test_a_deadlock_with_another_transaction_repeats_nothing(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    """The other one locks the second row, then, while the relay waits for that, the first."""
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    with in_postgres.engine.begin() as connection:
        # Who waits for longer than this asks whether it is a deadlock, and is its victim. A relay
        # waits for a second.
        name = connection.engine.url.database
        connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '800ms'")
        for row_id in (first, second):
            in_postgres.outbox.add(connection, TOPIC, b"1", row_id.bytes, id=row_id)
    ids = in_postgres.table.c.id
    lock = sa.select(ids).with_for_update()
    with in_postgres.engine.connect() as other, other.begin():
        other.exec_driver_sql("SET LOCAL deadlock_timeout = '60s'")
        other.execute(lock.where(ids == second))
        with relaying(in_postgres, broker.bootstrap) as relay:
            wait_until(in_postgres.waits_for_a_lock)
            other.execute(lock.where(ids == first))  # returns when the relay has been the victim
            other.rollback()
            wait_until(lambda: in_postgres.count() == 0)
            assert relay.trouble is None
            assert relay.figures().sent == 2
    wait_until(lambda: deadlocks(in_postgres) == 1)  # counted a second later, or so
    assert [each.value() for each in broker.read_all(TOPIC)] == [first.bytes, second.bytes]


def deadlocks(bench: OutboxBench) -> int:
    counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with bench.engine.connect() as connection:
        return int(connection.exec_driver_sql(counted).scalar() or 0)


# ---- PgBouncer


def test_relays_behind_pgbouncer_keep_order_and_lose_nothing(
    in_postgres: OutboxBench, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    with (
        bouncing(in_postgres.url, tmp_path) as url,
        bench_at(url) as behind,
        relaying(behind, broker.bootstrap, batch=5),
        relaying(behind, broker.bootstrap, batch=5),
    ):
        for number in range(300):
            with in_postgres.engine.begin() as connection:
                in_postgres.outbox.add(connection, TOPIC, b"%d" % (number % 7), b"%d" % number)
        wait_until(lambda: in_postgres.count() == 0)
    numbers = [int(each.value() or b"") for each in broker.read_all(TOPIC)]
    firsts = list(dict.fromkeys(numbers))
    assert sorted(firsts) == list(range(300))
    for rest in range(7):
        own = [number for number in firsts if number % 7 == rest]
        assert own == sorted(own)
