"""The concurrency that a user sets: fewer slots are busy, until it is ended."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import notes
from window_consumer.engine.guards.interventions import ConcurrencyAnswer, ConcurrencyRequest
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitRules
from window_consumer.engine.windows_snapshot import PauseSnapshot

OBEYED = ConcurrencyAnswer.OBEYED
MANY = range(400)


def allow(driven: Driven, limit: int | None) -> ConcurrencyAnswer:
    return driven.engine.on_concurrency(ConcurrencyRequest(limit, "ops", "bank"), driven.now)


def busy() -> Driven:
    """Eight slots, each of which runs a record and has more."""
    driven = Driven(slots=8)
    driven.deliver(*notes(*MANY))
    driven.tick()
    for slice_ in list(driven.out)[:8]:
        driven.claim(slice_, 1)
    return driven


def test_no_more_slices_are_out_than_a_user_allows_once_running_calls_have_ended() -> None:
    driven = busy()
    assert len(driven.running_offsets) > 8
    assert allow(driven, 3) is OBEYED
    assert len(driven.running_offsets) == 8  # what was queued is taken back
    for slice_ in list(driven.out):
        driven.finish(slice_)
        assert not driven.tick().dispatch or len(driven.out) <= 3
    for _ in range(5):
        assert len(driven.out) == 3
        driven.finish(driven.out[0])
        driven.tick()
    driven.finish_all()
    assert driven.committable == len(MANY)


def test_the_end_of_a_limit_uses_all_slots_again() -> None:
    driven = busy()
    before = len(driven.out)
    allow(driven, 1)
    allow(driven, None)
    driven.tick()
    assert len(driven.out) >= before
    assert driven.snapshot().limit is None


def test_who_set_the_limit_since_when_and_why_is_shown() -> None:
    driven = Driven(slots=8)
    allow(driven, 3)
    driven.tick(2.0)
    seen = driven.snapshot()
    assert seen.limit is not None
    assert (seen.limit_now, seen.limit.settled, seen.limit.adapts) == (3, 3, False)
    assert seen.limit.manual == PauseSnapshot("ops", "bank", 2.0)


def test_the_slots_of_the_start_are_the_most() -> None:
    driven = Driven(slots=8)
    assert allow(driven, 8) is OBEYED
    assert allow(driven, 9) is ConcurrencyAnswer.TOO_MANY
    assert driven.snapshot().limit_now == 8


def test_leases_have_no_limit_but_their_clients() -> None:
    driven = Driven(stall=StallRules(leases=True, ends=True, action="report"))
    assert allow(driven, 1) is ConcurrencyAnswer.LEASES


@pytest.mark.parametrize("limit", [1, 30])
def test_a_worker_that_adapts_keeps_to_a_users_limit_and_then_to_its_own(limit: int) -> None:
    driven = Driven(slots=40, limit=LimitRules(lower=2, first=10))
    allow(driven, limit)
    driven.deliver(*notes(*range(2000)))
    for _ in range(200):
        driven.tick(0.01)
        assert len(driven.out) <= limit
        for slice_ in list(driven.out):
            driven.finish(slice_, elapsed=0.01)
    seen = driven.snapshot().limit
    assert seen is not None
    assert (seen.limit, seen.settled, seen.adapts) == (limit, 10, True)
    allow(driven, None)
    driven.tick()
    after = driven.snapshot().limit
    assert after is not None
    assert (after.limit, after.manual) == (10, None)
