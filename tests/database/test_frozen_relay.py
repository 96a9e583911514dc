"""A relay that was frozen, and wakes when another has taken its place: it sends nothing old."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from attrs import define, field
from confluent_kafka import TopicPartition

from tests.conftest import ConsumerOf, MakeTopic
from tests.database.conftest import OutboxBench, relaying
from tests.database.test_bad_days import kill_others
from tests.kernel import client_log
from tests.waiting import wait_until
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.database.outbox.sender import (
    KafkaOutboxSender,
    OutboxSender,
    RelayTurn,
    RowsInFlight,
)
from window_consumer.testing.real_kafka import RealKafka

LAST = 20


@define
class FreezingSender:
    """Freezes before it sends what it was given, while its gate is closed."""

    sender: OutboxSender
    gate: threading.Event = field(factory=threading.Event)
    frozen: threading.Event = field(factory=threading.Event)

    def begin(self, rows: Sequence[OutboxRow], timeout_s: float, turn: RelayTurn) -> RowsInFlight:
        if not self.gate.is_set():
            self.frozen.set()
        assert self.gate.wait(60)
        return self.sender.begin(rows, timeout_s, turn)


def values(consumer_of: ConsumerOf, kafka: RealKafka, topic: str, most: int) -> list[int]:
    """Return what can be read, committed or not, until ``most`` was seen and a moment longer."""
    found: list[int] = []
    settings = {"bootstrap.servers": kafka.bootstrap, "isolation.level": "read_uncommitted"}
    ends = time.monotonic() + 30
    with consumer_of(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < ends:
            found += [int(each.value() or b"") for each in consumer.consume(1000, 0.5)]
            if most in found:
                ends = min(ends, time.monotonic() + 1)
    return found


@pytest.mark.parametrize("has_sent", [True, False], ids=["it-has-sent", "it-is-new"])
def test_a_relay_that_wakes_sends_no_old_row(
    in_postgres: OutboxBench,
    kafka: RealKafka,
    make_topic: MakeTopic,
    consumer_of: ConsumerOf,
    has_sent: bool,  # noqa: FBT001 - of a table
) -> None:
    topic = make_topic("events")
    sender = FreezingSender(
        KafkaOutboxSender({"bootstrap.servers": kafka.bootstrap, "log_level": 0}, client_log())
    )
    if has_sent:
        sender.gate.set()
    with relaying(in_postgres, kafka.bootstrap, sender=sender):
        if has_sent:
            in_postgres.add(topic, b"key", b"0")
            wait_until(lambda: in_postgres.count() == 0)
            sender.gate.clear()
        for number in (1, 2, 3):
            in_postgres.add(topic, b"key", b"%d" % number)
        assert sender.frozen.wait(30)
        kill_others(in_postgres)  # as PostgreSQL does after 5 s
        in_postgres.engine.dispose()
        with relaying(in_postgres, kafka.bootstrap):
            for number in range(4, LAST + 1):
                in_postgres.add(topic, b"key", b"%d" % number)
            wait_until(lambda: in_postgres.count() == 0)
            sender.gate.set()
            found = values(consumer_of, kafka, topic, LAST)
            assert found[-1] == LAST
            assert list(dict.fromkeys(found)) == list(range(0 if has_sent else 1, LAST + 1))
            # The one that woke works on.
            in_postgres.add(topic, b"key", b"%d" % (LAST + 1))
            wait_until(lambda: in_postgres.count() == 0)
