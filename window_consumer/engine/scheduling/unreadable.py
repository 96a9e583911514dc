"""Records whose headers cannot be read: each leaves in its turn, and no handler is called for it.

Its turn comes in a slice of its own, which no slot gets. So its lane waits for it as for any other
record that fails for good, whatever the ordering, the pool and the ladder are.
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
from window_consumer.model.fault import (
    Failure,
    Fault,
)
from window_consumer.model.headers import LostHeaders
from window_consumer.model.record import Message

_WHAT = "has a header whose name is not UTF-8, so none of its headers can be read"


def is_unreadable(message: Message) -> bool:
    """Tell whether nobody can read the headers of a record."""
    return type(message.headers()) is LostHeaders


def needs_no_slot(slice_: Slice) -> bool:
    """Tell whether the slice is one of an unreadable record."""
    return bool(slice_.partition.unreadable) and is_unreadable(slice_.messages[0])


def first_unreadable(messages: Sequence[Message]) -> int | None:
    """Return the place of the first such record, None where there is none."""
    return next((at for at, each in enumerate(messages) if is_unreadable(each)), None)


def apart(partition: Partition, taken: Taken, rates: RateLimits | None) -> Taken:
    """Return what goes out of records that have left their ordering; the others are put back.

    That is everything before the first unreadable one, or that one alone.
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
    """Release what a hold has beyond the lanes of these records."""
    lane_of = partition.ordering.lane_of
    if lane_of is not None:
        hold.keep(set(map(lane_of, messages)))


def put_back(partition: Partition, run: RecordRun, kept: int, rates: RateLimits | None) -> None:
    """Let all but the first ``kept`` wait again; who holds their lanes releases them."""
    behind = run.messages[kept:]
    if rates is not None:
        rates.give_back(partition, behind)
    partition.ordering.put_back(behind, run.seqs[kept:])


def pass_by(slice_: Slice, end: WhenSpent, now: float) -> None:
    """Let such a slice be over as if a slot had found that its record cannot be called."""
    slice_.started = now
    (message,) = slice_.unclaimed
    slice_.deviate().failed.append((message, _failure(UnreadableHeaders(_WHAT, end))))
    slice_.partition.unreadable.discard(message.offset())


def _failure(error: UnreadableHeaders) -> Failure:
    """Return what is told of it: there is no stack."""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    fingerprint = blake2b(name.encode(), digest_size=8).hexdigest()
    return Failure(error, Fault(name, str(error), "", fingerprint))
