"""A schedule: what a seed decides in advance about the configuration, the logs and the faults."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

from attrs import evolve, field, frozen

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.commits.start_offset import OnNoOffset
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.parking.index import ParkLimits
from window_consumer.runtime.partitions.offset_reset import OnOutOfRange
from window_consumer.runtime.poll_loop import LoopRules

GROUP = "shop"
TOPICS = ("orders", "returns")
RESULT_TOPICS = ("invoices", "nowhere")
"""The topics that handlers produce to; the second does not exist."""

DELAYS_S = (0.0, 0.05, 0.3, 1.0, 6.0)
"""Delays of retry levels."""


class InvalidOrderError(Exception):
    """Raised by simulated handlers; the rules call it fatal."""


@frozen
class Handlers:
    """How simulated handler calls end; shares of all calls."""

    fails: float
    fatal: float
    skips: float
    later: float
    leaves: float
    """Records that are not called: expired, or without a handler."""
    hangs: float
    """Calls that last until the faults are over."""
    slow: float
    """Calls that last for some steps."""
    poison: float
    """Records that fail whenever they are called."""
    deadly: float
    """Records that end the process whenever they are called."""
    returns: float = 0.0
    """The share of successful calls that return records to produce."""
    refused: float = 0.15
    """The share of these calls whose last result is permanently refused."""
    turns: float = 0.0
    """Records that a rule holds, finishes or lets leave at their turn."""


@frozen
class RedrivePlan:
    """How dead letters are redriven."""

    batch_records: int = 4
    max_redrives: int = 3
    entry_limit: int = 100_000
    """The largest record that the entry topics accept."""
    killed: float = 0.0
    """The share of steps at which the process ends."""


@frozen
class ReplayPlan:
    """How records are replayed."""

    batch_records: int = 4
    killed: float = 0.0
    """The share of steps at which the process ends."""


Action = Literal[
    "turn",
    "work",
    "produce",
    "wait",
    "acks",
    "news",
    "rebalance",
    "start",
    "evict",
    "kill",
    "stop",
    "move_offset",
    "holes",
    "retention",
    "cut",
    "remake",
    "widen",
    "levels",
    "weather",
    "redrive",
    "replay",
    "halt",
]

QUIET_WEIGHTS: dict[Action, float] = {
    "turn": 45.0,
    "work": 30.0,
    "produce": 8.0,
    "wait": 6.0,
    "acks": 5.0,
    "news": 0.5,
    "start": 4.0,
}

QUIET = frozenset(QUIET_WEIGHTS)
"""The actions of schedules in which only handlers cause trouble."""


@frozen
class SchedulePlan:
    """One schedule."""

    engine: EngineRules
    loop: LoopRules
    sources: tuple[str, ...]
    """The topics that records are written to."""
    incremental: bool
    on_no_offset: OnNoOffset
    on_out_of_range: OnOutOfRange
    partitions: int
    """Partitions of each topic."""
    keys: tuple[bytes | None, ...]
    members: int
    max_value: int
    copy_limit: int
    """The largest record that the dead-letter topics accept."""
    pace_s: float
    """How much time passes in a step, on average."""
    handlers: Handlers
    waits_s: tuple[float, ...] = (0.001, 0.02, 0.2, 1.0, 20.0)
    """How long everything may be frozen."""
    wider: int = 0
    """How many more partitions retry topics have than their sources."""
    strays: float = 0.0
    """The share of copies in retry topics placed by key, as an earlier version did."""
    calm_step_s: float = 0.3
    """How much time passes in a round without a fault."""
    values: tuple[bytes, ...] = ()
    """The records' values; invented if there are none."""
    actions: tuple[Action, ...] = ()
    weights: tuple[float, ...] = field(factory=tuple)
    """Cumulative weights of ``actions``."""
    redriving: RedrivePlan = field(factory=RedrivePlan)
    replaying: ReplayPlan = field(factory=ReplayPlan)
    parking: ParkLimits = field(factory=ParkLimits)
    """The limits of parking, if the Engine's rules say ``park``."""
    follows: bool = False
    """Records behind a dead head of their key follow it to the dead letters."""
    deaths: float | None = None
    """The share of a slot's steps at which its process dies; None if slots are not processes."""

    @property
    def repeats(self) -> bool:
        """Whether unfinished records are delivered again."""
        return self.engine.delivery is not DeliveryMode.AT_MOST_ONCE

    @property
    def parks(self) -> bool:
        """Whether the later records of a key wait for a failed one in the park topic."""
        return self.engine.retry.on_failure == "park"

    @property
    def is_transactional(self) -> bool:
        """Whether outputs and commits are written in transactions."""
        return self.engine.delivery is DeliveryMode.EXACTLY_ONCE


_REPEATING: frozenset[Action] = frozenset(
    {"move_offset", "cut", "remake", "levels", "redrive", "replay"}
)
"""Actions that make records come again whatever was committed, or that need retry topics."""


def fitted(plan: SchedulePlan) -> SchedulePlan:
    """Return the schedule without events that its delivery guarantee promises nothing about."""
    if plan.is_transactional:
        # The watches do not see when a broker refuses a record of a transaction. After a log was
        # cut, a record whose output is in the open transaction may be read again.
        handlers = evolve(plan.handlers, refused=0.0)
        return _without(evolve(plan, handlers=handlers, copy_limit=100_000), frozenset({"cut"}))
    if plan.repeats:
        return plan
    return _without(evolve(plan, handlers=evolve(plan.handlers, deadly=0.0)), _REPEATING)


def _without(plan: SchedulePlan, unwanted: frozenset[Action]) -> SchedulePlan:
    steps = (after - before for before, after in pairwise((0.0, *plan.weights)))
    weights = {
        action: weight
        for action, weight in zip(plan.actions, steps, strict=True)
        if action not in unwanted
    }
    return evolve(plan, actions=tuple(weights), weights=tuple(accumulate(weights.values())))


def copy_topic(topic: str, level: Level | None = None) -> str:
    """Return the topic for copies of a topic's records."""
    return f"{GROUP}.{topic}.dlq" if level is None else f"{GROUP}.{topic}.retry.{level.name}"


def entry_topic(topic: str) -> str:
    """Return the topic that a topic's redriven and replayed records enter."""
    return f"{GROUP}.{topic}.retry.now"


def park_topic(topic: str) -> str:
    """Return the topic where the records of a topic are parked."""
    return f"{GROUP}.{topic}.park"


def retry_levels_of(sources: Sequence[str], levels: Sequence[Level]) -> dict[str, RetryTopicLevel]:
    """Return the topics of the retry levels."""
    return {
        copy_topic(source, level): RetryTopicLevel(source, level, is_copy=True)
        for source in sources
        for level in levels
    }
