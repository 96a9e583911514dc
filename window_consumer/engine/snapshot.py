"""A picture of an Engine at one moment, for people: terminal views, SIGUSR1, later pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from enum import StrEnum
from math import isfinite

from attrs import frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.circuit_breaker import (
    Breaker,
    BreakerState,
)
from window_consumer.engine.lag import (
    Lag,
    lag_of,
)
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.scheduling.adaptive_concurrency import Limiter
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.window import Window
from window_consumer.model.record import TopicPartition


class CellState(StrEnum):
    """What a cell is shown as; of several that apply, the one that stands further down."""

    DONE = "done"
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"
    HOVERING = "hovering"

    @property
    def letter(self) -> str:
        """What stands for it in a row."""
        return _LETTERS[self]


_LETTERS = {
    CellState.DONE: "d",
    CellState.WAITING: "w",
    CellState.RUNNING: "r",
    CellState.RETRYING: "y",
    CellState.HOVERING: "H",
}
_STATES = {letter: state for state, letter in _LETTERS.items()}


@frozen
class CellPicture:
    """One cell of a window."""

    state: CellState
    first_offset: int
    records: int
    open: int
    age_s: float = 0.0
    """How long ago its first record came."""


@frozen
class CallPicture:
    """One handler call that is running, or was when the picture was taken."""

    name: TopicPartition
    offset: int
    attempt: int
    seconds: float
    """Since its slice was started."""
    thread: int
    """The ident of its thread."""
    abandoned: bool = False
    """It was given up; its result will be ignored."""


@frozen
class PartitionPicture:
    """The window of one partition."""

    name: TopicPartition
    next_offset: int
    cells: tuple[CellPicture, ...]
    capacity_cells: int
    open: int
    buffered: int
    bytes: int
    paused: bool
    failed: int
    """Records that wait for their next call or their copy's ack."""
    lag: Lag
    level: str | None
    """The retry level, None for what is none."""
    hovering_s: float
    """For how long nothing has become of the start cell, 0 where it is complete or empty."""
    waits_for_rate: bool = False
    """It could start something but for ``rate_per_process``."""
    row: str = ""
    """The states of the cells, a letter each, see ``CellState.letter``."""
    slid: int = 0
    """Cells that have slid out in this assignment: the number of the start cell."""
    unread: int | None = None
    """Offsets of the log that were not delivered; None before the client has heard of its end."""
    longest_line: int = 0
    """Records that wait behind another one of their key, of the key of which most do."""
    hottest_key: str | None = None
    """That key, as text and shortened; None where nobody waits like that."""
    halted: bool = False
    """It starts nothing, because a person has paused it, or the worker."""
    first_open: int | None = None
    """The offset of the start cell's first record that is not finished; None where all are."""


@frozen
class BreakerPicture:
    """The circuit breaker and the calls within its window."""

    state: BreakerState
    failed: int
    calls: int
    seconds: float
    """Since it came into this state."""
    why: str = ""
    """Why it has opened, or paused, the last time: in words, with the figures of that moment."""


@frozen
class LimitPicture:
    """How many slots may be busy where the worker finds that by itself."""

    limit: int
    """At this moment: the best that is known, or another one that is tried."""
    settled: int
    """The best that is known."""
    why: str
    """Why it is that, in words."""


@frozen
class LoopPicture:
    """The event loop that a worker's coroutines run on; seconds, so far, all together."""

    computed_s: float
    """How long its thread had a processor."""
    late_s: float
    """How much later than it should have it went round: something did not give it back."""


@frozen
class Snapshot:
    """All windows and calls of one worker."""

    partitions: tuple[PartitionPicture, ...]
    calls: tuple[CallPicture, ...]
    counters: Counters
    slots: int
    """The most that may be busy."""
    queued: int
    """Slices that are queued or running."""
    abandoned: int
    """Calls that were given up and have not returned; they are among the calls."""
    cost_s: float
    """The estimated seconds that a call takes."""
    durations: Histogram
    """How long calls took so far."""
    breaker: BreakerPicture
    limit: LimitPicture | None = None
    """None where the concurrency is given."""
    changes_s: tuple[float, ...] = ()
    """How long ago partitions were given or taken, the last times, earliest first."""
    halted: bool = False
    """A person has paused the worker."""
    loop: LoopPicture | None = None
    """None where handlers are no coroutines."""
    cannot_write: str | None = None
    """Why copies and results cannot be written at the moment, None where they can."""


SHOWN_KEY = 60
"""Characters of a key that are shown."""

SHOWN_HOVERING_S = 1.0
"""A start cell without progress for this long is shown as hovering: long for a person who looks.

The log speaks of it much later, see ``EngineRules.hover_s``.
"""


def picture(engine: Engine, now: float, wall_ms: float, *, cells: bool = True) -> Snapshot:
    """Take a snapshot; ``wall_ms`` is the same moment in milliseconds since 1970.

    Without ``cells`` windows have only their rows, which is many times cheaper.
    """
    slices = [*engine.dispatcher.out, *engine.dispatcher.abandoned]
    of: defaultdict[Partition, list[Slice]] = defaultdict(list)
    for slice_ in slices:
        of[slice_.partition].append(slice_)
    return Snapshot(
        partitions=tuple(
            _partition(engine, partition, of[partition], now, wall_ms, cells=cells)
            for partition in sorted(engine.partitions.values(), key=lambda each: each.name)
        ),
        calls=tuple(
            call
            for slice_ in slices
            if (call := _call(slice_, now, engine.dispatcher.abandoned)) is not None
        ),
        counters=engine.counters.copy(),
        slots=engine.rules.slots,
        queued=len(engine.dispatcher.out),
        abandoned=len(engine.dispatcher.abandoned),
        cost_s=engine.dispatcher.cost_s,
        durations=engine.durations.histogram(),
        breaker=_breaker(engine.breaker, now),
        limit=_limit(engine.limiter),
        changes_s=tuple(now - each for each in engine.changes),
        halted=engine.halts.worker,
    )


def _limit(limiter: Limiter | None) -> LimitPicture | None:
    if limiter is None:
        return None
    return LimitPicture(limiter.limit, limiter.base, limiter.why)


def _breaker(breaker: Breaker, now: float) -> BreakerPicture:
    failed, calls = breaker.calls_within_window(now)
    return BreakerPicture(
        breaker.state,
        failed,
        calls,
        max(0.0, now - breaker.since) if isfinite(breaker.since) else 0.0,
        breaker.why,
    )


def _partition(
    engine: Engine,
    partition: Partition,
    slices: list[Slice],
    now: float,
    wall_ms: float,
    *,
    cells: bool,
) -> PartitionPicture:
    window = partition.window
    # A walk through all lines: not for a page that wants five pictures a second.
    line = partition.ordering.longest_line if cells else None
    since = window.hovering_since()
    hovering_s = 0.0 if since is None else max(0.0, now - since)
    hovers = hovering_s > SHOWN_HOVERING_S and HoldReason.MANUAL not in partition.holds
    row = _row(partition, slices, hovers=hovers)
    return PartitionPicture(
        name=partition.name,
        next_offset=window.next_offset,
        cells=_cells(window, row, now) if cells else (),
        capacity_cells=engine.rules.window_cells,
        open=window.open,
        buffered=partition.buffered,
        bytes=partition.bytes,
        paused=partition.paused,
        failed=len(partition.failed),
        lag=lag_of(partition, slices, now, wall_ms),
        level=None if partition.rung.level is None else partition.rung.level.name,
        hovering_s=hovering_s,
        waits_for_rate=partition.ordering.waits,
        row=row,
        slid=window.slid,
        unread=(
            None
            if partition.log_end is None
            else max(0, partition.log_end - partition.next_delivery)
        ),
        longest_line=0 if line is None else line[1],
        hottest_key=None if line is None else _key_text(line[0]),
        halted=HoldReason.MANUAL in partition.holds,
        first_open=_first_open(window),
    )


def _first_open(window: Window) -> int | None:
    if not window.cells or not window.cells[0].open:
        return None
    return window.offsets.offset_of(window.cells[0].first_open_seq())


def _cells(window: Window, row: str, now: float) -> tuple[CellPicture, ...]:
    return tuple(
        CellPicture(
            _STATES[letter],
            window.offsets.offset_of(cell.first_seq),
            len(cell.states),
            cell.open,
            max(0.0, now - cell.opened),
        )
        for letter, cell in zip(row, window.cells, strict=True)
    )


def _row(partition: Partition, slices: list[Slice], *, hovers: bool) -> str:
    """Return a letter for the state of each cell."""
    cells = partition.window.cells
    letters = ["w" if cell.open else "d" for cell in cells]
    # From the weakest to the strongest: of several states that apply the last one stays.
    running = {seq for slice_ in slices for seq in _ends(slice_)}
    for seqs, letter in ((running, "r"), (partition.failed, "y")):
        for seq in seqs:
            index = partition.window.place_of(seq)
            if index is not None and cells[index].open:
                letters[index] = letter
    if hovers and cells and cells[0].open:
        letters[0] = "H"
    return "".join(letters)


def _key_text(key: Lane) -> str:
    """Write a key, which may be anything, for people."""
    cut = key[: 2 * SHOWN_KEY] if isinstance(key, bytes) else str(key)
    text = cut.decode("utf-8", "backslashreplace") if isinstance(cut, bytes) else cut
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}..."


def _ends(slice_: Slice) -> tuple[int, ...]:
    """Return the first and last sequence number of a slice that is running."""
    if not slice_.started or not slice_.seqs:
        return ()
    return slice_.seqs[0], slice_.seqs[-1]


def _call(slice_: Slice, now: float, abandoned: Container[Slice]) -> CallPicture | None:
    message = slice_.running()
    if message is None:
        return None
    return CallPicture(
        name=slice_.partition.name,
        offset=message.offset(),
        attempt=slice_.call.number_of(message),
        seconds=max(0.0, now - slice_.started),
        thread=slice_.thread,
        abandoned=slice_ in abandoned,
    )
