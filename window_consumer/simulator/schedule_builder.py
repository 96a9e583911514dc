"""Draws schedules from random numbers.

Everything is small: windows of a few records, budgets of a few bytes, retries of some milliseconds.
A window of six records reveals the bugs of a full window of 16,000.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import Literal
from zlib import crc32

from attrs import evolve

from window_consumer.engine.commits.start_offset import OnNoOffset
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitRules
from window_consumer.engine.scheduling.fetch_demand import EnoughRules
from window_consumer.engine.scheduling.rate_limit import Per, RateRules
from window_consumer.engine.scheduling.shares.share_classes import FairRules
from window_consumer.model.record import Message
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.simulator.schedule import (
    DELAYS_S,
    QUIET_WEIGHTS,
    TOPICS,
    Action,
    Handlers,
    InvalidOrderError,
    RedrivePlan,
    SchedulePlan,
)

_NOW_AND_THEN: dict[Action, float] = {
    "rebalance": 1.5,
    "evict": 0.7,
    "kill": 1.0,
    "stop": 0.7,
    "move_offset": 0.5,
    "holes": 2.0,
    "retention": 0.5,
    "cut": 0.3,
    "remake": 0.4,
    "widen": 0.3,
    "levels": 1.5,
    "weather": 2.0,
    "redrive": 5.0,
}
"""A schedule has about half of these, so that some schedules are quiet enough to get far."""

_WITH_BATCHES = 0.2
"""The share of schedules with batch handlers."""

_WITH_COROUTINES = 0.3
"""The share of the other schedules in which calls can be interrupted."""

_WITH_CHILDREN = 0.4
"""The share of both kinds in which slots are processes, which die."""

DEATHS = (0.0, 0.003, 0.03)
"""Shares of steps at which processes die for no reason."""

_CLIMBING = 0.25
"""The share of schedules whose subject is records that fail and wait in retry levels."""

_FOR_CLIMBING: dict[Action, float] = {
    "turn": 70.0,
    "work": 60.0,
    "acks": 15.0,
    "start": 10.0,
    "levels": 2.0,
    "rebalance": 2.0,
}
"""These have much work and few disturbances."""


_SHARED = 0.15
"""The share of schedules in which classes of records share the slots."""

_WIDER = 0.1
"""The share of schedules whose retry topics are wider than their sources."""

_LIMITED = 0.15
_RATED = 0.2
"""The shares of schedules with a changing limit (_LIMITED), and with a rate (_RATED)."""

_BY_CLASS = 0.4
"""The share of schedules with a rate and classes in which each class has a rate."""


def draw(rng: Random) -> SchedulePlan:
    """Draw a schedule."""
    # Batches use a separate generator, so that schedules without them stay the same.
    own = Random(str(rng.getstate()))
    plan = _drawn(rng)
    engine = evolve(plan.engine, enough=_enough(Random(str(rng.getstate()))))
    plan = evolve(plan, engine=engine)
    if own.random() < _WITH_BATCHES:
        plan = evolve(plan, engine=evolve(engine, fair=None, batch=_batches(own, engine)))
        return _fake_processes(own, plan) if own.random() < _WITH_CHILDREN else plan
    if own.random() < _WITH_COROUTINES:
        plan = evolve(plan, engine=evolve(engine, stall=evolve(engine.stall, ends=True)))
        return _fake_processes(own, plan) if own.random() < _WITH_CHILDREN else plan
    return plan


def _fake_processes(rng: Random, plan: SchedulePlan) -> SchedulePlan:
    """Make slots processes, which die for no reason or of some records."""
    engine = plan.engine
    deadly = 0.0 if engine.retry.when_spent == "stop" else rng.choice((0.0, 0.05, 0.2))
    return evolve(
        plan,
        engine=evolve(engine, stall=evolve(engine.stall, ends=True)),
        handlers=evolve(plan.handlers, deadly=deadly),
        deaths=rng.choice(DEATHS),
    )


def _enough(rng: Random) -> EnoughRules:
    return EnoughRules(rng.choice((1, 2, 4, 200)), rng.choice((0.0, 0.05)))


def _batches(rng: Random, engine: EngineRules) -> BatchRules:
    most = min(rng.choice((1, 2, 3, 6, 20)), engine.window_cells * engine.cell_records)
    return BatchRules(most, rng.randint(1, most), rng.choice((0.0, 0.01, 0.3, 2.0)))


def _drawn(rng: Random) -> SchedulePlan:
    actions = {
        **QUIET_WEIGHTS,
        **{action: weight for action, weight in _NOW_AND_THEN.items() if rng.random() < 0.5},
    }
    on_no_offset: OnNoOffset = "latest" if rng.random() < 0.15 else "earliest"
    if on_no_offset == "latest":
        # The meaning of "latest" is lost with a deleted topic.
        actions.pop("remake", None)
    engine = _engine(rng)
    sources = TOPICS[: 1 if rng.random() < 0.7 else 2]
    plan = SchedulePlan(
        engine=engine,
        sources=sources,
        loop=LoopRules(
            topics=sources,
            revoke_timeout_s=rng.choice((0.05, 0.5)),
            stop_timeout_s=rng.choice((0.05, 0.5)),
        ),
        incremental=rng.random() < 0.6,
        on_no_offset=on_no_offset,
        on_out_of_range="latest" if rng.random() < 0.3 else "earliest",
        partitions=rng.randint(1, 4),
        keys=_keys(rng),
        members=rng.choice((1, 1, 2, 2, 3)),
        max_value=rng.choice((0, 10, 40, 400)),
        copy_limit=rng.choice((200, 450, 700, 100_000)),
        pace_s=rng.choice((0.00005, 0.0005, 0.003, 0.02)),
        handlers=_handlers(
            rng, deadly=engine.retry.when_spent != "stop", many_die="redrive" in actions
        ),
        actions=tuple(actions),
        weights=tuple(accumulate(actions.values())),
        redriving=RedrivePlan(
            batch_records=rng.choice((1, 2, 4, 100)),
            max_redrives=rng.randint(1, 3),
            killed=rng.choice((0.0, 0.02, 0.1)),
            entry_limit=rng.choice((300, 450, 100_000, 100_000)),
        ),
    )
    plan = _climbing(rng, plan) if rng.random() < _CLIMBING else plan
    returns = rng.choice((0.1, 0.5, 1.0)) if rng.random() < 0.4 else 0.0
    plan = evolve(plan, handlers=evolve(plan.handlers, returns=returns))
    # A separate generator keeps the schedules of existing seeds the same.
    return _paced(Random(rng.getstate()[1][0]), plan)


def _paced(rng: Random, plan: SchedulePlan) -> SchedulePlan:
    """Give some schedules a rate, or a changing limit."""
    engine = plan.engine
    if rng.random() < _LIMITED:
        engine = evolve(engine, limit=LimitRules())
    if rng.random() < _RATED and engine.batch is None:
        per: Per = rng.choice(("worker", "key", "partition"))
        rate = RateRules(rng.choice((10.0, 100.0, 1000.0)), per, rng.choice((1, 2, 5)))
        engine = evolve(engine, rate=rate)
    if rng.random() < _WIDER:
        plan = evolve(plan, wider=rng.randint(1, 3), strays=rng.choice((0.0, 0.3)))
    if rng.random() < _SHARED and engine.batch is None:
        engine = evolve(engine, fair=_fair(rng))
        if engine.rate is not None and rng.random() < _BY_CLASS:
            engine = evolve(engine, rate=evolve(engine.rate, per="class"))
    return evolve(plan, engine=engine)


def _fair(rng: Random) -> FairRules:
    """Let records of a few classes share the slots; the records of a key may have several."""
    kinds, by_key = rng.choice((1, 2, 3)), rng.random() < 0.5

    def name_of(_topic: str, message: Message) -> str | None:
        number = crc32(message.key() or b"") if by_key else len(message)
        return str(number % kinds) if number % 7 else None

    return FairRules(
        name_of,
        {"0": rng.choice((0.1, 1.0, 10.0))},
        rng.choice(("shares", "strict")),
        rng.choice((0.0, 0.05, 0.5)),
        rng.choice((0.2, 0.5, 1.0, 1.0)),
        rng.choice((None, None, 1)),
        rng.choice((1, 100)),
    )


def _levels(rng: Random) -> tuple[Level, ...]:
    return () if rng.random() < 0.4 else _some_levels(rng)


def _some_levels(rng: Random) -> tuple[Level, ...]:
    delays = rng.sample(DELAYS_S, rng.randint(1, 3))
    return tuple(Level(f"{delay:g}", delay) for delay in sorted(delays))


def _engine(rng: Random) -> EngineRules:
    on_failure: Literal["overtake", "block"] = rng.choice(("overtake", "overtake", "block"))
    return EngineRules(
        slots=rng.randint(1, 8),
        ordering=rng.choice(("unordered", "key", "key", "partition")),
        retry=RetryRules(
            attempts=rng.randint(1, 4),
            crash_attempts=rng.randint(1, 3),
            backoff_min_s=rng.choice((0.0, 0.01, 0.2)),
            backoff_max_s=rng.choice((0.2, 1.0)),
            on_failure=on_failure,
            levels=_levels(rng) if on_failure == "overtake" else (),
            attempts_per_level=rng.choice((1, 1, 2)),
            when_spent=rng.choice(("dead_letter", "dead_letter", "dead_letter", "drop", "stop")),
            on_oversize=rng.choice(("hold", "reference", "stop")),
            fatal=(InvalidOrderError,),
        ),
        window_cells=rng.randint(2, 4),
        cell_records=rng.randint(1, 7),
        window_bytes=rng.choice((60, 300, 100_000)),
        batch_records=rng.choice((1, 3, 10, 40)),
        commit_interval_s=rng.choice((0.0, 0.02, 0.5)),
        hover_s=rng.choice((0.5, 30.0)),
        breaker=BreakerRules(
            # Without expiry of calls, which would only take time.
            window_s=1e6,
            min_calls=rng.randint(2, 6),
            cool_down_s=rng.choice((0.05, 1.0)),
            enabled=rng.random() < 0.6,
        ),
        stall=StallRules(
            after_s=rng.choice((0.3, 3.0, float("inf"))),
            action=rng.choice(("move", "move", "move", "report")),
            max_abandoned=rng.randint(0, 5),
        ),
    )


def _keys(rng: Random) -> tuple[bytes | None, ...]:
    few: tuple[bytes | None, ...] = (b"a", b"b")
    many = tuple(b"k%d" % number for number in range(20))
    return rng.choice(((b"a",), few, (*few, None), many, (None,)))


def _handlers(rng: Random, *, deadly: bool, many_die: bool) -> Handlers:
    def share(most: float) -> float:
        return rng.random() * most if rng.random() < 0.6 else 0.0

    return Handlers(
        fails=share(0.3),
        fatal=0.8 * rng.random() if many_die else share(0.1),
        skips=share(0.2),
        later=share(0.15),
        hangs=share(0.05),
        slow=share(0.4),
        poison=share(0.2),
        leaves=share(0.1),
        deadly=0.05 if rng.random() < 0.2 and deadly else 0.0,
    )


def _climbing(rng: Random, plan: SchedulePlan) -> SchedulePlan:
    """Return a schedule with many records in retry levels, and lanes that meet their copies."""
    engine, handlers = plan.engine, plan.handlers
    if rng.random() < 0.4:
        handlers = evolve(handlers, hangs=0.1)
        stall = StallRules(after_s=0.3, action="move", max_abandoned=rng.randint(1, 5))
        engine = evolve(engine, stall=stall)
    retry = evolve(
        engine.retry,
        attempts=1,
        on_failure="overtake",
        levels=_some_levels(rng),
        when_spent=rng.choice(("dead_letter", "drop")),
    )
    disturbances = [each for each in plan.actions if each in _NOW_AND_THEN]
    few = rng.sample(disturbances, min(3, len(disturbances)))
    actions = {**QUIET_WEIGHTS, **{each: _NOW_AND_THEN[each] for each in few}, **_FOR_CLIMBING}
    return evolve(
        plan,
        engine=evolve(
            engine,
            ordering=rng.choice(("unordered", "key", "key", "partition")),
            retry=retry,
            breaker=evolve(engine.breaker, enabled=rng.random() < 0.5),
        ),
        handlers=evolve(handlers, fails=0.3 + 0.4 * rng.random(), fatal=0.0, leaves=0.0),
        keys=rng.choice(((b"a",), (b"a", b"b"), (b"a", b"b", b"c", None))),
        members=rng.choice((1, 2, 2, 3)),
        partitions=rng.randint(1, 2),
        copy_limit=100_000,
        on_no_offset="earliest",
        # Too short to look like a frozen process.
        waits_s=(0.02, 0.2, 1.0),
        pace_s=rng.choice((0.0005, 0.003, 0.02)),
        actions=tuple(actions),
        weights=tuple(accumulate(actions.values())),
    )
