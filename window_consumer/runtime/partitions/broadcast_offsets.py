"""Where the partitions of a worker begin that reads all of them and commits nothing."""

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
"""Where reading begins; a number is an age in seconds."""


class CatchUp:
    """Whether everything has been handled that was in the logs when a worker began.

    Owner: poll thread; any thread may read ``is_done`` and ``records``.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.records = 0
        """How many records are left, as far as the ends of the logs are known. Holes count."""
        self._behind: dict[TopicPartition, int | None] | None = None
        """The end (exclusive) of each log, None where it is not known yet; None before the first
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
        """Take a partition whose log is another one now: what is in it has to be handled, too."""
        if self._behind is not None and not self.is_done:
            self._behind[name] = end

    def advance(self, engine: Engine) -> None:
        """Drop the partitions whose records are handled up to the end that was seen."""
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

    A commit's offset may be lower: a cell that holds the end of the log may stay open for later
    records.
    """
    first = partition.first_unfinished
    return engine.guarantee.progress(partition)[0] if first is None else first


class BroadcastOffsets(StartOffsets):
    """Begins by ``broadcast.from``; partitions that come later begin at their earliest record.

    A partition that was released, and comes again, continues where it was.
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
        """Return where partitions begin that this process has not read yet."""
        begin = self._rule
        offsets = {name: low for name, (low, _) in logs.items()}
        first = {name: log for name, log in logs.items() if name in (self._first or ())}
        if begin == "latest":
            offsets |= {name: end for name, (_, end) in first.items()}
        elif begin != "earliest" and first:
            since_ms = self._clock.wall_ms() - round(begin * 1000)
            offsets |= self._source.offsets_at(first, since_ms, ASK_S)
        return offsets
