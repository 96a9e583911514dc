"""Parking in a simulation: the ladders of a member and a witness of its rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import frozen

from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.copy_record import Target
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import CopyTo
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.dead_head import DeadHeads
from window_consumer.parking.scans import LadderContents, LadderCopy
from window_consumer.parking.topics import parked
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.ladder_topics import LadderTopics
from window_consumer.simulator.log_history import Member, Tenure
from window_consumer.simulator.schedule import GROUP, copy_topic, park_topic
from window_consumer.testing.events import DeadLettered


@frozen(eq=False)
class SimulatedParking(Observer):
    """The ladders of one member and a witness of its rule. Owner: one thread."""

    member: Member
    history: SimulationHistory
    ladder: LadderTopics
    find_topics: Callable[[], Sequence[str]]
    """Returns the topics that the member reads."""
    order: Mapping[tuple[TopicPartition, int], int]
    """How many copies were written before each copy. Those that were put back are missing."""

    def park(self, partition: Partition, message: Message) -> CopyTo:
        """Return the copy of a record for its park topic."""
        source = partition.name.topic
        partitions = self.history.broker.topics.partitions
        topic = park_topic(source)
        return parked(
            partition, message, Target(topic, partitions(topic), partitions(source)), GROUP
        )

    def home_of(self, name: TopicPartition) -> TopicPartition | None:
        """See ``LadderReader``."""
        level = self.ladder.retry_levels.get(name.topic)
        source = name.topic if level is None else level.source
        exists = name.partition < self.history.broker.topics.partitions(source)
        return TopicPartition(source, name.partition) if exists else None

    def ladder_of(self, home: TopicPartition) -> Collection[TopicPartition]:
        """See ``LadderReader``."""
        topics = self.find_topics()
        levels = self.ladder.retry_levels
        return [
            TopicPartition(topic, home.partition)
            for topic in topics
            if topic in levels and levels[topic].source == home.topic
        ]

    def is_level(self, name: TopicPartition) -> bool:
        """See ``LadderReader``."""
        return self.ladder.retry_levels[name.topic].level is not None

    def read(self, partitions: Collection[TopicPartition]) -> LadderContents:
        """See ``LadderReader``."""
        broker = self.history.broker
        found = {}
        for name in partitions:
            log = broker.log(*name)
            begin = broker.group(GROUP).committed(name).next_offset or log.start
            copies = [each for each in log.messages if each.offset() >= begin]
            level = self.ladder.retry_levels[name.topic]
            hops = [(each, level.hop_of(each)) for each in copies]
            found[name] = [
                LadderCopy(
                    each.offset(),
                    key,
                    hop.offset,
                    self.order.get((name, each.offset()), len(self.order)),
                    topic_id=hop.topic_id,
                )
                for each, hop in hops
                if (key := each.key()) is not None
            ]
        return self._marked(found) if self.history.plan.follows else found

    def _marked(self, found: LadderContents) -> LadderContents:
        """Return copies with the dead heads that they follow."""
        homes = {name: home for name in found if (home := self.home_of(name)) is not None}
        heads = DeadHeads()
        topics = self.history.broker.topics.by_name
        # All partitions: a source that was widened may have more than its dead letters.
        for source in {home.topic for home in homes.values()}:
            for log in topics[copy_topic(source)].logs:
                for each in log.messages:
                    written = self.order[log.name, each.offset()]
                    heads.add(each.key(), dict(each.headers() or ()), written)
        return {name: heads.marked(home, found[name]) for name, home in homes.items()}

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Record the source's records whose copies are in the ladder, as if they were acked now."""
        del slice_, now
        if outcome is Outcome.PARKED:
            history = self.history
            tenure = history.tenure_of(self.member, partition)
            place = history.topic_of(tenure.ledger), partition.name.partition
            for message in messages:
                self._check_copy(tenure, message)
                history.finished(tenure, message.offset())
                history.events.append(DeadLettered(*place, message.offset()))

    def _check_copy(self, tenure: Tenure, message: Message) -> None:
        """Check that the ladder has or had a copy of a record that ends without a new one."""
        history = self.history
        record = history.record_of(tenure, message)
        copies = (
            each
            for ledger in history.ledgers.values()
            if ledger.log.name.topic in history.retry_levels
            for each in ledger.records.values()
        )
        if not any(each.first is record for each in copies):
            history.violate(f"{tenure.name}@{message.offset()} ends as parked but has no copy")
