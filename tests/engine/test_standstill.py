from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes, spent_after

DOUBT_S = 1.0


def frozen(driven: Driven, seconds: float = 60.0) -> list[int]:
    """Let the process stand still; return the offsets of the suspects."""
    driven.now += seconds
    return [call.offset for call in driven.engine.on_stood_still(DOUBT_S, driven.now)]


def test_calls_that_may_have_run_meanwhile_are_suspects_and_those_that_wait_are_not() -> None:
    driven = Driven(slots=2)
    driven.deliver(*notes(0, 1, 2, 3))
    driven.tick()
    running, queued = driven.out[:2]
    driven.claim(running, 1)
    assert frozen(driven) == [0]
    assert driven.claim(queued) == []


def test_nothing_starts_until_the_doubt_is_over_and_then_everything_does() -> None:
    driven = Driven(slots=2)
    driven.deliver(*notes(*range(6)))
    driven.tick()
    driven.claim(driven.out[0], 1)
    frozen(driven)
    assert driven.tick(DOUBT_S * 0.9).dispatch == []
    driven.tick(DOUBT_S * 0.2)
    driven.finish_all()
    assert driven.engine.counters.processed == 6
    assert driven.engine.partitions[ORDERS].window.next_offset == 6


def test_nothing_is_committed_until_the_doubt_is_over() -> None:
    driven = Driven(slots=1, commit_interval_s=0.01)
    driven.deliver(*notes(0))
    driven.tick()
    driven.claim(driven.out[0], 1)
    frozen(driven)
    driven.finish(driven.out[0])
    assert driven.tick(DOUBT_S * 0.9).commit == []
    assert [each.next_offset for each in driven.tick(DOUBT_S * 0.2).commit] == [1]


def test_a_retry_that_is_queued_keeps_its_place() -> None:
    driven = Driven(slots=1, ordering="key", retry=spent_after(3))
    driven.deliver(*notes(0, 1, keys=[b"k", b"k"]))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(10.0)
    (retry,) = driven.out
    assert frozen(driven) == []
    assert driven.claim(retry, 1) == retry.messages
    assert retry.call.attempt == 2
    driven.finish(retry)
    driven.tick(DOUBT_S * 1.1)
    driven.finish_all()
    assert driven.engine.counters.processed == 2


def test_calls_of_partitions_that_are_gone_are_no_suspects() -> None:
    driven = Driven(slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.claim(driven.out[0], 1)
    driven.engine.on_lost([ORDERS], driven.now)
    assert frozen(driven) == []
