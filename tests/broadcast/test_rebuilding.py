"""A cache is rebuilt from logs as a real Kafka keeps them: compacted, cut, and while they grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.broadcast.test_worker import WAIT_S, Replica, is_ready
from tests.waiting import wait_until
from window_consumer.testing.real_kafka import RealKafka

COMPACTED = {
    "cleanup.policy": "compact,delete",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
OLD_S = 60
"""The age of records by their timestamps: what comes next begins another segment."""

MakePrices = Callable[..., "Prices"]


class Prices:
    """A topic, and clients that change it."""

    def __init__(self, kafka: RealKafka, topic: str) -> None:
        self.topic = topic
        self.client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap}
        self.settings = {**self.client, "fetch.wait.max.ms": 10}
        self.admin = AdminClient(self.client)

    def write(self, partition: int, *keys: bytes) -> None:
        self._write(Producer(self.client), partition, keys)

    def abort(self, partition: int, *keys: bytes) -> None:
        """Write an aborted transaction, whose marker is in a segment of its own."""
        producer = Producer({**self.client, "transactional.id": f"{self.topic}-{partition}"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        self._write(producer, partition, keys)
        producer.abort_transaction(WAIT_S)

    def _write(self, producer: Producer, partition: int, keys: tuple[bytes, ...]) -> None:
        old_ms = round((time.time() - OLD_S) * 1000)
        for key in keys:
            producer.produce(self.topic, b"value", key, partition=partition, timestamp=old_ms)
        producer.flush(WAIT_S)

    def delete(self, partition: int, before: int) -> None:
        """Delete records as retention does."""
        at = ClientPartition(self.topic, partition, before)
        for future in self.admin.delete_records([at]).values():
            future.result(WAIT_S)

    def places(self) -> list[tuple[int, int]]:
        """Return which records are there, those of aborted transactions included."""
        found = reading.read_all({**self.client, "isolation.level": "read_uncommitted"}, self.topic)
        return [(each.partition() or 0, each.offset() or 0) for each in found]

    def ends(self) -> list[int]:
        return [span.end for _, span in sorted(reading.spans(self.client, self.topic).items())]


@pytest.fixture
def make_prices(kafka: RealKafka, make_topic: Callable[..., str]) -> MakePrices:
    return lambda *args: Prices(kafka, make_topic("prices", *args))


def test_a_worker_is_ready_though_the_last_offsets_were_cleaned_or_deleted(
    make_prices: MakePrices, tmp_path: Path
) -> None:
    """Partition 0 ends with a hole and a marker, 1 has nothing else; 2 was emptied, 3 is new."""
    prices = make_prices(4, COMPACTED)
    prices.write(0, b"bread", b"milk", b"bread", b"milk")
    prices.abort(0, b"bread")
    prices.abort(1, b"bread")
    prices.write(2, b"bread", b"milk")
    prices.delete(2, 2)
    wait_until(lambda: prices.places() == [(0, 2), (0, 3)], WAIT_S, "compaction")
    assert prices.ends() == [6, 2, 2, 0]
    replica = Replica(prices.topic)
    with replica.start(tmp_path / "workers.yaml", prices.settings) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        assert replica.handled == [(0, 2), (0, 3)]


@pytest.mark.parametrize("records", [0, 5], ids=["empty", "with records"])
def test_a_topic_that_is_recreated_while_it_rebuilds_is_rebuilt_from_its_beginning(
    make_prices: MakePrices, tmp_path: Path, records: int
) -> None:
    """The ends of the deleted topic are never reached; those of the new one count."""
    prices = make_prices(2)
    for partition in range(2):
        prices.write(partition, b"bread", b"milk", b"eggs")
    replica = Replica(prices.topic)
    replica.gate.clear()
    with replica.start(tmp_path / "workers.yaml", prices.settings, concurrency=2) as running:
        loop = running.workers[0].loop
        wait_until(lambda: loop.catching_up == 6, WAIT_S, "it knows the ends")
        topics.make_anew(prices.admin, NewTopic(prices.topic, 2, 1))
        if records:
            prices.write(1, *(b"%d" % number for number in range(records)))
        wait_until(lambda: prices.ends() == [0, records], WAIT_S, "the new topic is there")
        left = records or None
        wait_until(lambda: loop.catching_up == left, WAIT_S, "it knows the new ends")
        assert is_ready(running) == (not records)
        replica.gate.set()
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        new = {(1, offset) for offset in range(3, records)}  # the old ones ended before
        assert new <= set(replica.handled)


def test_what_comes_while_it_rebuilds_does_not_keep_it_from_being_ready(
    make_prices: MakePrices, tmp_path: Path
) -> None:
    prices = make_prices(1)
    prices.write(0, b"bread")
    replica = Replica(prices.topic)
    replica.gate.clear()
    with replica.start(tmp_path / "workers.yaml", prices.settings) as running:
        loop = running.workers[0].loop
        wait_until(lambda: loop.catching_up == 1, WAIT_S, "it has its partition")
        topics.widen(prices.admin, prices.topic, 2)
        prices.write(1, b"milk")
        wait_until(lambda: len(running.workers[0].engine.partitions) == 2, WAIT_S, "it has both")
        assert not is_ready(running)
        replica.gate.set()
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        wait_until(lambda: sorted(replica.handled) == [(0, 0), (1, 0)], WAIT_S, "all is handled")
