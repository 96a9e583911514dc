"""What may go wrong with the database, and what becomes of the rows then."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from attrs import define, field

from tests.database.conftest import AnsweredRows, OutboxBench, arrived, bench_at, header, relaying
from tests.waiting import wait_until
from window_consumer.database.dialects.dialect import ReadOnlyDatabaseError
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.relay import OutboxRelay
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.database.outbox.sender import RelayTurn, RowsInFlight
from window_consumer.database.outbox.setup import OutboxDatabase, WrongTableError
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_postgres import RealPostgres

TOPIC = "order-events"


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 1)
    return embedded


@define
class GatedSender:
    """Takes everything, each batch once its gate is open."""

    taken: list[bytes] = field(factory=list)
    gate: threading.Event = field(factory=threading.Event)
    entered: threading.Event = field(factory=threading.Event)

    def begin(
        self,
        rows: Sequence[OutboxRow],
        timeout_s: float,
        turn: RelayTurn,  # noqa: ARG002 - interface
    ) -> RowsInFlight:
        self.entered.set()
        assert self.gate.wait(timeout_s * 5)
        self.taken += [row.payload or b"" for row in rows]
        return AnsweredRows([None] * len(rows))


def test_a_database_that_comes_late_and_goes_away_is_waited_for(
    postgres_directory: Path, broker: EmbeddedBroker
) -> None:
    with RealPostgres.start(postgres_directory) as postgres:
        url = postgres.create_database("shop")
        with bench_at(url) as bench:
            postgres.kill()
            with relaying(bench, broker.bootstrap) as relay:
                wait_until(lambda: relay.trouble is not None)
                postgres.restart()
                bench.engine.dispose()
                bench.add(TOPIC, b"1", b"first")
                arrived(broker, TOPIC, 1)
                wait_until(lambda: bench.count() == 0)
                wait_until(lambda: relay.trouble is None)
                postgres.kill()
                wait_until(lambda: relay.trouble is not None)
                postgres.restart()
                bench.engine.dispose()
                bench.add(TOPIC, b"1", b"second")
                arrived(broker, TOPIC, 2)
                wait_until(lambda: bench.count() == 0)
    # A mark that the crash has taken back is a row that comes twice, with the same id.
    messages = {header(each, "wc-id"): each.value() for each in broker.read_all(TOPIC)}
    assert list(messages.values()) == [b"first", b"second"]


def test_rows_whose_connection_is_killed_after_the_ack_are_marked_and_not_sent_again(
    in_postgres: OutboxBench,
) -> None:
    sender = GatedSender()
    in_postgres.add(TOPIC, b"1", b"once")
    with relaying(in_postgres, "127.0.0.1:1", sender=sender):
        assert sender.entered.wait(30)
        kill_others(in_postgres)
        sender.gate.set()
        wait_until(lambda: in_postgres.count() == 0)
    assert sender.taken == [b"once"]


def kill_others(bench: OutboxBench) -> None:
    """End all other connections to the database."""
    with bench.engine.connect() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


def test_nothing_is_sent_from_a_read_only_database(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    in_postgres.add(TOPIC, b"1", b"waits")
    name = in_postgres.engine.url.database
    with in_postgres.engine.begin() as connection:
        connection.exec_driver_sql(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
        )
    database = in_postgres.database()
    with pytest.raises(ReadOnlyDatabaseError):
        database.check()
    database.engine.dispose()
    with relaying(in_postgres, broker.bootstrap) as relay:
        wait_until(lambda: relay.trouble is not None)
        assert len(broker.read_all(TOPIC)) == 0
        with in_postgres.engine.connect() as connection:
            connection.exec_driver_sql("SET default_transaction_read_only = off")
            connection.exec_driver_sql(
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = off'
            )
            connection.commit()
        arrived(broker, TOPIC, 1)
        wait_until(lambda: relay.trouble is None)


def test_a_database_that_becomes_read_only_under_way_gets_nothing_sent(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    with relaying(in_postgres, broker.bootstrap) as relay:
        in_postgres.add(TOPIC, b"1", b"before")
        arrived(broker, TOPIC, 1)
        wait_until(lambda: in_postgres.count() == 0)
        in_postgres.add(TOPIC, b"1", b"hidden", delay="1h")
        name = in_postgres.engine.url.database
        with in_postgres.engine.begin() as connection:
            connection.exec_driver_sql(
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
            )
        kill_others(in_postgres)
        wait_until(lambda: relay.trouble is not None)
    assert len(broker.read_all(TOPIC)) == 1


def test_a_missing_right_is_found_before_anything_is_sent(
    in_postgres: OutboxBench, postgres: RealPostgres
) -> None:
    role = f"reader_{in_postgres.engine.url.database}".replace("-", "_")
    with in_postgres.engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE ROLE "{role}" LOGIN')
        connection.exec_driver_sql(f'GRANT SELECT, INSERT ON wc_outbox TO "{role}"')
    url = in_postgres.engine.url.set(username=role)
    config = OutboxConfig(database=url.render_as_string(hide_password=False))
    database = OutboxDatabase.of(config)
    with pytest.raises(ReadOnlyDatabaseError):
        database.check()
    database.engine.dispose()
    assert postgres.pid is not None


def test_a_row_that_somebody_locks_is_marked_after_a_deadlock_or_a_wait(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    in_postgres.add(TOPIC, b"1", b"locked")
    with in_postgres.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(sa.select(in_postgres.table.c.id).with_for_update())
        with relaying(in_postgres, broker.bootstrap):
            (message,) = arrived(broker, TOPIC, 1)
            wait_until(in_postgres.waits_for_a_lock)  # the mark
            transaction.rollback()
            wait_until(lambda: in_postgres.count() == 0)
    assert header(message, "wc-id") is not None
    assert len(broker.read_all(TOPIC)) == 1


class MarkFailsOnce(OutboxRelay):
    """Has its first mark fail as PostgreSQL reports a serialization failure."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.fails = True

    def _mark(self, connection: sa.Connection, acked: Sequence[object]) -> None:
        super()._mark(connection, acked)  # type: ignore[arg-type] # ids
        if acked and self.fails:
            self.fails = False
            raise_sql = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"
            connection.exec_driver_sql(raise_sql)


def test_a_serialization_failure_is_tried_again_and_repeats_nothing(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    in_postgres.add(TOPIC, b"1", b"once")
    with relaying(in_postgres, broker.bootstrap, relay_class=MarkFailsOnce) as relay:
        wait_until(lambda: in_postgres.count() == 0)
        assert relay.trouble is None
        assert relay.figures().sent == 1
    assert len(broker.read_all(TOPIC)) == 1


def test_a_full_server_is_waited_for(postgres_directory: Path, broker: EmbeddedBroker) -> None:
    settings = {"max_connections": "6", "superuser_reserved_connections": "0"}
    settings["max_wal_senders"] = "0"
    with RealPostgres.start(postgres_directory, settings) as postgres:
        url = postgres.create_database("shop")
        with bench_at(url) as bench:
            bench.add(TOPIC, b"1", b"waits")
            bench.engine.dispose()
            hoard = sa.create_engine(url, pool_size=6)
            connections: list[sa.Connection] = []

            def is_full() -> bool:
                """Return whether all are taken: the server frees a closed one a moment later."""
                with suppress(sa.exc.OperationalError):
                    connections.append(hoard.connect())
                return len(connections) == 6

            wait_until(is_full)
            with relaying(bench, broker.bootstrap) as relay:
                wait_until(lambda: relay.trouble is not None)
                for connection in connections:
                    connection.close()
                hoard.dispose()
                (sent,) = arrived(broker, TOPIC, 1)
                assert sent.value() == b"waits"


def test_relays_share_the_shards(in_postgres: OutboxBench, broker: EmbeddedBroker) -> None:
    with in_postgres.engine.begin() as connection:
        for number in range(2_000):
            key = b"%d" % (number % 50)
            in_postgres.outbox.add(connection, TOPIC, key, b"%d" % number)
    with (
        relaying(in_postgres, broker.bootstrap, batch=5) as first,
        relaying(in_postgres, broker.bootstrap, batch=5) as second,
    ):
        wait_until(lambda: in_postgres.count() == 0)
        assert first.figures().sent > 0
        assert second.figures().sent > 0
    numbers = [int(each.value() or b"") for each in broker.read_all(TOPIC)]
    assert sorted(numbers) == list(range(2_000))
    for rest in range(50):
        own = [number for number in numbers if number % 50 == rest]
        assert own == sorted(own)


def test_one_relay_has_an_sqlite_file_and_the_next_takes_over(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    with bench_at(f"sqlite:///{tmp_path / 'shop.db'}") as bench:
        with relaying(bench, broker.bootstrap) as first:
            bench.add(TOPIC, b"1", b"first")
            wait_until(lambda: first.figures().sent == 1)
            with relaying(bench, broker.bootstrap) as second:
                bench.add(TOPIC, b"1", b"second")
                wait_until(lambda: first.figures().sent == 2)
                assert second.figures().sent == 0
        with relaying(bench, broker.bootstrap) as third:
            bench.add(TOPIC, b"1", b"third")
            wait_until(lambda: third.figures().sent == 1)


def test_no_transaction_is_open_for_long_while_kafka_is_away(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    broker.broker_down()
    in_postgres.add(TOPIC, b"1", b"waits")
    longest = 0.0
    age = sa.text(
        "SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with relaying(in_postgres, broker.bootstrap) as relay:
        ends = time.monotonic() + 12
        while time.monotonic() < ends:
            with in_postgres.engine.connect() as connection:
                longest = max(longest, float(connection.scalar(age) or 0))
            time.sleep(0.05)  # a transaction that stays open has the time to become too old
        assert relay.trouble is not None
    assert 0.5 < longest <= 5.0


def test_the_check_asks_for_the_table(url: str) -> None:
    database = OutboxDatabase.of(OutboxConfig(database=url, table="elsewhere"))
    with pytest.raises(WrongTableError):
        database.check()
    database.engine.dispose()


def test_a_commit_wakes_the_relay_of_its_process(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    with relaying(in_postgres, broker.bootstrap, poll_s=60.0):
        for number in range(1, 4):
            in_postgres.add(TOPIC, b"1", b"%d" % number)
            assert arrived(broker, TOPIC, number)[-1].value() == b"%d" % number


def test_statements_are_not_prepared_where_prepared_ones_get_lost(in_postgres: OutboxBench) -> None:
    """As behind a PgBouncer that gives each transaction another connection."""
    engine = in_postgres.database().engine
    with engine.connect() as connection:
        assert driver_of(connection).prepare_threshold is not None
        with pytest.raises(sa.exc.DBAPIError):
            connection.exec_driver_sql("EXECUTE lost")
    engine.dispose()
    with engine.connect() as connection:
        assert driver_of(connection).prepare_threshold is None
    engine.dispose()


def driver_of(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
