"""Where to begin with an assigned partition, given its commit and its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from attrs import evolve, frozen

from window_consumer.engine.commits.commit_metadata import CommitNote, decode, is_of_earlier_topic
from window_consumer.engine.commits.lost_partitions import PartitionOutcomes
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.crash_history import SUSPECT_AFTER, UncleanExits, unclean_ends
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import CommittedOffset
from window_consumer.model.record import TopicPartition

OnNoOffset = Literal["earliest", "latest", "fail"]


@frozen
class Found:
    """What the client read about one partition when it was assigned."""

    name: TopicPartition
    committed: CommittedOffset
    log: tuple[int, int]
    """The log's first offset and its end (exclusive)."""
    topic_hash: int = 0
    topic_id: str | None = None
    """The topic's id, hashed in ``topic_hash``; None if the cluster does not report it."""
    known_partitions: int = 0
    """The topic's partition count when the group first read it, see ``partitions_known``."""
    partitions: int = 0
    """How many partitions the topic has now; 0 if unknown."""
    kept: PartitionOutcomes | None = None
    """What this member had finished when it lost the partition, if still valid."""
    keeps_finished: bool = False
    """See ``DeliveryGuarantee``."""
    is_again: bool = False
    """This member reopens it without any process having ended."""


@frozen
class Start:
    """Where reading begins; ``event`` and ``warning`` are logged if anything is unusual."""

    assigned: Assigned
    event: LogEvent | None = None
    warning: str = ""


class NoOffsetError(WorkerStoppedError):
    """Nothing is committed for a partition, and ``on_no_offset`` is fail."""

    code = "WC117"


def needs_log(committed: CommittedOffset, topic_hash: int) -> bool:
    """Return whether the log's range matters for this commit: reading it costs a round trip."""
    if committed.next_offset is None:
        return True
    note = decode(committed.metadata)
    return note is not None and (
        bool(note.finished or note.crashes or note.unclean_ends)
        or not note.clean
        or is_of_earlier_topic(note, committed.next_offset, topic_hash)
    )


def partitions_known(committed: Iterable[CommittedOffset], partitions_now: int) -> int:
    """Return how many partitions the topic had when the group first read it.

    ``committed`` holds the group's commits for all partitions of the topic. If none were written by
    this library, the group starts now: another client's commits do not show which partitions it
    knew. Partitions added later are new. Nobody has deliberately skipped their first records, so
    they begin at the earliest offset.
    """
    offsets = [each for each in committed if each.next_offset is not None]
    notes = [note for each in offsets if (note := decode(each.metadata)) is not None]
    return max((note.known_partitions for note in notes), default=partitions_now)


def resolve(found: Found, on_no_offset: OnNoOffset) -> Start:
    """Decide where to begin; raise NoOffsetError if the rules forbid a start."""
    if found.committed.next_offset is None:
        return Start(_without_offset(found, on_no_offset))
    return _from_offset(found, found.committed.next_offset)


def _without_offset(found: Found, on_no_offset: OnNoOffset) -> Assigned:
    low, end = found.log
    is_new = found.name.partition >= found.known_partitions
    if is_new or on_no_offset == "earliest":
        offset = low
    elif on_no_offset == "latest":
        offset = end
    else:
        raise NoOffsetError(
            f"nothing is committed for {found.name} and on_no_offset is fail: commit an offset for"
            " the group, or set on_no_offset to earliest or latest"
        )
    return _assigned(found, offset)


def _from_offset(found: Found, next_offset: int) -> Start:
    committed = (next_offset, found.committed.metadata)
    note = decode(found.committed.metadata)
    if note is None:
        foreign = f"{found.name}: ignoring commit metadata that another client wrote"
        start = _assigned(found, next_offset)
        if not found.committed.metadata:
            return Start(start)
        return Start(start, LogEvent.COMMIT_METADATA_IGNORED, foreign)
    if is_of_earlier_topic(note, next_offset, found.topic_hash):
        low = found.log[0]
        since = f"offset {next_offset} was committed; beginning at {low}"
        text = f"{found.name}: the topic was recreated since {since}"
        return Start(_assigned(found, low), LogEvent.TOPIC_RECREATED, text)
    unfit = _why_unfit(found, note)
    if not unfit and note.fired is not None and not found.keeps_finished:
        unfit = "its records waited in a wheel, which this worker does not have"
    if unfit:
        text = f"{found.name}: the commit's finished ranges are not used: {unfit}"
        start = _assigned(found, next_offset)
        return Start(start, LogEvent.COMMIT_RANGES_IGNORED, text) if note.finished else Start(start)
    begin = next_offset
    if note.fired is not None:
        begin = note.taken_until
    elif found.kept is not None:
        # This member made the commit, so the kept outcomes include its ranges.
        note = evolve(note, finished=found.kept.beyond(next_offset))
        if note.finished and note.finished[0].start == next_offset:
            begin = note.finished[0].stop
    end = evolve(note, clean=True) if found.is_again else note
    before = None if note.fired is not None else unclean_ends(end, found.log[1])
    # While the worker runs, only a plain "in use" is normal.
    opened = not (note.clean or note.unclean_ends or note.suspect is not None or note.crashes)
    assigned = _assigned(
        found,
        begin,
        finished=tuple(each for each in note.finished if each.stop > begin),
        committed=committed,
        opened=opened,
        unclean=before,
    )
    text = _suspicious(found.name, next_offset, before)
    return Start(assigned, LogEvent.PARTITION_SUSPECTED, text) if text else Start(assigned)


def _suspicious(name: TopicPartition, next_offset: int, before: UncleanExits | None) -> str:
    if before is None or not (before.crashes or before.ends >= SUSPECT_AFTER):
        return ""
    parts = []
    if before.ends >= SUSPECT_AFTER:
        parts.append(
            f"ended uncleanly {before.ends} times at offset {next_offset}: its records are started"
            " one at a time until the suspects have passed"
        )
    if before.crashes:
        ended = ", ".join(f"{offset} ({times})" for offset, times in before.crashes)
        parts.append(f"the process ended while these offsets ran alone (times): {ended}")
    return f"{name}: {'; '.join(parts)}"


def _why_unfit(found: Found, note: CommitNote) -> str:
    if note.next_offset != found.committed.next_offset:
        return f"they belong to offset {note.next_offset}, not {found.committed.next_offset}"
    if note.topic_hash != found.topic_hash:
        return "the topic's id cannot be compared"
    if note.finished and note.finished[-1].stop > found.log[1]:
        return f"they end at {note.finished[-1].stop}, the log at {found.log[1]}"
    return ""


def _assigned(
    found: Found,
    next_offset: int,
    *,
    finished: tuple[range, ...] = (),
    committed: tuple[int, str] | None = None,
    opened: bool = False,
    unclean: UncleanExits | None = None,
) -> Assigned:
    return Assigned(
        name=found.name,
        next_offset=next_offset,
        finished=finished,
        topic_hash=found.topic_hash,
        topic_id=found.topic_id,
        known_partitions=found.known_partitions,
        partitions=found.partitions,
        committed=committed,
        opened=opened,
        unclean=unclean,
        kept=found.kept if committed else None,
    )
