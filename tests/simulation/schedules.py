"""Schedules with many events that are rare in ordinary ones."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random
from typing import Literal

from attrs import evolve

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.parking.index import ParkLimits
from window_consumer.simulator.schedule import (
    QUIET_WEIGHTS,
    Action,
    Handlers,
    ReplayPlan,
    SchedulePlan,
    fitted,
)
from window_consumer.simulator.schedule_builder import draw

_MORE = {"redrive": 3.0, "turn": 2.0, "acks": 3.0}


def many_dead_letters(rng: Random) -> SchedulePlan:
    """Half of the calls end with a dead letter, and some are always being put back."""
    plan = draw(rng)
    while "redrive" not in plan.actions:
        plan = draw(rng)
    weights = [after - before for before, after in pairwise((0.0, *plan.weights))]
    more = (_MORE.get(name, 1.0) for name in plan.actions)
    oversize: Literal["hold", "reference"] = rng.choice(("hold", "reference", "reference"))
    return evolve(
        plan,
        engine=evolve(
            plan.engine,
            retry=evolve(plan.engine.retry, when_spent="dead_letter", on_oversize=oversize),
        ),
        handlers=evolve(
            plan.handlers, fatal=0.5, hangs=0.0, deadly=0.05 if rng.random() < 0.3 else 0.0
        ),
        pace_s=rng.choice((0.003, 0.02)),
        copy_limit=rng.choice((600, 700, 100_000)),
        max_value=400,
        weights=tuple(accumulate(w * m for w, m in zip(weights, more, strict=True))),
    )


def with_batches(rng: Random) -> SchedulePlan:
    """Handlers get lists."""
    plan = draw(rng)
    while plan.engine.batch is None:
        plan = draw(rng)
    return plan


def failing_batches(rng: Random) -> SchedulePlan:
    """Handlers get lists with several records of a key, and many of those fail, or their call."""
    plan = with_batches(rng)
    on_failure: Literal["overtake", "block"] = rng.choice(("overtake", "block"))
    retry = evolve(plan.engine.retry, attempts=3, on_failure=on_failure, levels=())
    hangs = 0.1 if on_failure == "overtake" else 0.0
    return evolve(
        plan,
        engine=evolve(
            plan.engine,
            ordering="key",
            retry=retry,
            batch=BatchRules(6, rng.randint(1, 3), 0.01),
            cell_records=6,
            window_bytes=100_000,
            breaker=evolve(plan.engine.breaker, enabled=False),
            stall=StallRules(after_s=0.3, max_abandoned=3),
        ),
        keys=(b"a", b"b"),
        handlers=evolve(plan.handlers, fails=0.4, fatal=0.0, leaves=0.0, deadly=0.0, hangs=hangs),
        deaths=None,
    )


def with_deaths(rng: Random) -> SchedulePlan:
    """Slots are processes that die, of themselves or of some records."""
    plan = draw(rng)
    while plan.deaths is None:
        plan = draw(rng)
    return plan


def dying_slices(rng: Random) -> SchedulePlan:
    """Slices hold several records, and the processes that are on them die often."""
    plan = with_deaths(rng)
    while plan.engine.batch is not None:
        plan = with_deaths(rng)
    return _dying(rng, plan)


def dying_batches(rng: Random) -> SchedulePlan:
    """Handlers get lists in processes that die often, with several records of few keys."""
    plan = with_deaths(rng)
    while plan.engine.batch is None:
        plan = with_deaths(rng)
    plan = _dying(rng, plan)
    return evolve(plan, engine=evolve(plan.engine, batch=BatchRules(6, 3, 0.01)))


def _dying(rng: Random, plan: SchedulePlan) -> SchedulePlan:
    engine = evolve(
        plan.engine,
        slots=2,
        ordering=rng.choice(("unordered", "key", "key", "partition")),
        retry=evolve(plan.engine.retry, when_spent="dead_letter"),
        cell_records=6,
        batch_records=40,
        window_bytes=100_000,
    )
    handlers = evolve(plan.handlers, deadly=0.1, hangs=0.0)
    return evolve(plan, engine=engine, keys=(b"a", b"b"), handlers=handlers, deaths=0.03)


_MORE_RESULTS = {"turn": 2.0, "work": 2.0, "acks": 6.0, "weather": 8.0}


def many_results(rng: Random) -> SchedulePlan:
    """Most calls return something to produce, in weather in which much of it is lost."""
    plan = draw(rng)
    while "weather" not in plan.actions:
        plan = draw(rng)
    weights = [after - before for before, after in pairwise((0.0, *plan.weights))]
    more = (_MORE_RESULTS.get(name, 1.0) for name in plan.actions)
    quiet = Handlers(
        fails=0.05 if rng.random() < 0.3 else 0.0,
        fatal=0.0,
        skips=0.0,
        later=0.0,
        leaves=0.0,
        hangs=0.0,
        slow=0.2 if rng.random() < 0.3 else 0.0,
        poison=0.0,
        deadly=0.0,
        returns=rng.choice((0.3, 0.8, 1.0)),
    )
    return evolve(
        plan,
        engine=evolve(plan.engine, window_bytes=rng.choice((300, 10_000, 100_000)), batch=None),
        handlers=quiet,
        pace_s=rng.choice((0.003, 0.02)),
        weights=tuple(accumulate(w * m for w, m in zip(weights, more, strict=True))),
    )


def outages(rng: Random) -> SchedulePlan:
    """Every call fails now and then, for long, with a breaker that should hold.

    Many records come meanwhile: more than may leave without a success between them.
    """
    plan = draw(rng)
    while "weather" not in plan.actions:
        plan = draw(rng)
    weights = [after - before for before, after in pairwise((0.0, *plan.weights))]
    often = {"turn": 2.0, "work": 4.0, "produce": 4.0}
    more = (often.get(name, 1.0) for name in plan.actions)
    retry = evolve(
        plan.engine.retry, attempts=1, on_failure="overtake", levels=(), when_spent="dead_letter"
    )
    breaker = evolve(plan.engine.breaker, enabled=True, min_calls=2)
    return evolve(
        plan,
        engine=evolve(
            plan.engine, retry=retry, breaker=breaker, slots=2, batch=None, window_bytes=100_000
        ),
        handlers=evolve(
            plan.handlers, fails=0.0, fatal=0.0, skips=0.0, later=0.0, leaves=0.0, hangs=0.0
        ),
        copy_limit=100_000,
        weights=tuple(accumulate(w * m for w, m in zip(weights, more, strict=True))),
    )


def poisoned(rng: Random) -> SchedulePlan:
    """Some records always fail, and are called often; nothing else goes wrong."""
    plan = draw(rng)
    actions = {**QUIET_WEIGHTS, "produce": 20.0}
    retry = evolve(
        plan.engine.retry,
        attempts=4,
        backoff_min_s=0.01,
        on_failure="overtake",
        levels=_LEVELS if rng.random() < 0.5 else (),
        attempts_per_level=2,
        when_spent="dead_letter",
    )
    return evolve(
        plan,
        engine=evolve(
            plan.engine,
            slots=4,
            retry=retry,
            window_bytes=100_000,
            breaker=BreakerRules(cool_down_s=10.0),
            stall=StallRules(),
            rate=None,
            limit=None,
        ),
        handlers=Handlers(
            fails=0.0,
            fatal=0.0,
            skips=0.0,
            later=0.0,
            leaves=0.0,
            hangs=0.0,
            slow=0.2,
            poison=rng.choice((0.05, 0.1, 0.2)),
            deadly=0.0,
        ),
        deaths=None,
        copy_limit=100_000,
        waits_s=(0.001, 0.02, 0.2),
        pace_s=0.003,
        actions=tuple(actions),
        weights=tuple(accumulate(actions.values())),
    )


def turned(rng: Random) -> SchedulePlan:
    """A rule holds, finishes or lets leave many records at their turn."""
    plan = draw(rng)
    return evolve(plan, handlers=evolve(plan.handlers, turns=0.4))


def turned_in_lanes(rng: Random) -> SchedulePlan:
    """As ``turned``, with slices of several records of few lanes."""
    plan = turned(rng)
    ordering: Literal["key", "partition"] = rng.choice(("key", "key", "partition"))
    engine = evolve(
        plan.engine, ordering=ordering, slots=2, cell_records=8, window_bytes=100_000, batch=None
    )
    return evolve(plan, engine=engine, keys=(b"a", b"b"), pace_s=0.0005, deaths=None)


_PARKING: dict[Action, float] = {
    "turn": 70.0,
    "work": 50.0,
    "produce": 8.0,
    "wait": 4.0,
    "acks": 15.0,
    "news": 0.5,
    "start": 6.0,
    "rebalance": 1.0,
    "kill": 1.5,
    "evict": 0.5,
    "stop": 0.7,
    "weather": 3.0,
    "levels": 0.5,
    "halt": 1.0,
}

_TO_TOPICS: dict[Action, float] = {
    "move_offset": 0.5,
    "holes": 2.0,
    "retention": 1.0,
    "cut": 0.5,
    "remake": 0.6,
    "widen": 0.5,
}
"""Events of topics; at most one of these for topics with parked records."""


def parked(rng: Random) -> SchedulePlan:
    """Keys fail and keep their order, with kills at any step."""
    plan = draw(rng)
    retry = evolve(
        plan.engine.retry,
        on_failure="park",
        attempts=rng.randint(1, 2),
        levels=rng.choice((_LEVELS[:1], _LEVELS, (Level("0.05", 0.05), Level("0.3", 0.3)))),
        when_spent=rng.choice(("dead_letter", "dead_letter", "drop")),
    )
    engine = evolve(plan.engine, ordering="key", retry=retry, batch=None)
    poison = rng.choice((0.0, 0.0, 0.1))
    deadly = rng.choice((0.0, 0.0, 0.05))
    handlers = evolve(
        plan.handlers, fails=rng.choice((0.1, 0.4)), returns=0.0, deadly=deadly, poison=poison
    )
    actions = {
        each: weight
        for each, weight in _PARKING.items()
        if each in _ALWAYS_PARKING or rng.random() < 0.6
    }
    if rng.random() < 0.4:
        happens = rng.choice(tuple(_TO_TOPICS))
        actions[happens] = _TO_TOPICS[happens]
    return evolve(
        plan,
        engine=engine,
        handlers=handlers,
        keys=(b"a", b"b", b"c", None),
        on_no_offset="earliest",
        copy_limit=100_000,
        wider=0,
        strays=0.0,
        parking=ParkLimits(rng.choice((1, 3, 100)), rng.choice((2, 5, 1000))),
        actions=tuple(actions),
        weights=tuple(accumulate(actions.values())),
    )


def following(rng: Random) -> SchedulePlan:
    """As ``parked``, with many dead heads: records that wait behind one follow it."""
    plan = parked(rng)
    retry = evolve(plan.engine.retry, attempts=1, levels=(Level("0.05", 0.05),))
    return evolve(
        plan,
        engine=evolve(
            plan.engine, retry=retry, breaker=evolve(plan.engine.breaker, enabled=False), rate=None
        ),
        handlers=Handlers(
            fails=0.5,
            fatal=0.1,
            skips=0.0,
            later=0.0,
            leaves=rng.choice((0.0, 0.05)),
            hangs=0.0,
            slow=0.1,
            poison=0.0,
            deadly=0.0,
        ),
        sources=plan.sources[:1],
        partitions=rng.choice((1, 2)),
        keys=(b"a", b"b"),
        waits_s=(0.001, 0.02, 0.2),
        pace_s=rng.choice((0.001, 0.003)),
        members=rng.choice((1, 2)),
        follows=True,
        actions=tuple(_FOLLOWING),
        weights=tuple(accumulate(_FOLLOWING.values())),
    )


_FOLLOWING: dict[Action, float] = {
    "turn": 60.0,
    "work": 50.0,
    "produce": 16.0,
    "wait": 3.0,
    "acks": 25.0,
    "start": 6.0,
    "rebalance": 1.0,
    "kill": 1.5,
    "stop": 0.7,
}


_ALWAYS_PARKING = frozenset({"turn", "work", "produce", "wait", "acks", "start"})

_LEVELS = (Level("1", 1.0), Level("2", 2.0))


def lost_partitions(rng: Random) -> SchedulePlan:
    """Members are thrown out of the group again and again, most of them without an order."""
    plan = draw(rng)
    weights = [after - before for before, after in pairwise((0.0, *plan.weights))]
    actions = {**dict(zip(plan.actions, weights, strict=True)), "evict": 4.0, "work": 40.0}
    return evolve(
        plan,
        engine=evolve(
            plan.engine,
            ordering=rng.choice(("unordered", "unordered", "unordered", "key")),
            commit_interval_s=rng.choice((0.02, 0.5, 5.0)),
            window_bytes=100_000,
            cell_records=rng.randint(2, 7),
        ),
        members=rng.choice((1, 2)),
        pace_s=rng.choice((0.0005, 0.003)),
        actions=tuple(actions),
        weights=tuple(accumulate(actions.values())),
    )


def with_stalls_that_are_retried(rng: Random) -> SchedulePlan:
    """Calls hang and are ended, and their records are called again before they climb."""
    plan = draw(rng)
    engine = plan.engine
    return evolve(
        plan,
        engine=evolve(
            engine,
            stall=StallRules(after_s=0.3, action="retry", max_abandoned=3, ends=True),
            retry=evolve(engine.retry, attempts=3, retries_stalled=True),
        ),
        handlers=evolve(plan.handlers, hangs=0.1),
    )


def rotating(rng: Random) -> SchedulePlan:
    """As ``parked``, with park windows full of records that wait for others than those behind."""
    plan = parked(rng)
    engine = evolve(
        plan.engine,
        window_cells=2,
        cell_records=rng.randint(1, 2),
        slots=4,
        window_bytes=100_000,
        retry=evolve(
            plan.engine.retry,
            attempts=1,
            backoff_min_s=0.0,
            levels=(Level("0.05", 0.05), Level("6", 6.0)),
        ),
        stall=StallRules(),
        breaker=evolve(plan.engine.breaker, enabled=False),
        rate=None,
    )
    handlers = evolve(plan.handlers, fails=0.5, hangs=0.0, later=0.0, slow=0.0)
    return evolve(
        plan,
        engine=engine,
        handlers=handlers,
        partitions=1,
        parking=ParkLimits(),
        pace_s=rng.choice((0.003, 0.02)),
    )


def rotating_what_was_written(rng: Random) -> SchedulePlan:
    """As ``rotating``; no log is cut, no topic recreated: copies do not outlive their records."""
    return _with(_with(rotating(rng), "cut", 0.0), "remake", 0.0)


def parked_with_much_else(rng: Random) -> SchedulePlan:
    """As ``parked``; records also leave or finish at their turn, and have results.

    The worker has little memory, and the copies of some records are too large.
    """
    plan = parked(rng)
    oversize: Literal["hold", "reference"] = rng.choice(("hold", "reference"))
    retry = evolve(plan.engine.retry, on_oversize=oversize)
    return evolve(
        plan,
        engine=evolve(plan.engine, retry=retry, window_bytes=rng.choice((60, 300, 100_000))),
        handlers=evolve(
            plan.handlers, turns=rng.choice((0.0, 0.3)), returns=rng.choice((0.0, 0.3, 0.8))
        ),
        copy_limit=rng.choice((450, 700, 100_000)),
        max_value=400,
    )


def following_in_wider_topics(rng: Random) -> SchedulePlan:
    """As ``following``; topics become wider, and those of their dead letters do not."""
    return _with(following(rng), "widen", 1.0)


def recreated(rng: Random) -> SchedulePlan:
    """As ``parked``, with source topics that are deleted and recreated."""
    return evolve(_with(parked(rng), "remake", 2.0), partitions=1)


def put_back(rng: Random) -> SchedulePlan:
    """As ``rotating``, with dead letters that are put back."""
    return _with(rotating(rng), "redrive", 4.0)


def _with(plan: SchedulePlan, action: Action, weight: float) -> SchedulePlan:
    weights = (after - before for before, after in pairwise((0.0, *plan.weights)))
    actions = {**dict(zip(plan.actions, weights, strict=True)), action: weight}
    return evolve(plan, actions=tuple(actions), weights=tuple(accumulate(actions.values())))


def exactly_once(rng: Random) -> SchedulePlan:
    """Results, copies and commits are transactions; members are killed and partitions move."""
    plan = draw(rng)
    handlers = evolve(plan.handlers, returns=rng.choice((0.3, 0.8)))
    engine = evolve(plan.engine, delivery=DeliveryMode.EXACTLY_ONCE)
    return fitted(_with(evolve(plan, engine=engine, handlers=handlers), "kill", 2.0))


def at_most_once(rng: Random) -> SchedulePlan:
    """Records are committed before their only call; members are killed and partitions move."""
    plan = draw(rng)
    retry = evolve(
        plan.engine.retry,
        attempts=1,
        on_failure="overtake",
        levels=(),
        when_spent="drop",
        is_final=True,
    )
    engine = evolve(plan.engine, delivery=DeliveryMode.AT_MOST_ONCE, retry=retry)
    plan = evolve(plan, engine=engine, on_no_offset="earliest")
    return fitted(_with(plan, "kill", 2.0))


def following_in_transactions(rng: Random) -> SchedulePlan:
    """As ``following``: an abort lets records run again, and the ladder is scanned again."""
    plan = following(rng)
    return fitted(evolve(plan, engine=evolve(plan.engine, delivery=DeliveryMode.EXACTLY_ONCE)))


_REPLAYING: dict[Action, float] = {"replay": 4.0, "kill": 1.5, "rebalance": 1.0}


def replayed(rng: Random) -> SchedulePlan:
    """Records are replayed beside live ones, by processes that are killed at any step."""
    return _replaying(rng, draw(rng))


def replayed_and_parked(rng: Random) -> SchedulePlan:
    """As ``replayed``, with keys that fail and keep their order."""
    return _replaying(rng, parked(rng))


def _replaying(rng: Random, plan: SchedulePlan) -> SchedulePlan:
    for action, weight in _REPLAYING.items():
        plan = _with(plan, action, weight)
    for action in _NOT_PROMISED:
        plan = _with(plan, action, 0.0)
    replaying = ReplayPlan(rng.choice((1, 2, 4, 100)), rng.choice((0.0, 0.02, 0.1)))
    return evolve(plan, replaying=replaying)


_NOT_PROMISED: tuple[Action, ...] = ("cut", "remake")
"""A replay of a truncated or recreated topic ends with an error."""
