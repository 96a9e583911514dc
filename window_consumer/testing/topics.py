"""The topics of an application under test: their readers, their contents, and groups' commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from window_consumer.config import TopicNames
from window_consumer.dlq.dead_letter import DeadLetter, read_dead_letter
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.topics.state_topics import StateTopic
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.journal import DeliveryPosition, Handling
from window_consumer.testing.stepped_worker import SteppedWorker


class TestTopics:
    """Creates the topics of a plan, and reads them. Owner: one thread."""

    __test__ = False  # pytest would take it for a class of tests

    def __init__(self, broker: FakeBroker, plan: AppPlan):
        self._broker = broker
        self._plan = plan
        self.sources: dict[str, set[str]] = {each.name: set() for each in plan.workers}
        """The topics that each worker reads, except those of its ladder."""

    def create(
        self, topics: Mapping[str, int], partitions: int, state_topics: Iterable[StateTopic]
    ) -> None:
        """Create these topics, and the configuration's topics with this number of partitions."""
        named = [topic for worker in self._plan.workers for topic in worker.config.topics]
        states = dict.fromkeys((each.name for each in state_topics), 1)
        for topic, count in {**states, **dict.fromkeys(named, partitions), **topics}.items():
            self._broker.create_topic(topic, count)

    def find_sources(self, workers: Iterable[SteppedWorker]) -> None:
        """Add the topics that workers read now."""
        for worker in workers:
            own = self._plan.config.workers[worker.name]
            self.sources[worker.name].update(
                topic
                for topic in worker.source.topics
                if not TopicNames(own, self._plan.config.topics).is_read(topic)
            )

    def dead_letters(self) -> list[DeadLetter]:
        """Return the contents of the dead-letter topics, by topic, partition and offset."""
        names = {
            TopicNames(worker.config, self._plan.config.topics).dlq(topic)
            for worker in self._plan.workers
            for topic in self.sources[worker.name]
        }
        return [letter for name in sorted(names) for letter in self._in(name)]

    def copy_of(self, handling: Handling) -> DeadLetter | None:
        """Return a record's last copy, or None."""
        sources = self.sources[handling.worker]
        group = self._plan.config.workers[handling.worker].group
        copies = [
            copy
            for topic in self._broker.topics.by_name
            if topic not in sources
            for copy in self._in(topic)
            if copy.group == group
            and copy.original
            and DeliveryPosition(*copy.original) == handling.place
        ]
        return max(copies, key=lambda copy: copy.attempts or 0, default=None)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets (exclusive), by topic and partition."""
        names = (log.name for topic in self._broker.topics.by_name.values() for log in topic.logs)
        found = {name: self._broker.group(group).committed(name).next_offset for name in names}
        return {name: offset for name, offset in found.items() if offset is not None}

    def _in(self, topic: str) -> Iterator[DeadLetter]:
        found = self._broker.topics.by_name.get(topic)
        for log in found.logs if found is not None else ():
            yield from map(read_dead_letter, log.messages)
