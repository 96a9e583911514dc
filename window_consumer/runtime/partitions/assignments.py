"""Start assigned partitions: read what is committed and decide where to begin.

What must be ready before a partition starts comes first, see ``preparation``.

Each answer is read once: offset and finished ranges come from the same one. Where the cluster does
not answer, the partition stays paused and is retried while the others begin.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from window_consumer.engine.commits.commit_metadata import topic_hash
from window_consumer.engine.commits.lost_partitions import KeptOutcomes
from window_consumer.engine.commits.start_offset import (
    Found,
    OnNoOffset,
    needs_log,
    partitions_known,
    resolve,
)
from window_consumer.engine.decisions import Assigned
from window_consumer.model.errors import MissingTopicError, WindowConsumerError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.protocols import CommittedOffset, Source, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.preparation import (
    PartitionPreparation,
    PartitionPreparations,
)

ASK_S = 5.0
"""How long one request to the cluster may take, while the group waits for this member."""

LOGS_S = 1.0
"""How long the first request for a log's range may take. Late ranges are fetched later."""

RETRY_S = 1.0


class Assignments:
    """Resolves where partitions begin. Owner: poll thread."""

    def __init__(
        self,
        source: Source,
        on_no_offset: OnNoOffset,
        warn: Warn,
        copies: Container[str] = (),
        kept: KeptOutcomes | None = None,
        preparations: Sequence[PartitionPreparation] = (),
    ):
        self._source = source
        self._copies = copies
        """The ladder's topics, whose records are never skipped on purpose."""
        self._on_no_offset = on_no_offset
        self._warn = warn
        self.kept = KeptOutcomes(ordered=True) if kept is None else kept
        """The outcomes of lost partitions."""
        self._preparations = PartitionPreparations(preparations, warn)
        """What must be ready first."""
        self._unread: dict[TopicPartition, str] = {}
        """Partitions that cannot begin yet, each with the reason."""
        self._retry_at = 0.0
        self.topic_ids: dict[TopicPartition, str | None] = {}
        """The id that each partition's topic had when the partition was assigned."""
        self._first_ids: dict[str, str] = {}
        """The id of each topic when this worker first saw it, assigned or not."""
        self._appeared: set[str] = set()
        """Topics that match a pattern and appeared after this worker began."""

    def resolve(self, names: Sequence[TopicPartition], now: float) -> list[Assigned]:
        """Return where to begin, without the partitions that have to wait; ``retry`` returns those.

        Raises NoOffsetError where ``on_no_offset`` demands it.
        """
        ready = self._preparations.begin(names, now)
        return self._try(ready, now) if ready else []

    def _try(self, names: Sequence[TopicPartition], now: float) -> list[Assigned]:
        before = {name: self._unread.pop(name, None) for name in names}
        late: dict[TopicPartition, WindowConsumerError] = {}
        try:
            assigned = self._resolve(names, late)
        except WorkerStoppedError:
            raise
        except WindowConsumerError as error:
            assigned, late = [], dict.fromkeys(names, error)
        reasons = {name: str(reason) for name, reason in late.items()}
        if reasons:
            self._unread.update(reasons)
            self._retry_at = now + RETRY_S
        for text in dict.fromkeys(reasons.values()):
            whose = [name for name, reason in reasons.items() if reason == text]
            if any(before[name] != text for name in whose):
                shown = ", ".join(map(str, whose))
                self._warn(
                    LogEvent.PARTITION_POSTPONED, f"{shown}: cannot begin yet, trying again: {text}"
                )
        return assigned

    def prepare(self, name: TopicPartition, now: float) -> bool:
        """Make a partition ready that begins anew; if that takes a while, ``retry`` returns it."""
        return bool(self._preparations.begin([name], now))

    def retry(self, now: float) -> list[Assigned]:
        """Return where to begin with partitions that had to wait, and now need not."""
        self.kept.expire(now)
        names = self._preparations.advance(now)
        if self._unread and now >= self._retry_at:
            names = sorted({*names, *self._unread})
        return self._try(names, now) if names else []

    def record_ids(self, facts: Mapping[str, TopicFacts]) -> None:
        """Record topic ids: a topic with another id later was recreated."""
        for topic, each in facts.items():
            if each.topic_id:
                self._first_ids.setdefault(topic, each.topic_id)

    def appeared(self, topics: Iterable[str]) -> None:
        """Record topics that are new to the cluster; they are read from their beginning."""
        self._appeared.update(topics)

    def made_anew(self, facts: Mapping[str, TopicFacts]) -> list[TopicPartition]:
        """Return the partitions whose topic has another id than when they were assigned."""
        return [
            name
            for name, before in self.topic_ids.items()
            if before and (now := facts.get(name.topic)) and now.topic_id not in {None, before}
        ]

    def remove(self, names: Sequence[TopicPartition]) -> None:
        """Remove partitions that are no longer ours."""
        self._preparations.remove(names)
        for name in names:
            self._unread.pop(name, None)
            self.topic_ids.pop(name, None)

    def cancel(self) -> None:
        """Begin with no further partition: the worker ends."""
        self._preparations.cancel()
        self._unread.clear()

    def _resolve(
        self, names: Sequence[TopicPartition], late: dict[TopicPartition, WindowConsumerError]
    ) -> list[Assigned]:
        """Return where to begin; ``late`` gets the errors that concern one partition alone."""
        facts = self._source.facts(sorted({name.topic for name in names}), ASK_S)
        for name in names:
            if name.topic not in facts:
                late[name] = MissingTopicError(f"the cluster has no topic {name.topic} (any more)")
        there = [name for name in names if name not in late]
        self.record_ids(facts)
        committed = self._committed(there, facts) if there else {}
        logs = self._logs(there, committed, facts)
        assigned = []
        for name in there:
            log = logs.get(name, (0, 0))
            if isinstance(log, WindowConsumerError):
                late[name] = log
            else:
                assigned.append(self._begin(name, committed, facts[name.topic], log))
                self.topic_ids[name] = facts[name.topic].topic_id
        return assigned

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
    ) -> Assigned:
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
        kept = self.kept.recall(name, committed[name], hashed, log[1])
        found = Found(
            name,
            committed[name],
            log,
            hashed,
            facts.topic_id,
            known,
            facts.partitions,
            kept,
            self.kept.keeps_finished,
        )
        start = resolve(found, rule)
        if start.event is not None:
            self._warn(start.event, start.warning)
        return start.assigned

    def _is_another(self, topic: str, facts: TopicFacts) -> bool:
        return bool(facts.topic_id) and self._first_ids.get(topic) != facts.topic_id

    def _committed(
        self, names: Sequence[TopicPartition], facts: Mapping[str, TopicFacts]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Read our offsets, and where one is missing, those of its whole topic."""
        ours = self._source.committed(names, ASK_S)
        without = sorted({name.topic for name in names if ours[name].next_offset is None})
        others = [
            other
            for topic in without
            for partition in range(facts[topic].partitions)
            if (other := TopicPartition(topic, partition)) not in ours
        ]
        return {**self._source.committed(others, ASK_S), **ours} if others else ours
