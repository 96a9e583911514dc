"""Kafka's own data about the audited topics and their groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from attrs import evolve, field, frozen

from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.offset_ranges import united, without

_DEADLINE_S: Final = 15.0
"""Long enough to wait for a slow Kafka: without these answers no record can be called lost."""


HeldRun = tuple[str, str, int, Decimal, int, int, bool]
"""A row of ``coverage.HELD``."""


def beyond(runs: Iterable[HeldRun], others: Iterable[HeldRun]) -> Iterator[HeldRun]:
    """Yield the parts of runs that others do not contain: each offset excuses one record."""
    known = defaultdict(list)
    for *place, first, stop, _ in others:
        known[tuple(place)].append((first, stop))
    for group, topic, partition, hashed, first, stop, anytime in runs:
        there = united(known[group, topic, partition, hashed])
        for begin, end in without([(first, stop)], there):
            yield group, topic, partition, hashed, begin, end, anytime


@frozen
class GroupOffsets:
    """Facts that the counts do not contain; empty if Kafka could not be asked."""

    compacted: tuple[str, ...] = ()
    """Topics whose compaction may remove records before they are read."""
    read_to: tuple[tuple[str, str, int, int], ...] = ()
    """Group, topic and partition of groups that have read everything, and the log's end."""
    problem: str | None = None
    """Why some questions remained unanswered."""
    held: tuple[HeldRun, ...] = ()
    """Offsets that groups have not finished, a row for each run, see ``coverage.HELD``."""

    @property
    def caught_up(self) -> tuple[tuple[str, str, int], ...]:
        """Group, topic and partition of groups that have read everything."""
        return tuple(each[:3] for each in self.read_to)

    def around(self, earlier: GroupOffsets, asked: Collection[tuple[str, str]]) -> GroupOffsets:
        """Return the facts that held at some time since an earlier answer about the same topics.

        Counts that were read in between may lack records that were held or unread at either time. A
        place has caught up only if both answers agree, with the same end of the log.
        """
        before = set(earlier.read_to)
        return evolve(
            self,
            read_to=tuple(
                each for each in self.read_to if each in before or (each[1], each[0]) not in asked
            ),
            problem=self.problem or earlier.problem,
            held=(*self.held, *beyond(earlier.held, self.held)),
        )


def standing(
    places: Iterable[tuple[str, str]],
    client: Mapping[str, Any],
    log: ClientLog,
    *,
    until_ms: int | None = None,
    deadline_s: float = _DEADLINE_S,
) -> GroupOffsets:
    """Ask Kafka about topics and their groups; the group is empty for a topic without one.

    ``held`` omits unread records that were written after ``until_ms``.
    """
    try:
        cluster = Cluster(settings.admin_settings(client, "audit"), log)
        cluster.wait_until_there(deadline_s, lambda _reason, _waited_s: None)
        return _KafkaStateRequest(cluster, until_ms).about(sorted(set(places)))
    except WindowConsumerError as error:
        return GroupOffsets(problem=str(error))


@frozen
class _KafkaStateRequest:
    cluster: Cluster
    until_ms: int | None
    compacted: dict[str, bool] = field(factory=dict)

    def about(self, places: Iterable[tuple[str, str]]) -> GroupOffsets:
        read_to, held, problem = [], [], None
        for topic, group in places:
            try:
                if topic not in self.compacted:
                    policy = self.cluster.topic_config(topic).get("cleanup.policy", "")
                    self.compacted[topic] = "compact" in policy
                if group:
                    found = self.cluster.progress(group, topic, until_ms=self.until_ms)
                    for name, its in found.items():
                        if its.end <= max(its.committed, its.start):
                            read_to.append((group, topic, name.partition, its.end))
                        held += [(group, topic, name.partition, *run) for run in unfinished(its)]
            except WindowConsumerError as error:
                problem = str(error)
        compacted = tuple(topic for topic, is_so in self.compacted.items() if is_so)
        return GroupOffsets(compacted, tuple(read_to), problem, tuple(held))


def unfinished(progress: PartitionProgress) -> Iterator[tuple[Decimal, int, int, bool]]:
    """Yield the runs of offsets that a group has not finished: the last fields of ``HELD``.

    A run between finished ones belongs to their time. The run behind the last finished one may be
    of any time, and only its part that is old enough counts. Without a commit nothing is known.
    """
    if progress.committed < 0:
        return
    note = decode(progress.metadata)
    if note is None or note.next_offset != progress.committed:
        note = CommitNote(next_offset=progress.committed)
    known = [(each.start, each.stop) for each in note.finished if each.stop <= progress.end]
    read = max([progress.committed, *(stop for _, stop in known)])
    begin = max(progress.committed, progress.start)
    topic = Decimal(note.topic_hash)
    for first, stop in without(((begin, read),), known):
        yield topic, first, stop, False
    behind = max(read, progress.start)
    if behind < progress.old:
        yield topic, behind, progress.old, True
