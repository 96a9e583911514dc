"""What a scan reads of the ladder's topics, by what is committed there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from tests.commands import kafka_of
from tests.parking.test_worker import WAIT_S, copy_of
from window_consumer import App, Record
from window_consumer.engine.commits.commit_metadata import CommitNote, encode, topic_hash
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker
from window_consumer.model.record import TopicPartition
from window_consumer.parking.topics import ParkTopics

PARK = TopicPartition("g.orders.park", 0)


def _charge(record: Record) -> None:
    del record


class Ladder:
    """The park topic of a worker that does not run: it holds the records 1 to 4 of a key."""

    def __init__(self, broker: EmbeddedBroker, folder: Path):
        self.client = {"bootstrap.servers": broker.bootstrap}
        broker.create_topic("orders", 1)
        broker.create_topic(PARK.topic, 1)
        broker.fill(PARK.topic, [copy_of(number, b"PARKED") for number in (1, 2, 3, 4)])
        retry = {"on_failure": "park", "attempts": 1, "levels": ["200ms"]}
        worker = {"group": "g", "ordering": "key", "retry": retry}
        file = folder / "workers.yaml"
        content = {"kafka": kafka_of(broker), "workers": {"charge": worker}}
        file.write_text(yaml.safe_dump(content))
        app = App("shop")
        app.handler("orders", name="charge")(_charge)
        plan = app.plan(file)
        (self.worker,) = app.prepare(plan, start_timeout=WAIT_S).workers
        self._topics = ParkTopics(self.worker, plan.config.topics)

    def topic_id(self) -> str | None:
        """Return that of the park topic."""
        return self.worker.cluster.topics([PARK.topic])[PARK.topic].topic_id

    def commit(self, offset: int, metadata: str = "") -> None:
        with self._consumer() as consumer:
            place = ClientPartition(*PARK, offset, metadata)
            consumer.commit(offsets=[place], asynchronous=False)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer({**self.client, "group.id": "g", "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()

    def found(self) -> list[int]:
        """Return the original offsets that a scan finds."""
        contents = self._topics.read([PARK])
        return [each.offset for each in contents.get(PARK, ())]


@pytest.fixture
def ladder(embedded: EmbeddedBroker, tmp_path: Path) -> Ladder:
    return Ladder(embedded, tmp_path)


def note(offset: int, topic_id: str | None) -> str:
    text, _ = encode(CommitNote(offset, topic_hash(topic_id)))
    return text


def test_a_scan_begins_at_the_committed_offset(ladder: Ladder) -> None:
    assert ladder.found() == [1, 2, 3, 4]
    ladder.commit(2, note(2, ladder.topic_id()))
    assert ladder.found() == [3, 4]
    ladder.commit(4)
    assert ladder.found() == []


@pytest.mark.parametrize("offset", [2, 4, 9])
def test_the_offset_of_a_topic_that_was_recreated_since_does_not_count(
    ladder: Ladder, offset: int
) -> None:
    ladder.commit(offset, note(offset, "that of the earlier topic"))
    assert ladder.found() == [1, 2, 3, 4]


def test_an_offset_beyond_the_end_does_not_count(ladder: Ladder) -> None:
    """The worker, too, goes on at the log's beginning."""
    ladder.commit(9)
    assert ladder.found() == [1, 2, 3, 4]


def test_an_empty_ladder_is_asked_for_its_lag_and_not_read(
    ladder: Ladder, embedded: EmbeddedBroker
) -> None:
    ladder.commit(4, note(4, ladder.topic_id()))
    embedded.track_requests()
    assert ladder.found() == []
    asked = embedded.requests()
    assert (asked[ApiKey.OFFSET_FETCH], asked[ApiKey.LIST_OFFSETS]) == (1, 1)
    assert asked[ApiKey.FETCH] == 0
    ladder.commit(3)
    assert ladder.found() == [4]
    assert embedded.requests()[ApiKey.FETCH] > 0
