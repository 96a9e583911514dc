"""Schedules with much of what ordinary ones have little of."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random
from typing import Literal

from attrs import evolve

from window_consumer.testing.schedule import Plan, draw

_MORE = {"redrive": 3.0, "turn": 2.0, "acks": 3.0}


def many_dead_letters(rng: Random) -> Plan:
    """Half of the calls end with a dead letter, and somebody is always putting some back."""
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
