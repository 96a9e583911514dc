"""Parking in the test kit: the ladder is read when its source begins, when nothing moves."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future

from attrs import frozen

from window_consumer.config import TopicsConfig
from window_consumer.model.record import TopicPartition
from window_consumer.parking.index import ParkLimits
from window_consumer.parking.rules import Parking
from window_consumer.parking.scans import LadderContents, LadderCopy, LadderScans
from window_consumer.parking.topics import ParkTopics
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.testing.fakes.broker import FakeBroker


@frozen(kw_only=True)
class LaddersInMemory(ParkTopics):
    """The park topics and ladders of one worker under test. Owner: one thread."""

    broker: FakeBroker

    def read(self, partitions: Collection[TopicPartition]) -> LadderContents:
        """See ``LadderReader``."""
        group = self.broker.group(self.worker.plan.config.group)
        found = {}
        for name in partitions:
            log = self.broker.log(*name)
            begin = group.committed(name).next_offset or log.start
            level = self.worker.retry_levels[name.topic]
            found[name] = [
                LadderCopy(each.offset(), key, hop.offset, topic_id=hop.topic_id)
                for each, hop in ((each, level.hop_of(each)) for each in log.messages)
                if each.offset() >= begin and (key := each.key()) is not None
            ]
        return found


class ScansAtOnce(LadderScans):
    """Reads the ladder on request, without a preparation."""

    def scan_again(self, home: TopicPartition) -> Future[None]:
        """Return at once: ``take`` reads it."""
        del home
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def take(self, home: TopicPartition) -> LadderContents:
        """Return the contents of the ladder."""
        return self._reader.read(self._reader.ladder_of(home))


def parking_of(worker: PreparedWorker, names: TopicsConfig, broker: FakeBroker) -> Parking | None:
    """Return the rule of a worker that parks, or has records in its park topics."""
    config = worker.plan.config
    topics = LaddersInMemory(worker=worker, names=names, broker=broker)
    if not (config.parks or topics.are_left):
        return None
    section = config.retry.park
    return Parking(
        ParkLimits(section.max_keys, section.max_records),
        topics.park if config.parks else None,
        ScansAtOnce(topics),
        follows=section.on_dead == "follow",
    )
