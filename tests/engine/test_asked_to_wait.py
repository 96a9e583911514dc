"""A call for which who is called asks for a pause: nothing starts before its end."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import notes, spent_after
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.model.errors import HoldCalls

WAIT = HoldCalls(5.0, "the service asks for a pause")


def asked_to_wait(**rules: object) -> Driven:
    """Return a worker whose first call was asked to wait for 5 s."""
    given = {"slots": 2, "retry": spent_after(1), "breaker": BreakerRules(min_calls=1), **rules}
    driven = Driven(**given)  # type: ignore[arg-type] # rules of the Engine
    driven.deliver(*notes(*range(20)))
    driven.tick()
    first = driven.out[0]
    driven.fail(first, first.messages[0].offset(), error=WAIT)
    return driven


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_nothing_starts_before_the_end_of_the_pause(ordering: str) -> None:
    driven = asked_to_wait(ordering=ordering)
    assert driven.tick(4.9).dispatch == []
    assert driven.tick(0.2).dispatch
    driven.finish_all()
    assert driven.committable == 20


def test_what_no_slot_has_claimed_is_taken_back() -> None:
    driven = asked_to_wait()
    waiting = list(driven.out)
    driven.tick()
    assert waiting
    assert all(not driven.claim(slice_) for slice_ in waiting)


def test_it_is_no_attempt_and_says_nothing_of_the_handler() -> None:
    driven = asked_to_wait()
    driven.tick(1.0)
    (failed,) = driven.failing()
    assert (failed.charged, failed.reason) == (0, None)
    assert driven.engine.breaker.state is BreakerState.CLOSED
    assert driven.published(60.0) == []


def test_a_longer_pause_replaces_a_shorter_one_and_no_other() -> None:
    driven = Driven(slots=2)
    driven.deliver(*notes(*range(20)))
    driven.tick()
    first, second, *_ = driven.out
    driven.fail(first, first.messages[0].offset(), error=HoldCalls(9.0, "later"))
    driven.fail(second, second.messages[0].offset(), error=WAIT)
    assert driven.tick(8.0).dispatch == []
    assert driven.tick(1.1).dispatch


def test_batches_wait_too() -> None:
    driven = asked_to_wait(batch=BatchRules(max_records=4, min_records=1, max_wait_s=0.0))
    assert driven.tick(4.9).dispatch == []
    driven.tick(0.2)
    driven.finish_all()
    driven.tick(1.0)
    driven.finish_all()
    assert driven.committable == 20
