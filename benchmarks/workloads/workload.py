"""What a workload is: the topic's contents, the handler's work, and the floors of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

Ordering = Literal["unordered", "key", "partition"]
Work = Literal[
    "noop",
    "wait",
    "stuck",
    "failing",
    "dying",
    "climbing",
    "redrive",
    "replay",
    "park",
    "delay-exact",
    "delay-forward",
    "delay-kills",
    "delay-pending",
    "delay-wheel",
    "park-scan",
    "fair",
    "broadcast",
    "push",
    "push-outage",
    "outage",
    "poison",
    "breaker-scenes",
    "crowding",
    "computing",
    "telemetry",
    "page",
    "backfill",
    "trace",
    "trace-growth",
    "audit-growth",
    "dead-letters-growth",
    "backfill-growth",
    "dead-letters",
    "audit",
    "producer",
    "producer-kills",
    "once",
    "once-large",
    "once-kills",
    "outbox-relay",
    "outbox-latency",
    "outbox-kills",
    "eos",
    "eos-kills",
    "amo",
    "amo-kills",
    "hand-written",
    "sqs",
]
Store = Literal["levels", "wheel"]
Baseline = Literal[
    "tuned-loop", "default-loop", "ideal", "no-hang", "without", "one-thread", "overtake"
]

PARTITIONS = 4

RATIO_OF: dict[Baseline, str] = {"no-hang": "others"}
"""The ratio to a baseline has the baseline's name, except for these."""


@frozen
class TopicSpec:
    """What a topic holds; the same specification always makes the same records."""

    records: int
    value_bytes: int = 100
    keys: int = 0
    """How many different keys; 0: records have none."""
    slow_one_in: int = 0
    """One record in this many has a value that begins with ``SLOW_MARK``, at random; 0: none."""
    ids: bool = False
    """Records have ids in their headers."""

    @property
    def name(self) -> str:
        """The topic's name: a topic of this name is already filled."""
        slow = f"-slow{self.slow_one_in}" if self.slow_one_in else ""
        ids = "-ids" if self.ids else ""
        return f"wc-bench-{self.records}x{self.value_bytes}-{self.keys}keys{slow}{ids}"


SLOW_MARK = b"slow"


@frozen
class Floor:
    """The least or most that a figure must be: a ratio, ``records_per_s``, or a note."""

    ratio: str
    limit: float
    at_most: bool = False
    is_guarantee: bool = False
    """Missing it is a failure, like a lost record."""

    def holds(self, value: float) -> bool:
        """Return whether a measured value is good enough."""
        return value <= self.limit if self.at_most else value >= self.limit

    def worst(self, values: Sequence[float]) -> float:
        """Return the measured value that is furthest from good enough."""
        return max(values) if self.at_most else min(values)

    def __str__(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g}"


def never(count: str) -> Floor:
    """Return the guarantee that something does not happen, such as a record that comes twice."""
    return Floor(count, 0, at_most=True, is_guarantee=True)


@frozen
class Workload:
    """One benchmark."""

    name: str
    what: str
    topic: TopicSpec
    work: Work = "noop"
    ordering: Ordering = "unordered"
    variants: tuple[str, ...] = ()
    """The kinds of telemetry that it runs with, see ``telemetry``, beside a run without."""
    slots: int = 16
    processes: bool = False
    """Its slots are child processes."""
    batch: int = 0
    """The most records in a list for the handler; 0: one record per call."""
    wait_s: float = 0.0
    """How long the handler sleeps."""
    waits_s: tuple[float, ...] = ()
    """How long it sleeps in each run of a series."""
    coroutine: bool = False
    """The handler is a coroutine function."""
    slow_wait_s: float = 0.0
    """How long it sleeps for a record with the slow mark."""
    fails: float = 0.0
    """The share of the records whose handler fails, drawn at random."""
    kills: int = 0
    """How often the untimed run's process is killed with -9."""
    may_repeat: int = 0
    """Records that may come twice because of that."""
    ids: int = 0
    """How many ids the table of ``once`` holds before it begins."""
    store: Store = "levels"
    """Where delayed records wait."""
    exact: bool = False
    """The delay service delivers exactly once."""
    memory: str = "256MiB"
    lasts_s: float = 0.0
    """How long records keep coming in; 0: they are all there at the start."""
    baselines: tuple[Baseline, ...] = ()
    floors: tuple[Floor, ...] = ()
    only: str = ""
    """Only variants with this text in their name run, where it has any."""
    runs: int = 3
    """How often it and each of its baselines run by default: once if it times nothing."""

    @property
    def wants_every_call(self) -> bool:
        """Whether a timed run may record its calls: that costs nearly nothing beside a wait.

        Not with a coroutine, of which a thousand wait at once.
        """
        return bool(self.wait_s) and not self.coroutine

    @property
    def ideal_per_s(self) -> float:
        """Slots divided by the nominal latency of the handler."""
        return self.slots / self.wait_s


WAIT_S = 0.010
"""How long a typical handler waits for a database."""

MILLION = TopicSpec(records=1_000_000, keys=10_000)

SHORT_RUNS = 7
"""Runs of a second are cheap and scatter."""
