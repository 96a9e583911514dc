"""Resets the read position if it lies outside the log, or if the topic was recreated.

If the cluster does not answer, the partition waits and is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal

from window_consumer.engine.commits.commit_metadata import topic_hash
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.engine import Engine
from window_consumer.model.errors import WindowConsumerError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Source, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.assignments import RETRY_S, Assignments
from window_consumer.runtime.partitions.start_offsets import ASK_S, LOGS_S
from window_consumer.runtime.worker_log import WorkerLog

OnOutOfRange = Literal["fail", "earliest", "latest"]


class OffsetResets:
    """Moves partitions to a new position. Owner: poll thread."""

    def __init__(
        self,
        source: Source,
        engine: Engine,
        assignments: Assignments,
        rule: OnOutOfRange,
        worker_log: WorkerLog,
        copies: Container[str] = (),
    ):
        self._source = source
        self._engine = engine
        self._assignments = assignments
        self._rule = rule
        self._copies = copies
        """The ladder's topics: the rest of their records is always read."""
        self._worker_log = worker_log
        self._standing: dict[TopicPartition, Callable[[], None]] = {}
        """The steps to retry for partitions that wait."""
        self._retry_at = 0.0

    def out_of_range(self, name: TopicPartition, now: float) -> None:
        """Continue by the configured rule; raise WorkerStoppedError if that is ``fail``."""
        partition = self._engine.partitions.get(name)
        if partition is not None and partition.is_assigned:
            self._try(name, lambda: self._enter_range(name, now), now)

    def reset_recreated(self, facts: Mapping[str, TopicFacts], now: float) -> None:
        """Restart recreated topics at their beginning, without committing old offsets."""
        self._assignments.starts.record_ids(facts)
        anew = self._assignments.made_anew(facts)
        for topic in sorted({name.topic for name in anew}):
            self._worker_log.warn(
                LogEvent.TOPIC_RECREATED,
                f"{topic} was deleted and recreated: reading it from its beginning",
            )
        self._worker_log.calls.outlived(self._engine.on_lost(anew, now))
        self._assignments.remove(anew)
        self.remove(anew)
        for name in anew:
            if name.partition >= facts[name.topic].partitions:
                continue
            self._assignments.starts.begins_anew(name, None)
            if self._assignments.prepare(name, now):
                self._begin_anew(name, facts[name.topic], now)

    def retry(self, now: float) -> None:
        """Retry unanswered steps when they are due."""
        if self._standing and now >= self._retry_at:
            standing, self._standing = self._standing, {}
            for name, what in standing.items():
                self._try(name, what, now)

    def remove(self, names: Sequence[TopicPartition]) -> None:
        """Remove partitions that are no longer ours."""
        for name in names:
            self._standing.pop(name, None)

    def _try(self, name: TopicPartition, what: Callable[[], None], now: float) -> None:
        try:
            what()
        except WorkerStoppedError:
            raise
        except WindowConsumerError as error:
            self._worker_log.warn(
                LogEvent.PARTITION_POSTPONED, f"{name}: cannot continue yet, trying again: {error}"
            )
            self._standing[name] = what
            self._retry_at = now + RETRY_S

    def _enter_range(self, name: TopicPartition, now: float) -> None:
        partition = self._engine.partitions.get(name)
        if partition is None or not partition.is_assigned:
            return
        facts = self._source.facts([name.topic], ASK_S)
        if name in self._assignments.made_anew(facts):
            self.reset_recreated(facts, now)
            return
        position = max(partition.next_delivery, partition.position)
        low, end = self._log(name)
        offset = self._position_after_loss(name, position, low, end)
        if offset >= position:
            # The window continues beyond the hole; open records below it stay open.
            self._source.seek(name, offset)
            self._engine.on_gone(name, range(position, offset), now)
            self._engine.on_positions({name: offset})
            return
        # Lower offsets would count as already seen, so a new epoch begins. Running calls belong to
        # a deleted part of the log.
        topic_id = self._assignments.topic_ids.get(name)
        known_partitions = partition.commit.known_partitions
        self._assignments.starts.remove([name])
        self._assignments.starts.begins_anew(name, end)
        self._worker_log.calls.outlived(self._engine.on_lost([name], now))
        partitions = facts[name.topic].partitions if name.topic in facts else 0
        self._begin(name, offset, topic_id, known_partitions, partitions, now)

    def _position_after_loss(self, name: TopicPartition, position: int, low: int, end: int) -> int:
        if low <= position <= end:
            # Only prefetched records were gone, or the log has grown since.
            return position
        lost = _lost(position, low, end)
        rule = "earliest" if name.topic in self._copies else self._rule
        if rule == "fail":
            raise WorkerStoppedError(
                f"{name}: {lost}; on_out_of_range is fail. Set it to earliest or latest to"
                " continue, or commit an offset for the group by hand"
            )
        offset = low if rule == "earliest" else end
        self._worker_log.warn(
            LogEvent.OFFSET_RESET,
            f"{name}: {lost}; continuing at {offset} (on_out_of_range: {rule})",
            topic=name.topic,
            partition=name.partition,
            offset=offset,
            rule=rule,
        )
        return offset

    def _log(self, name: TopicPartition) -> tuple[int, int]:
        """Return a log's first offset and its end; raise if they are late, for a retry."""
        answer = self._source.log_ranges([name], LOGS_S)[name]
        if isinstance(answer, WindowConsumerError):
            raise answer
        return answer

    def _begin_anew(self, name: TopicPartition, facts: TopicFacts, now: float) -> None:
        def begin() -> None:
            low, end = self._log(name)
            self._assignments.starts.begins_anew(name, end)
            self._assignments.topic_ids[name] = facts.topic_id
            self._begin(name, low, facts.topic_id, facts.partitions, facts.partitions, now)

        self._try(name, begin, now)

    def _begin(
        self,
        name: TopicPartition,
        offset: int,
        topic_id: str | None,
        known_partitions: int,
        partitions: int,
        now: float,
    ) -> None:
        assigned = Assigned(
            name,
            offset,
            topic_hash=topic_hash(topic_id),
            topic_id=topic_id,
            known_partitions=known_partitions,
            partitions=partitions,
        )
        self._standing.pop(name, None)
        self._source.seek(name, offset)
        self._engine.on_assigned([assigned], now)


def _lost(position: int, low: int, end: int) -> str:
    if position < low:
        return f"offsets {position}..{low - 1} are gone (retention or deletion)"
    return f"offset {position} lies beyond the log's end {end} (the log was cut or recreated)"
