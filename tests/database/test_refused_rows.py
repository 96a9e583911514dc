"""What Kafka refuses: a batch as a whole, where one row is to blame."""

from __future__ import annotations

import os
import time
import uuid

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.conftest import ConsumerOf, MakeTopic
from tests.database.conftest import OutboxBench, relaying
from tests.waiting import wait_until
from window_consumer.database.outbox.row import hash_of
from window_consumer.model.produce import Produce
from window_consumer.testing.real_kafka import RealKafka

ROWS = 3_000
KEYS = 50
BAD = b"7"
"""The key of a row that is too large."""

LARGE = 999_999
"""The number of that row."""


def fill(bench: OutboxBench, topic: str) -> tuple[str, str]:
    """Add rows of 1 KiB, and among them two that cannot be written; return the ids of these."""
    value = os.urandom(1024)
    rows = [Produce(topic, b"%d" % (each % KEYS), b"%06d" % each + value) for each in range(ROWS)]
    shard = hash_of(topic, BAD, uuid.UUID(int=0)) % bench.outbox.shards
    beside = uuid.uuid4()
    while hash_of(topic, None, beside) % bench.outbox.shards != shard:
        beside = uuid.uuid4()
    with bench.engine.begin() as connection:
        bench.outbox.insert(connection, bench.outbox.rows(rows[: ROWS // 2]))
        large = bench.outbox.add(connection, topic, BAD, b"%d" % LARGE + os.urandom(40_000))
        keyless = bench.outbox.add(connection, topic, None, b"000000 needs a key", id=beside)
        bench.outbox.insert(connection, bench.outbox.rows(rows[ROWS // 2 :]))
    return str(large), str(keyless)


def read(
    consumer_of: ConsumerOf, kafka: RealKafka, topic: str, most: int
) -> dict[bytes, list[int]]:
    """Return the numbers of each key's records in their order, each where it came first."""
    found: dict[bytes, list[int]] = {}
    ends = time.monotonic() + 30
    with consumer_of({"bootstrap.servers": kafka.bootstrap}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while sum(map(len, found.values())) < most and time.monotonic() < ends:
            for message in consumer.consume(1000, 0.2):
                numbers = found.setdefault(message.key() or b"", [])
                number = int((message.value() or b"")[:6])
                if number not in numbers:
                    numbers.append(number)
    return found


def refused(bench: OutboxBench) -> set[str]:
    return {str(row.id) for row in bench.rows() if row.status in {"failed", "blocked"}}


def alter(kafka: RealKafka, topic: str, config: dict[str, str]) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.parametrize("on_refused", ["skip", "block"])
def test_only_rows_that_are_to_blame_for_a_refused_batch_are_refused(
    in_postgres: OutboxBench,
    kafka: RealKafka,
    make_topic: MakeTopic,
    consumer_of: ConsumerOf,
    on_refused: str,
) -> None:
    topic = make_topic("events", 1, {"max.message.bytes": "20000", "cleanup.policy": "compact"})
    large, keyless = fill(in_postgres, topic)
    behind = 0 if on_refused == "skip" else ROWS // KEYS // 2
    waits = in_postgres.table.c.status == "waiting"
    with relaying(in_postgres, kafka.bootstrap, on_refused=on_refused, refused_again_s=1.0):
        wait_until(lambda: in_postgres.count(waits) == behind)
        assert refused(in_postgres) == {large, keyless}
        assert in_postgres.count(waits) == behind
        # Not one row of the key has passed the one that waits.
        before = read(consumer_of, kafka, topic, ROWS - behind)
        last = ROWS if on_refused == "skip" else ROWS // 2
        assert before.pop(BAD) == list(range(int(BAD), last, KEYS))
        assert before == {
            b"%d" % key: list(range(key, ROWS, KEYS)) for key in range(KEYS) if key != int(BAD)
        }
        if on_refused == "block":
            alter(kafka, topic, {"max.message.bytes": "100000", "cleanup.policy": "delete"})
            wait_until(lambda: in_postgres.count() == 0)
            after = read(consumer_of, kafka, topic, ROWS + 2)
            numbers = list(range(int(BAD), ROWS, KEYS))
            assert after[BAD] == [*numbers[:behind], LARGE, *numbers[behind:]]
