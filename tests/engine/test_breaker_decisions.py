"""What a user decides who knows whether the failing records are bad, or an outage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import notes, spent_after
from tests.engine.test_outage import LONG_S, fail_all, opened, state, until, worker
from window_consumer.engine.guards.breaker_state import BreakerAnswer, BreakerRules, BreakerState
from window_consumer.model.errors import CallAgain

FULL: dict[str, Any] = {"window_cells": 8, "cell_records": 50}
CALL_S = 0.02


def decide(driven: Driven, *, release: bool) -> BreakerAnswer:
    return driven.engine.on_breaker_decision(driven.now, release=release)


def failing(driven: Driven, seconds: float) -> list[int]:
    """Let all calls fail for a time, 20 ms each; return the offsets that left."""
    left = []
    for _ in range(int(seconds / CALL_S)):
        for slice_ in list(driven.out):
            offsets = [each.offset() for each in slice_.messages]
            driven.fail(slice_, *offsets, elapsed=CALL_S * len(offsets))
        for each in driven.published(CALL_S):
            driven.copied(each)
            left.append(each.message.offset())
    return left


def full_of_bad_records(attempts: int = 2) -> Driven:
    """Return a worker that is open: bad records fill its window, and more come behind it."""
    driven = Driven(slots=4, retry=spent_after(attempts), breaker=BreakerRules(), **FULL)
    driven.deliver(*notes(*range(1000)))
    driven.engine.dispatcher.length.cost_s = CALL_S
    driven.tick()
    while state(driven) is not BreakerState.OPEN:
        failing(driven, CALL_S)
    return driven


@pytest.mark.parametrize("before_s", [0.2, 5.0])
def test_all_released_records_leave_although_bad_records_follow_them(before_s: float) -> None:
    driven = full_of_bad_records()
    failing(driven, before_s)
    held = set(driven.failing_offsets())
    assert len(held) > 20
    assert decide(driven, release=True) is BreakerAnswer.OBEYED
    left = set(failing(driven, 5.0))
    assert held <= left
    assert len(left - held) <= 20
    assert state(driven) is BreakerState.OPEN


def test_what_is_released_leaves_when_it_fails_and_is_done_when_it_returns() -> None:
    driven = opened(2, records=60)
    failing(driven, 5.0)
    held = set(driven.failing_offsets())
    decide(driven, release=True)
    good, left = min(held), []
    for _ in range(1000):
        for slice_ in list(driven.out):
            driven.fail(slice_, *(m.offset() for m in slice_.messages if m.offset() != good))
        left += [each.message.offset() for each in driven.published(LONG_S)]
    assert good not in left
    assert held - {good} <= set(left)


def test_spent_records_that_are_released_leave_at_once() -> None:
    driven = worker(1)
    until(driven, BreakerState.HOLDING)
    spent = [each.message.offset() for each in driven.failing() if each.reason is not None]
    assert spent
    assert decide(driven, release=True) is BreakerAnswer.OBEYED
    left = [each.message.offset() for each in driven.published()]
    assert set(spent) <= set(left)


def test_a_call_that_was_not_made_does_not_end_the_release() -> None:
    driven = full_of_bad_records()
    failing(driven, 5.0)
    decide(driven, release=True)
    driven.tick(10.0)
    held = {each.seq: each for each in driven.failing()}
    again = [each for each in driven.out if any(seq in held for seq in each.seqs)]
    assert again
    for slice_ in again:
        fail_all(driven, slice_, CallAgain(0.1, "busy"))
    assert all(held[seq].reason is None for slice_ in again for seq in slice_.seqs)


@pytest.mark.parametrize("attempts", [1, 2])
def test_after_hold_nothing_leaves_even_after_max_hold_until_a_call_returns(attempts: int) -> None:
    rules = BreakerRules(max_hold_s=10.0)
    driven = Driven(slots=4, retry=spent_after(attempts), breaker=rules)
    driven.deliver(*notes(*range(200)))
    driven.tick()
    until(driven, BreakerState.OPEN)
    assert decide(driven, release=False) is BreakerAnswer.OBEYED
    assert failing(driven, 60.0) == []
    (sample,) = driven.out or driven.tick(30.0).dispatch
    driven.finish(sample)
    driven.tick()
    assert state(driven) is BreakerState.HALF_OPEN
    assert failing(driven, 60.0)


def test_hold_takes_a_release_back() -> None:
    driven = full_of_bad_records()
    failing(driven, 5.0)
    decide(driven, release=True)
    driven.tick(10.0)
    assert decide(driven, release=False) is BreakerAnswer.OBEYED
    assert failing(driven, 60.0) == []
    assert state(driven) is BreakerState.OPEN


def test_an_outage_may_be_declared_while_all_seems_well() -> None:
    driven = worker(1)
    assert decide(driven, release=False) is BreakerAnswer.OBEYED
    assert failing(driven, 30.0) == []


def test_where_nothing_is_held_there_is_nothing_to_release() -> None:
    driven = worker(2)
    fail_all(driven, driven.out[0])
    assert decide(driven, release=True) is BreakerAnswer.NOTHING_HELD
    assert not any(each.released for each in driven.failing())


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("now", [each for each in BreakerState if each != BreakerState.CLOSED])
def test_it_obeys_in_any_state(now: BreakerState, *, release: bool) -> None:
    driven = full_of_bad_records()
    driven.engine.breaker.state = now
    assert decide(driven, release=release) is BreakerAnswer.OBEYED
    assert state(driven) is (BreakerState.POISON if release else BreakerState.OPEN)


@pytest.mark.parametrize("release", [True, False])
def test_a_breaker_that_is_switched_off_obeys_nobody(*, release: bool) -> None:
    driven = Driven(retry=spent_after(1), breaker=BreakerRules(enabled=False))
    assert decide(driven, release=release) is BreakerAnswer.SWITCHED_OFF
    assert state(driven) is BreakerState.CLOSED
