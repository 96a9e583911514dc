"""What one look at a worker, and one at its group, have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from window_consumer.admin.client import (
    ToldFailing,
    ToldWorker,
)
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.snapshot import (
    LoopPicture,
    PartitionPicture,
)
from window_consumer.model.record import TopicPartition

UNHEARD: Final = "unheard"
"""The phase of a worker whose process did not answer."""


@frozen
class PartitionLook:
    """The window of one partition."""

    name: TopicPartition
    lag: int | None = None
    """Records that are not finished; None where the worker does not know the log's end."""
    unread: int = 0
    """Those of them that have not come to the worker."""
    lag_s: float = 0.0
    open: int = 0
    buffered: int = 0
    paused: bool = False
    failed: int = 0
    """Records that wait for their next call or their copy's ack."""
    hovering_s: float = 0.0
    longest_line: int = 0
    hottest_key: str | None = None
    waits_for_rate: bool = False
    halted: bool = False
    """A person has paused it, or its worker."""
    blocking: Sequence[ToldFailing] = ()
    """Records that have failed and hold up their lanes, as far as that is told."""


@frozen
class CallLook:
    """A call that runs."""

    name: TopicPartition
    offset: int
    attempt: int
    seconds: float
    abandoned: bool = False
    stack: str = ""
    """Where it stands, empty where that is not known."""


@frozen
class BreakerLook:
    """The circuit breaker."""

    state: str = "closed"
    seconds: float | None = None
    failed: int | None = None
    calls: int | None = None
    why: str = ""
    """Why it has opened or paused, where that is told."""


@frozen
class WorkerLook:
    """One worker of one process at one moment."""

    at_s: float
    """Seconds on the clock of who looks."""
    worker: str
    process: str = ""
    is_ready: bool = True
    phase: str = "running"
    slots: int = 1
    """How many may be busy now."""
    auto: str = ""
    """Why ``concurrency: auto`` has come to these; empty where the concurrency is given."""
    busy: int = 0
    finished: int = 0
    """Records that needed no more calls where they were, so far."""
    rebalances: int = 0
    changes_s: Sequence[float] = ()
    """How long ago the last of them were; nothing where that is not told."""
    commits: int = 0
    commits_s: float = 0.0
    durations: Histogram = field(factory=lambda: Histogram((), 0.0))
    running_s: float | None = None
    """For how long calls that run have been running, together; None where that is not told."""
    loop: LoopPicture | None = None
    """None where handlers are no coroutines."""
    breaker: BreakerLook = field(factory=BreakerLook)
    cannot_write: str | None = None
    """Why copies and results cannot be written; None where they can, or that is not told."""
    partitions: Sequence[PartitionLook] = ()
    calls: Sequence[CallLook] = ()


@frozen
class GroupLook:
    """What the cluster knows of a worker's group at one moment."""

    at_s: float
    members: int | None = None
    """None where the cluster does not tell."""
    is_stable: bool = True
    lags: Mapping[TopicPartition, int] = field(factory=dict)
    """Offsets that are not committed, by partition of the worker's topics."""


def look_at(told: ToldWorker, at_s: float) -> WorkerLook:
    """Return what a worker's admin address has told; without a picture it is not ready."""
    seen = told.snapshot
    if seen is None:
        return WorkerLook(at_s, told.name, told.process, is_ready=False, phase="silent")
    did = seen.counters
    left = did.moved + did.dead_lettered + did.dropped + did.expired
    stacks = {(each.name, each.offset): each.stack for each in told.stacks}
    return WorkerLook(
        at_s=at_s,
        worker=told.name,
        process=told.process,
        is_ready=told.is_ready,
        phase=told.phase,
        slots=seen.slots if seen.limit is None else seen.limit.limit,
        auto="" if seen.limit is None else seen.limit.why,
        busy=sum(not call.abandoned for call in seen.calls),
        finished=did.processed + did.skipped + left,
        rebalances=did.rebalances,
        changes_s=seen.changes_s,
        commits=did.commits,
        commits_s=did.commits_s,
        durations=seen.durations,
        running_s=sum(call.seconds for call in seen.calls if not call.abandoned),
        loop=seen.loop,
        breaker=BreakerLook(
            seen.breaker.state.value,
            seen.breaker.seconds,
            seen.breaker.failed,
            seen.breaker.calls,
            seen.breaker.why,
        ),
        cannot_write=seen.cannot_write,
        partitions=tuple(_partition(each, told.blocking) for each in seen.partitions),
        calls=tuple(
            CallLook(
                call.name,
                call.offset,
                call.attempt,
                call.seconds,
                call.abandoned,
                stacks.get((call.name, call.offset), ""),
            )
            for call in seen.calls
        ),
    )


def unheard(at_s: float, worker: str, process: str) -> WorkerLook:
    """Return a look at a worker whose process has not answered whoever asks for all of them."""
    return WorkerLook(at_s, worker, process, is_ready=False, phase=UNHEARD)


def heard(looks: Sequence[WorkerLook]) -> Sequence[WorkerLook]:
    """Return those that have shown something, or all where none has.

    A process that was late once is no reason, and figures begin with what it has told.
    """
    return [each for each in looks if each.phase != UNHEARD] or looks


def lag_of(lag: int | None, unread: int | None, held: int, *, is_source: bool) -> int | None:
    """Return how many records are not finished.

    A worker's own lag counts offsets from the start cell on: behind one that hovers, what is
    finished as well. Of a retry topic it counts what is due, and only that is late.
    """
    return unread + held if is_source and unread is not None else lag


def _partition(seen: PartitionPicture, blocking: Sequence[ToldFailing]) -> PartitionLook:
    held = seen.open + seen.buffered
    return PartitionLook(
        name=seen.name,
        lag=lag_of(seen.lag.records, seen.unread, held, is_source=seen.level is None),
        unread=seen.unread or 0,
        lag_s=seen.lag.seconds,
        open=seen.open,
        buffered=seen.buffered,
        paused=seen.paused,
        failed=seen.failed,
        hovering_s=seen.hovering_s,
        longest_line=seen.longest_line,
        hottest_key=seen.hottest_key,
        waits_for_rate=seen.waits_for_rate,
        halted=seen.halted,
        blocking=tuple(each for each in blocking if each.name == seen.name),
    )
