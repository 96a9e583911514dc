"""A worker's windows at one moment, as values.

These are the fields of ``snapshot`` in ``/api/windows``; their names are part of the API. Every
field except the name of a partition, cell or call has a default: workers of other versions, and
``/metrics``, may not have it.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Final

from attrs import field, frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.shares_snapshot import SharesSnapshot
from window_consumer.model.record import TopicPartition

SHOWN_KEY: Final = 60
"""The most characters of a key that are shown."""


class CellState(StrEnum):
    """The displayed state of a cell; if several apply, the one listed last."""

    DONE = "done"
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"
    HOVERING = "hovering"

    @property
    def letter(self) -> str:
        """The letter for this state in a row."""
        return _LETTERS[self]

    @classmethod
    def of_letter(cls, letter: str) -> CellState:
        """Return the state for a letter in a row."""
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
    """Seconds since its first record arrived."""


@frozen
class CallSnapshot:
    """One handler call that was running when the snapshot was taken."""

    name: TopicPartition
    offset: int
    attempt: int = 1
    seconds: float = 0.0
    """Seconds since its slice started."""
    thread: int = 0
    """The ident of its thread."""
    abandoned: bool = False
    """It was abandoned; its result will be ignored."""
    lease_left_s: float | None = None
    """Seconds until the call's lease ends; None if it is not a lease."""


@frozen
class Lag:
    """The lag of one partition."""

    records: int | None = None
    """Unfinished records in the log; None until the client knows the log's end.

    For a retry topic only due records count. This counts offsets, including transaction markers and
    compacted records.
    """
    seconds: float = 0.0
    """The age of the oldest unfinished record that was read; 0 if there is none.

    Measured from the record's timestamp by this machine's clock; for a retry topic, since it was
    due.
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
    """The retry level; None for other topics."""
    hovering_s: float = 0.0
    """Seconds without progress of the start cell; 0 if it is complete or empty."""
    waits_for_rate: bool = False
    """Only ``rate_per_process`` keeps it from starting something."""
    row: str = ""
    """The states of the cells, a letter each, see ``CellState.letter``."""
    slid: int = 0
    """Cells that have slid out in this assignment: the number of the start cell."""
    unread: int | None = None
    """Offsets of the log that were not delivered; None until the client knows the log's end."""
    longest_line: int = 0
    """Records that wait behind another one of their key, for the key with the most of them."""
    hottest_key: str | None = None
    """That key, as shortened text; None if no record waits for another of its key."""
    halted: bool = False
    """It starts nothing, because it or the worker is paused."""
    first_open: int | None = None
    """The offset of the start cell's first unfinished record; None if all are finished."""

    @property
    def unfinished(self) -> int | None:
        """Unfinished records; None if the end of the log is unknown.

        The lag counts offsets from the start cell on, so behind a blocked head of line it includes
        finished records. For a retry topic it counts due records, as only these are late.
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
    """Seconds in this state. None, like the others, if not reported."""
    why: str = ""
    """Why it last opened or paused: text with the figures of that moment."""
    declared: bool = False
    """A user has declared this outage: it ends when a call returns."""


@frozen
class PauseSnapshot:
    """A pause of the worker, or another state of it, that a user began."""

    user: str = ""
    """The name of the user's token; empty if none was needed."""
    reason: str = ""
    seconds: float = 0.0
    """How long it has lasted."""

    def words(self, lasted: str) -> str:
        """Return by whom, how long and why, as a suffix for the name of what is paused."""
        user = f" by {self.user}" if self.user else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{user} for {lasted}{reason}"


@frozen
class LimitSnapshot:
    """How many slots may be busy, if the worker adapts the number or a user has set it."""

    limit: int
    """The current limit: a user's, the best known, or a trial limit."""
    settled: int
    """The best known limit; a user's limit if the worker does not adapt it."""
    why: str = ""
    """The reason for it, as text."""
    adapts: bool = True
    """False for a fixed concurrency that a user has changed."""
    manual: PauseSnapshot | None = None
    """Who set it, why and since when; None unless a user did."""


@frozen
class LoopSnapshot:
    """The event loop of a worker's coroutines; total seconds so far."""

    computed_s: float = 0.0
    """Seconds of processor time of its thread."""
    late_s: float = 0.0
    """Total delay of its rounds because something blocked the loop."""


@frozen
class ParkedKey:
    """A key in the ladder that records wait behind."""

    name: TopicPartition
    """The source partition."""
    offset: int
    """The offset there of its first record, which the others wait for."""
    key: str
    """The key as shortened text."""
    in_ladder_s: float = 0.0
    """Seconds since the key entered the ladder, or since this assignment if it was there before."""
    followers: int = 0
    """How many records wait behind the first one."""
    copy: str = ""
    """The first record's present place in a window, in the form that ``skip --record`` takes; empty
    while its copy waits for its due time or is not read yet."""


@frozen
class ParkedKeys:
    """The keys in the ladder of a worker that parks."""

    keys: int = 0
    """How many keys are in the ladder, with or without records behind them."""
    followers: int = 0
    """How many records wait behind the first one of their key."""
    longest: tuple[ParkedKey, ...] = ()
    """Of the keys with such records, those longest in the ladder, longest first."""


@frozen
class WindowsSnapshot:
    """All windows and calls of one worker."""

    partitions: tuple[PartitionSnapshot, ...]
    calls: tuple[CallSnapshot, ...]
    counters: Counters = field(factory=Counters)
    slots: int = 1
    """The most slots that may be busy."""
    queued: int = 0
    """Slices that are queued or running."""
    asking: int | None = None
    """Records that clients ask for in addition to those they hold; None unless slots are leases."""
    abandoned: int = 0
    """Abandoned calls that have not returned; ``calls`` includes them."""
    cost_s: float = 0.0
    """The estimated seconds that a call takes."""
    durations: Histogram = field(factory=Histogram)
    """How long calls have taken so far."""
    breaker: BreakerSnapshot = field(factory=BreakerSnapshot)
    limit: LimitSnapshot | None = None
    """None for a fixed concurrency unless a user has changed it."""
    changes_s: tuple[float, ...] = ()
    """Seconds since the last changes of the assignment, earliest change first."""
    halted: bool = False
    """A user has paused the worker, or a rule has, which its finding then shows."""
    pause: PauseSnapshot | None = None
    """The user's pause; None while no user has paused the worker."""
    findings: tuple[RuleFinding, ...] = ()
    """The findings of rules that nobody has accepted."""
    loop: LoopSnapshot | None = None
    """None unless handlers are coroutines."""
    cannot_write: str | None = None
    """Why copies and results cannot currently be written; None if they can."""
    parked: ParkedKeys | None = None
    """None unless the worker parks, see ``parking``."""
    shares: SharesSnapshot | None = None
    """None unless classes of records share the slots."""

    @property
    def running(self) -> int:
        """Running calls without abandoned ones."""
        return sum(not call.abandoned for call in self.calls)

    @property
    def busy(self) -> int:
        """Slots that run a call."""
        return min(self.slots, self.running)

    @property
    def limit_now(self) -> int:
        """How many slots may be busy now."""
        return self.slots if self.limit is None else self.limit.limit

    @property
    def lag(self) -> int | None:
        """The lag in records; None until the client knows it for each partition."""
        known = [each.lag.records for each in self.partitions if each.lag.records is not None]
        return sum(known) if len(known) == len(self.partitions) else None


def key_text(key: Hashable) -> str:
    """Return a key, which may be of any type, as text for display."""
    cut = key[: 2 * SHOWN_KEY] if isinstance(key, bytes) else str(key)
    text = cut.decode("utf-8", "backslashreplace") if isinstance(cut, bytes) else cut
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}..."
