"""Rows that somebody has locked hold up their keys, not the relay."""

from __future__ import annotations

import pytest

from tests.database.conftest import OutboxBench, arrived, relaying
from tests.logged import lines_of
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

TOPIC = "order-events"


def test_a_row_that_is_locked_holds_up_its_key_alone(
    in_postgres: OutboxBench, embedded: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    embedded.create_topic(TOPIC, 1)
    bench, key = in_postgres, in_postgres.table.c.key
    first = bench.add(TOPIC, b"1", b"1 first")
    bench.add(TOPIC, b"1", b"1 second")
    bench.add(TOPIC, b"2", b"2 first")
    lock = bench.table.select().where(bench.table.c.id == first).with_for_update()
    with bench.engine.connect() as somebody, somebody.begin():
        somebody.execute(lock)
        with relaying(bench, embedded.bootstrap) as relay:
            wait_until(lambda: bench.count(key == b"2") == 0)
            bench.add(TOPIC, b"2", b"2 second")
            bench.add(TOPIC, b"1", b"1 third")
            wait_until(lambda: bench.count(key == b"2") == 0)
            assert bench.count(key == b"1") == 3
            assert lines_of(caplog, LogEvent.OUTBOX_ROWS_LOCKED)
            sent = relay.figures().sent
            somebody.rollback()
            wait_until(lambda: bench.count() == 0)
            assert relay.figures().sent == sent + 3
    values = [each.value() for each in arrived(embedded, TOPIC, 5) if each.key() == b"1"]
    assert values[-3:] == [b"1 first", b"1 second", b"1 third"]
