"""Starts assigned partitions once they are prepared and their start offsets are known.

First comes their ``preparation``, then their ``start_offsets``. If the cluster does not answer, a
partition stays paused and is retried, while the others begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from window_consumer.engine.commits.start_offset import Start
from window_consumer.engine.decisions import Assigned
from window_consumer.model.errors import MissingTopicError, WindowConsumerError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.protocols import Source, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.preparation import (
    PartitionPreparation,
    PartitionPreparations,
)
from window_consumer.runtime.partitions.start_offsets import ASK_S, StartOffsets

RETRY_S = 1.0


class Assignments:
    """Finds the start offsets of partitions. Owner: poll thread."""

    def __init__(
        self,
        source: Source,
        starts: StartOffsets,
        warn: Warn,
        preparations: Sequence[PartitionPreparation] = (),
    ):
        self._source = source
        self.starts = starts
        self._warn = warn
        self._preparations = PartitionPreparations(preparations, warn)
        """The preparations, which come first."""
        self._unread: dict[TopicPartition, str] = {}
        """Partitions that cannot begin yet, each with the reason."""
        self._retry_at = 0.0
        self.topic_ids: dict[TopicPartition, str | None] = {}
        """The id that each partition's topic had when the partition was assigned."""

    def resolve(self, names: Sequence[TopicPartition], now: float) -> list[Assigned]:
        """Return the start offsets; ``retry`` returns those of partitions that must wait.

        Raises WorkerStoppedError if the rules forbid a start.
        """
        self.starts.assigned(names)
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
        """Prepare a partition that restarts; if that takes a while, ``retry`` returns it."""
        return bool(self._preparations.begin([name], now))

    def retry(self, now: float) -> list[Assigned]:
        """Return the start offsets of partitions that no longer have to wait."""
        self.starts.expire(now)
        names = self._preparations.advance(now)
        if self._unread and now >= self._retry_at:
            names = sorted({*names, *self._unread})
        return self._try(names, now) if names else []

    def begin_again(self, names: Sequence[TopicPartition], now: float) -> list[Assigned]:
        """Return the start offsets of partitions that were just given up, like ``resolve``."""
        self.starts.begin_again(names)
        return self.resolve(names, now)

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
        self.starts.remove(names)
        for name in names:
            self._unread.pop(name, None)
            self.topic_ids.pop(name, None)

    def cancel(self) -> None:
        """Start no further partition: the worker ends."""
        self._preparations.cancel()
        self._unread.clear()

    def _resolve(
        self, names: Sequence[TopicPartition], late: dict[TopicPartition, WindowConsumerError]
    ) -> list[Assigned]:
        """Return the start offsets; ``late`` gets the errors of single partitions."""
        facts = self._source.facts(sorted({name.topic for name in names}), ASK_S)
        for name in names:
            if name.topic not in facts:
                late[name] = MissingTopicError(f"the cluster has no topic {name.topic} (any more)")
        self.starts.record_ids(facts)
        assigned = []
        for name, found in self.starts.find([n for n in names if n not in late], facts).items():
            if isinstance(found, Start):
                self.topic_ids[name] = facts[name.topic].topic_id
                assigned.append(found.assigned)
                if found.event is not None:
                    self._warn(found.event, found.warning)
            else:
                late[name] = found
        return assigned
