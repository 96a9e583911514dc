"""What Kafka itself reports about the audited topics and their groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from attrs import field, frozen

from window_consumer.engine.commit_metadata import (
    CommitNote,
    decode,
)
from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.offset_ranges import without

_DEADLINE_S: Final = 15.0
"""Long enough to wait for a slow Kafka: without these answers no record can be called lost."""


@frozen
class GroupOffsets:
    """What the counts do not contain; empty where nobody could be asked."""

    compacted: tuple[str, ...] = ()
    """Topics whose compaction may remove records before they are read."""
    caught_up: tuple[tuple[str, str, int], ...] = ()
    """Group, topic and partition of those that have read everything."""
    problem: str | None = None
    """Why some questions stayed unanswered."""
    held: tuple[tuple[Any, ...], ...] = ()
    """Offsets that groups have not finished, a row for each run, see ``coverage.HELD``."""


def standing(
    places: Iterable[tuple[str, str]],
    client: Mapping[str, Any],
    log: ClientLog,
    *,
    until_ms: int | None = None,
    deadline_s: float = _DEADLINE_S,
) -> GroupOffsets:
    """Ask Kafka about topics and their groups; the group is empty for a topic without one.

    ``held`` leaves out records that were written after ``until_ms`` and have not been read.
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
        caught_up, held, problem = [], [], None
        for topic, group in places:
            try:
                if topic not in self.compacted:
                    policy = self.cluster.topic_config(topic).get("cleanup.policy", "")
                    self.compacted[topic] = "compact" in policy
                if group:
                    found = self.cluster.progress(group, topic, until_ms=self.until_ms)
                    for name, its in found.items():
                        if its.end <= max(its.committed, its.start):
                            caught_up.append((group, topic, name.partition))
                        held += [(group, topic, name.partition, *run) for run in unfinished(its)]
            except WindowConsumerError as error:
                problem = str(error)
        compacted = tuple(topic for topic, is_so in self.compacted.items() if is_so)
        return GroupOffsets(compacted, tuple(caught_up), problem, tuple(held))


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
