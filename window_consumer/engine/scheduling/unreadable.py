"""Records whose headers cannot be read: each leaves in its turn without a call of a handler.

Its turn comes in a slice of its own, which no slot gets. So its lane waits for it as for any other
permanently failed record, whatever the ordering, pool and ladder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.policy import WhenSpent
from window_consumer.engine.scheduling.lanes import LaneHold
from window_consumer.engine.scheduling.ordering import Taken
from window_consumer.engine.scheduling.rate_limit import RateLimits
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import UnreadableHeaders
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.headers import LostHeaders
from window_consumer.model.record import Message

_WHAT = "has a header whose name is not UTF-8, so none of its headers can be read"


def is_unreadable(message: Message) -> bool:
    """Return whether the headers of a record cannot be read."""
    return type(message.headers()) is LostHeaders


def needs_no_slot(slice_: Slice) -> bool:
    """Return whether the slice holds an unreadable record."""
    return bool(slice_.partition.unreadable) and is_unreadable(slice_.messages[0])


def first_unreadable(messages: Sequence[Message]) -> int | None:
    """Return the index of the first unreadable record; None if there is none."""
    return next((at for at, each in enumerate(messages) if is_unreadable(each)), None)


def apart(partition: Partition, taken: Taken, rates: RateLimits | None) -> Taken:
    """Return which taken records go out; put the others back.

    These are all records before the first unreadable one, or that one alone.
    """
    run, hold = taken
    first = first_unreadable(run.messages) if partition.unreadable else None
    if first is None or len(run) == 1:
        return taken
    kept = max(first, 1)
    put_back(partition, run, kept, rates)
    keep_lanes_of(partition, hold, run.messages[:kept])
    return RecordRun.of(run.messages[:kept], run.seqs[:kept]), hold


def keep_lanes_of(partition: Partition, hold: LaneHold, messages: Iterable[Message]) -> None:
    """Release the hold's lanes other than those of these records."""
    lane_of = partition.ordering.lane_of
    if lane_of is not None:
        hold.keep(set(map(lane_of, messages)))


def put_back(partition: Partition, run: RecordRun, kept: int, rates: RateLimits | None) -> None:
    """Let all but the first ``kept`` wait again; the caller releases their lanes."""
    behind = run.messages[kept:]
    if rates is not None:
        rates.give_back(partition, behind)
    partition.ordering.put_back(behind, run.seqs[kept:])


def pass_by(slice_: Slice, end: WhenSpent, now: float) -> None:
    """Complete such a slice as if a slot had found that its record cannot be called."""
    slice_.started = now
    (message,) = slice_.unclaimed
    slice_.deviate().failed.append((message, _failure(UnreadableHeaders(_WHAT, end))))
    slice_.partition.unreadable.discard(message.offset())


def _failure(error: UnreadableHeaders) -> Failure:
    """Return the failure of an unreadable record; it has no stack."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    fingerprint = blake2b(name.encode(), digest_size=8).hexdigest()
    return Failure(error, Fault(name, str(error), "", fingerprint))
