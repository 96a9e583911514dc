"""What an Engine holds at one moment, as values: the one place that reads it for people.

These are the fields of ``snapshot`` in ``/api/windows``, and their names are promises. Each has a
default but for what says which partition, cell or call it is: workers of other versions, and
``/metrics``, may not have it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from enum import StrEnum
from math import isfinite

from attrs import field, frozen

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
from window_consumer.engine.scheduling.adaptive_concurrency import Limiter
from window_consumer.engine.scheduling.slices import (
    Lane,
    Slice,
)
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
class CellSnapshot:
    """One cell of a window."""

    state: CellState
    first_offset: int
    records: int = 0
    open: int = 0
    age_s: float = 0.0
    """How long ago its first record came."""


@frozen
class CallSnapshot:
    """One handler call that is running, or was when the snapshot was taken."""

    name: TopicPartition
    offset: int
    attempt: int = 1
    seconds: float = 0.0
    """Since its slice was started."""
    thread: int = 0
    """The ident of its thread."""
    abandoned: bool = False
    """It was given up; its result will be ignored."""


@frozen
class PartitionSnapshot:
    """The window of one partition."""

    name: TopicPartition
    next_offset: int = 0
    cells: tuple[CellSnapshot, ...] = ()
    capacity_cells: int = 0
    open: int = 0
    buffered: int = 0
    bytes: int = 0
    paused: bool = False
    failed: int = 0
    """Records that wait for their next call or their copy's ack."""
    lag: Lag = field(factory=Lag)
    level: str | None = None
    """The retry level, None for what is none."""
    hovering_s: float = 0.0
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

    @property
    def unfinished(self) -> int | None:
        """Records that are not finished; None where the end of the log is not known.

        The lag counts offsets from the start cell on: behind one that hovers, what is finished as
        well. Of a retry topic it counts what is due, and only that is late.
        """
        if self.level is not None or self.unread is None:
            return self.lag.records
        return self.unread + self.open + self.buffered


@frozen
class BreakerSnapshot:
    """The circuit breaker and the calls within its window."""

    state: BreakerState = BreakerState.CLOSED
    failed: int | None = None
    calls: int | None = None
    seconds: float | None = None
    """Since it came into this state. None, like the others, where nobody says so."""
    why: str = ""
    """Why it has opened, or paused, the last time: in words, with the figures of that moment."""


@frozen
class LimitSnapshot:
    """How many slots may be busy where the worker finds that by itself."""

    limit: int
    """At this moment: the best that is known, or another one that is tried."""
    settled: int
    """The best that is known."""
    why: str = ""
    """Why it is that, in words."""


@frozen
class LoopSnapshot:
    """The event loop that a worker's coroutines run on; seconds, so far, all together."""

    computed_s: float = 0.0
    """How long its thread had a processor."""
    late_s: float = 0.0
    """How much later than it should have it went round: something did not give it back."""


@frozen
class WindowsSnapshot:
    """All windows and calls of one worker."""

    partitions: tuple[PartitionSnapshot, ...]
    calls: tuple[CallSnapshot, ...]
    counters: Counters = field(factory=Counters)
    slots: int = 1
    """The most that may be busy."""
    queued: int = 0
    """Slices that are queued or running."""
    abandoned: int = 0
    """Calls that were given up and have not returned; they are among the calls."""
    cost_s: float = 0.0
    """The estimated seconds that a call takes."""
    durations: Histogram = field(factory=Histogram)
    """How long calls took so far."""
    breaker: BreakerSnapshot = field(factory=BreakerSnapshot)
    limit: LimitSnapshot | None = None
    """None where the concurrency is given."""
    changes_s: tuple[float, ...] = ()
    """How long ago partitions were given or taken, the last times, earliest first."""
    halted: bool = False
    """A person has paused the worker."""
    loop: LoopSnapshot | None = None
    """None where handlers are no coroutines."""
    cannot_write: str | None = None
    """Why copies and results cannot be written at the moment, None where they can."""

    @property
    def running(self) -> int:
        """Calls that run, abandoned ones left out."""
        return sum(not call.abandoned for call in self.calls)

    @property
    def busy(self) -> int:
        """Slots that run a call."""
        return min(self.slots, self.running)

    @property
    def limit_now(self) -> int:
        """How many slots may be busy at this moment."""
        return self.slots if self.limit is None else self.limit.limit

    @property
    def lag(self) -> int | None:
        """Records that lag; None before the client has heard how many in each partition."""
        known = [each.lag.records for each in self.partitions if each.lag.records is not None]
        return sum(known) if len(known) == len(self.partitions) else None


SHOWN_KEY = 60
"""Characters of a key that are shown."""

SHOWN_HOVERING_S = 1.0
"""A start cell without progress for this long is shown as hovering: long for a person who looks.

The log speaks of it much later, see ``EngineRules.hover_s``.
"""


def take_snapshot(
    engine: Engine, now: float, wall_ms: float, *, cells: bool = True
) -> WindowsSnapshot:
    """Take a snapshot; ``wall_ms`` is the same moment in milliseconds since 1970.

    Without ``cells`` windows have only their rows, which is many times cheaper.
    """
    of: defaultdict[Partition, list[Slice]] = defaultdict(list)
    for slice_ in _slices(engine):
        of[slice_.partition].append(slice_)
    return WindowsSnapshot(
        partitions=tuple(
            _partition(engine, partition, of[partition], now, wall_ms, cells=cells)
            for partition in sorted(engine.partitions.values(), key=lambda each: each.name)
        ),
        calls=running_calls(engine, now),
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


def running_calls(engine: Engine, now: float) -> tuple[CallSnapshot, ...]:
    """Return the calls that run, abandoned ones included."""
    found = (_call(slice_, now, engine.dispatcher.abandoned) for slice_ in _slices(engine))
    return tuple(call for call in found if call is not None)


def _slices(engine: Engine) -> list[Slice]:
    return [*engine.dispatcher.out, *engine.dispatcher.abandoned]


def _limit(limiter: Limiter | None) -> LimitSnapshot | None:
    if limiter is None:
        return None
    return LimitSnapshot(limiter.limit, limiter.base, limiter.why)


def _breaker(breaker: Breaker, now: float) -> BreakerSnapshot:
    failed, calls = breaker.calls_within_window(now)
    return BreakerSnapshot(
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
) -> PartitionSnapshot:
    window = partition.window
    # A walk through all lines: not for a page that wants five snapshots a second.
    line = partition.ordering.longest_line if cells else None
    since = window.hovering_since()
    hovering_s = 0.0 if since is None else max(0.0, now - since)
    hovers = hovering_s > SHOWN_HOVERING_S and not partition.halted
    row = _row(partition, slices, hovers=hovers)
    return PartitionSnapshot(
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
        halted=partition.halted,
        first_open=_first_open(window),
    )


def _first_open(window: Window) -> int | None:
    if not window.cells or not window.cells[0].open:
        return None
    return window.offsets.offset_of(window.cells[0].first_open_seq())


def _cells(window: Window, row: str, now: float) -> tuple[CellSnapshot, ...]:
    return tuple(
        CellSnapshot(
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


def _call(slice_: Slice, now: float, abandoned: Container[Slice]) -> CallSnapshot | None:
    message = slice_.running()
    if message is None:
        return None
    return CallSnapshot(
        name=slice_.partition.name,
        offset=message.offset(),
        attempt=slice_.call.number_of(message),
        seconds=max(0.0, now - slice_.started),
        thread=slice_.thread,
        abandoned=slice_ in abandoned,
    )
