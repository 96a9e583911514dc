"""Where assigned partitions begin: after their group's committed offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence

from window_consumer.engine.commits.commit_metadata import topic_hash
from window_consumer.engine.commits.lost_partitions import KeptOutcomes
from window_consumer.engine.commits.start_offset import (
    Found,
    OnNoOffset,
    Start,
    needs_log,
    partitions_known,
    resolve,
)
from window_consumer.engine.partition import Partition
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.protocols import CommittedOffset, Source, TopicFacts
from window_consumer.model.record import TopicPartition

ASK_S = 5.0
"""How long one request to the cluster may take, while the group waits for this member."""

LOGS_S = 1.0
"""How long the first request for a log's range may take. Late ranges are fetched later."""


class StartOffsets(ABC):
    """Decides where partitions begin. Owner: poll thread."""

    @abstractmethod
    def find(
        self, names: Sequence[TopicPartition], facts: Mapping[str, TopicFacts]
    ) -> Mapping[TopicPartition, Start | WindowConsumerError]:
        """Return where each partition begins, or why it cannot begin yet.

        ``facts`` has their topics. Raise a WindowConsumerError if none can begin yet, and
        WorkerStoppedError if the rules forbid a start.
        """

    def assigned(self, names: Sequence[TopicPartition]) -> None:  # noqa: B027 - one kind asks
        """Record an assignment; ``find`` follows, perhaps later."""

    def begin_again(self, names: Sequence[TopicPartition]) -> None:  # noqa: B027 - as above
        """Record that this member restarts them itself: no process has ended."""

    def lost(self, partition: Partition, now: float) -> None:  # noqa: B027 - as above
        """Before a lost partition is released, keep the state that it needs if it returns."""

    def remove(self, names: Sequence[TopicPartition]) -> None:  # noqa: B027 - as above
        """Drop partitions that are given up, or whose log was replaced."""

    def expire(self, now: float) -> None:  # noqa: B027 - as above
        """Discard the kept state of partitions lost long ago."""

    def record_ids(self, facts: Mapping[str, TopicFacts]) -> None:  # noqa: B027 - as above
        """Record topic ids, to detect recreated topics by their new id."""

    def appeared(self, topics: Iterable[str]) -> None:  # noqa: B027 - as above
        """Record topics that are new to the cluster; they are read from their beginning."""

    def begins_anew(self, name: TopicPartition, end: int | None) -> None:  # noqa: B027 - as above
        """Record that a partition's log was replaced or truncated, so its offsets start over.

        ``end`` is the current end of that log, None while it is unknown.
        """


class CommittedStartOffsets(StartOffsets):
    """Begins after the group's commits, or by a rule if there are none.

    Offset and finished ranges come from the same answer.
    """

    def __init__(
        self,
        source: Source,
        on_no_offset: OnNoOffset,
        warn: Warn,
        copies: Container[str] = (),
        kept: KeptOutcomes | None = None,
    ):
        self._source = source
        self._on_no_offset = on_no_offset
        self._warn = warn
        self._copies = copies
        """The ladder's topics, whose records are never skipped on purpose."""
        self.kept = KeptOutcomes(ordered=True) if kept is None else kept
        """The outcomes of lost partitions."""
        self._again: set[TopicPartition] = set()
        """Partitions that this member restarts itself."""
        self._first_ids: dict[str, str] = {}
        """The id of each topic when this worker first saw it, assigned or not."""
        self._appeared: set[str] = set()
        """Topics that match a pattern and appeared after this worker began."""

    def lost(self, partition: Partition, now: float) -> None:
        """Keep its outcomes: its offset may be unchanged when it returns."""
        self.kept.keep(partition, now)

    def begin_again(self, names: Sequence[TopicPartition]) -> None:
        """See StartOffsets."""
        self._again.update(names)

    def remove(self, names: Sequence[TopicPartition]) -> None:
        """See StartOffsets."""
        self._again.difference_update(names)

    def expire(self, now: float) -> None:
        """See StartOffsets."""
        self.kept.expire(now)

    def record_ids(self, facts: Mapping[str, TopicFacts]) -> None:
        """See StartOffsets."""
        for topic, each in facts.items():
            if each.topic_id:
                self._first_ids.setdefault(topic, each.topic_id)

    def appeared(self, topics: Iterable[str]) -> None:
        """See StartOffsets."""
        self._appeared.update(topics)

    def find(
        self, names: Sequence[TopicPartition], facts: Mapping[str, TopicFacts]
    ) -> Mapping[TopicPartition, Start | WindowConsumerError]:
        """See StartOffsets. Raises NoOffsetError if ``on_no_offset`` demands it."""
        committed = self._committed(names, facts) if names else {}
        logs = self._logs(names, committed, facts)
        found: dict[TopicPartition, Start | WindowConsumerError] = {}
        for name in names:
            log = logs.get(name, (0, 0))
            if isinstance(log, WindowConsumerError):
                found[name] = log
            else:
                found[name] = self._begin(name, committed, facts[name.topic], log)
        return found

    def _logs(
        self,
        names: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
        facts: Mapping[str, TopicFacts],
    ) -> Mapping[TopicPartition, tuple[int, int] | WindowConsumerError]:
        """Fetch the log ranges that matter."""
        hashes = {topic: topic_hash(each.topic_id) for topic, each in facts.items()}
        requested = [
            name
            for name in names
            if self.kept.knows(name) or needs_log(committed[name], hashes[name.topic])
        ]
        return self._source.log_ranges(requested, LOGS_S) if requested else {}

    def _begin(
        self,
        name: TopicPartition,
        committed: Mapping[TopicPartition, CommittedOffset],
        facts: TopicFacts,
        log: tuple[int, int],
    ) -> Start:
        hashed = topic_hash(facts.topic_id)
        siblings = [each for other, each in committed.items() if other.topic == name.topic]
        known = partitions_known(siblings, facts.partitions)
        rule = self._on_no_offset
        if committed[name].next_offset is None and self._is_another(name.topic, facts):
            # Its offsets went with the old topic, and the new one's records were never skipped on
            # purpose.
            rule = "earliest"
            self._warn(
                LogEvent.TOPIC_RECREATED,
                f"{name.topic} was deleted and recreated: reading it from its beginning",
            )
        if name.topic in self._copies or name.topic in self._appeared:
            # Like added partitions: their first records were never skipped on purpose.
            rule = "earliest"
        found = Found(
            name,
            committed[name],
            log,
            hashed,
            facts.topic_id,
            known,
            facts.partitions,
            self.kept.recall(name, committed[name], hashed, log[1]),
            self.kept.keeps_finished,
            name in self._again,
        )
        self._again.discard(name)
        return resolve(found, rule)

    def _is_another(self, topic: str, facts: TopicFacts) -> bool:
        return bool(facts.topic_id) and self._first_ids.get(topic) != facts.topic_id

    def _committed(
        self, names: Sequence[TopicPartition], facts: Mapping[str, TopicFacts]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Read our offsets; if one is missing, read those of its whole topic."""
        ours = self._source.committed(names, ASK_S)
        without = sorted({name.topic for name in names if ours[name].next_offset is None})
        others = [
            other
            for topic in without
            for partition in range(facts[topic].partitions)
            if (other := TopicPartition(topic, partition)) not in ours
        ]
        return {**self._source.committed(others, ASK_S), **ours} if others else ours
