"""Start offsets for a worker that reads all partitions and commits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import evolve

from window_consumer.engine.commits.broadcast import HandledPosition
from window_consumer.engine.commits.commit_metadata import topic_hash
from window_consumer.engine.commits.start_offset import Start
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.protocols import Clock, Source, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.start_offsets import ASK_S, LOGS_S, StartOffsets

BroadcastBegin = Literal["earliest", "latest"] | float
"""The start of reading; a number is an age in seconds."""


class CatchUp:
    """Whether a worker has handled everything that was in the logs at its start.

    Owner: poll thread; any thread may read ``is_done`` and ``records``.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.records = 0
        """The number of remaining records up to the known ends of the logs, including holes."""
        self._behind: dict[TopicPartition, int | None] | None = None
        """The end (exclusive) of each log, None while it is unknown; None before the first
        assignment."""

    def begin(self, names: Sequence[TopicPartition]) -> None:
        """Take the first partitions; later ones do not count."""
        if self._behind is None:
            self._behind = dict.fromkeys(names)

    def has_end(self, name: TopicPartition, end: int) -> None:
        """Record where a log ended at first sight."""
        if self._behind and self._behind.get(name, end) is None:
            self._behind[name] = end

    def remove(self, names: Sequence[TopicPartition]) -> None:
        """Drop partitions that no longer exist."""
        for name in names:
            if self._behind:
                self._behind.pop(name, None)

    def begin_anew(self, name: TopicPartition, end: int | None) -> None:
        """Take a partition whose log was replaced: the new log must be handled, too."""
        if self._behind is not None and not self.is_done:
            self._behind[name] = end

    def advance(self, engine: Engine) -> None:
        """Drop the partitions that are handled up to the recorded end."""
        if self.is_done or self._behind is None:
            return
        records = 0
        for name, end in list(self._behind.items()):
            partition = engine.partitions.get(name)
            if partition is not None and end is not None:
                handled = _handled_to(engine, partition)
                records += max(0, end - handled)
                if handled >= end:
                    del self._behind[name]
        self.records = records
        self.is_done = not self._behind


def _handled_to(engine: Engine, partition: Partition) -> int:
    """Return the offset before which everything is handled.

    A commit's offset may be lower: the cell at the end of the log may stay open for later records.
    """
    first = partition.first_unfinished
    return engine.guarantee.progress(partition)[0] if first is None else first


class BroadcastOffsets(StartOffsets):
    """Begins at ``broadcast.from``; later partitions begin at their earliest record.

    A partition that was released and returns continues where it was.
    """

    def __init__(
        self,
        source: Source,
        begin: BroadcastBegin,
        handled: Mapping[TopicPartition, HandledPosition],
        catch_up: CatchUp,
        clock: Clock,
    ):
        self._source = source
        self._rule = begin
        self._handled = handled
        self._catch_up = catch_up
        self._clock = clock
        self._first: set[TopicPartition] | None = None
        """Those of the first assignment that have not begun yet."""

    def assigned(self, names: Sequence[TopicPartition]) -> None:
        """See StartOffsets."""
        if self._first is None:
            self._first = set(names)
            self._catch_up.begin(names)

    def remove(self, names: Sequence[TopicPartition]) -> None:
        """See StartOffsets."""
        self._catch_up.remove(names)

    def begins_anew(self, name: TopicPartition, end: int | None) -> None:
        """See StartOffsets."""
        self._catch_up.begin_anew(name, end)

    def find(
        self, names: Sequence[TopicPartition], facts: Mapping[str, TopicFacts]
    ) -> Mapping[TopicPartition, Start | WindowConsumerError]:
        """See StartOffsets."""
        found: dict[TopicPartition, Start | WindowConsumerError] = {}
        known: dict[TopicPartition, tuple[int, int]] = {}
        for name, log in self._source.log_ranges(names, LOGS_S).items():
            if isinstance(log, WindowConsumerError):
                found[name] = log
            else:
                known[name] = log
        for name, offset in self._offsets(known).items():
            topic = facts[name.topic]
            self._catch_up.has_end(name, known[name][1])
            assigned = Assigned(
                name,
                offset,
                topic_hash=topic_hash(topic.topic_id),
                topic_id=topic.topic_id,
                known_partitions=topic.partitions,
                partitions=topic.partitions,
            )
            handled = self._handled.get(name)
            if handled is not None and handled.topic_id == topic.topic_id:
                assigned = evolve(
                    assigned, next_offset=handled.next_offset, finished=handled.finished
                )
            found[name] = Start(assigned)
            if self._first is not None:
                self._first.discard(name)
        return found

    def _offsets(
        self, logs: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, int]:
        """Return the start offsets of partitions that this process has not read yet."""
        begin = self._rule
        offsets = {name: low for name, (low, _) in logs.items()}
        first = {name: log for name, log in logs.items() if name in (self._first or ())}
        if begin == "latest":
            offsets |= {name: end for name, (_, end) in first.items()}
        elif begin != "earliest" and first:
            since_ms = self._clock.wall_ms() - round(begin * 1000)
            offsets |= self._source.offsets_at(first, since_ms, ASK_S)
        return offsets
