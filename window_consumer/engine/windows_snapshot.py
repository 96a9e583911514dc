"""What the windows of a worker look like at one moment, as values.

These are the fields of ``snapshot`` in ``/api/windows``, and their names are promises. Each has a
default but for what says which partition, cell or call it is: workers of other versions, and
``/metrics``, may not have it.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import field, frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.circuit_breaker import BreakerState
from window_consumer.engine.latency_histogram import Histogram
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

    @classmethod
    def of_letter(cls, letter: str) -> CellState:
        """Return what a letter in a row stands for."""
        return _STATES[letter]


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
class Lag:
    """How far one partition is behind."""

    records: int | None = None
    """Those that are in the log and not finished; None before the client has heard of its end.

    Of a retry topic only those that are due. Offsets are counted: markers of transactions and
    records that were compacted away count as well.
    """
    seconds: float = 0.0
    """The age of the oldest record that was read and is not finished, 0 where there is none.

    By the record's timestamp and this machine's clock; of a retry topic since it was due.
    """


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
