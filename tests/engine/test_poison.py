"""Records that always fail, among healthy ones: who waits for whom, with the circuit breaker on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.laddered import ENTRY, LEVELS, RETRIED, Laddered
from tests.engine.support import ORDERS, failure, notes, spent_after
from window_consumer.engine.guards.breaker.departures import (
    HOLD_S,
    SETTLE_S,
    Departure,
    Departures,
    SpentCall,
)
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice

CALL_S = 0.01

HELD_S = 30.0

LATE_S = 1.0
"""How late a dead letter may come after the policy's time, while slots are free for its calls."""


class Shop:
    """A worker whose calls take ``call_s`` each; those of bad records fail."""

    def __init__(self, driven: Driven, is_bad: Callable[[Any], bool], call_s: float = CALL_S):
        self.driven = driven
        self.call_s = call_s
        self.is_bad = is_bad
        self.left: dict[int, float] = {}
        """When records left, by offset."""
        self.states: set[BreakerState] = set()

    def turn(self) -> None:
        """Let each slot finish its slice, and the broker ack what is copied."""
        driven = self.driven
        for slice_ in list(driven.out)[: driven.engine.rules.slots]:
            bad = [m.offset() for m in slice_.messages if self.is_bad(m)]
            self.fail(slice_, bad)
        for failed in driven.published(self.call_s):
            self.left.setdefault(failed.message.offset(), driven.now)
            driven.copied(failed)
        self.states |= {news.state for news in driven.last.breaker}

    def fail(self, slice_: Slice, bad: Sequence[int]) -> None:
        for message in self.driven.claim(slice_):
            if message.offset() in bad:
                slice_.deviate().failed.append((message, failure()))
        self.driven.finish(slice_, elapsed=self.call_s * len(slice_.messages))

    def until(self, is_over: Callable[[], bool], within_s: float) -> float:
        """Go on until something is the case; return how long that took."""
        began = self.driven.now
        while not is_over():
            self.turn()
            assert self.driven.now - began < within_s, self.driven.engine.breaker.state
        return self.driven.now - began


def every(count: int) -> Callable[[Any], bool]:
    return lambda message: message.offset() % count == 0


def shop(*, share: int, records: int, slots: int = 8, **rules: Any) -> Shop:
    """Return a worker that has records of which one in ``share`` always fails."""
    given: dict[str, Any] = {"retry": spent_after(3), "breaker": BreakerRules(), **rules}
    it = Shop(Driven(slots=slots, **given), every(share))
    it.driven.deliver(*notes(*range(records)))
    it.driven.tick()
    return it


def processed(it: Shop) -> int:
    return it.driven.engine.counters.processed


@pytest.mark.parametrize("share", [100, 27, 10, 4])
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_healthy_records_hardly_wait_for_bad_ones_and_these_leave_in_time(
    share: int, ordering: str
) -> None:
    it = shop(share=share, records=8000, ordering=ordering)
    bad = len(range(0, 8000, share))
    alone_s = 8000 / 8 * CALL_S
    took_s = it.until(lambda: processed(it) == 8000 - bad, within_s=2 * alone_s)
    assert took_s <= 1.2 * alone_s
    it.until(lambda: len(it.left) == bad, within_s=alone_s + 10.0)
    assert BreakerState.OPEN not in it.states


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("levels", [(), LEVELS], ids=["local", "levels"])
def test_bad_records_that_fail_at_once_are_reported_first_and_are_no_outage(
    seed: int, levels: tuple[Level, ...]
) -> None:
    """... while the healthy ones, which take their time, still run."""
    bad = set(Random(seed).sample(range(3000), 900))
    retry = spent_after(2, levels=levels)
    driven = Driven(slots=64, retry=retry, breaker=BreakerRules(), ordering="key")
    driven.engine.dispatcher.length.record(1000, 1000 * 0.2)  # a slice is a record
    driven.engine.dispatcher.length.learn()
    keys = [b"%d" % offset for offset in range(3000)]
    driven.deliver(*notes(*range(3000), keys=keys))
    ends: dict[Slice, float] = {}
    first_failed: dict[int, float] = {}
    left: dict[int, float] = {}
    began = driven.now
    while driven.engine.partitions[ORDERS].window.open:
        for failed in driven.published(0.001):
            left[failed.message.offset()] = driven.now
            driven.copied(failed)
        assert driven.engine.breaker.state is not BreakerState.OPEN
        for slice_ in driven.out[:64]:
            if slice_ not in ends:
                driven.claim(slice_)
                is_bad = {message.offset() for message in slice_.messages} <= bad
                ends[slice_] = driven.now + (0.0 if is_bad else 0.2)
        for slice_ in [each for each in driven.out if ends.get(each, 1e9) <= driven.now]:
            bad_ones = [m for m in slice_.messages if m.offset() in bad]
            slice_.deviate().failed.extend((message, failure()) for message in bad_ones)
            for message in bad_ones:
                first_failed.setdefault(message.offset(), driven.now)
            driven.finish(slice_, elapsed=0.001 if bad_ones else 0.2)
        assert driven.now - began < 60.0
    assert left.keys() == bad
    assert driven.now - began < 1.2 * 3000 / 64 * 0.2 + 3.0
    local_s = retry.schedule()[0].longest_s
    late = sorted(left[each] - first_failed[each] - local_s for each in bad)
    assert late[-1] <= LATE_S, (late[-20:], driven.engine.breaker.state)


def test_who_comes_now_finds_a_slot_though_bad_records_take_long_to_fail() -> None:
    driven = Driven(slots=4, retry=spent_after(3), breaker=BreakerRules())
    driven.deliver(*notes(*range(10)))
    driven.tick()
    while driven.out:
        for slice_ in list(driven.out):
            driven.fail(slice_, *range(10))
        driven.tick()
    driven.tick(2.0)
    retries = list(driven.out)
    assert 0 < len(retries) <= 2
    driven.deliver(*notes(*range(10, 12)))
    new = driven.tick(0.01).dispatch
    assert sorted(m.offset() for slice_ in new for m in slice_.messages) == [10, 11]
    assert len(driven.out) <= 4


def test_bad_records_leave_though_there_is_always_something_new() -> None:
    it = shop(share=100, records=8000, slots=1)
    first = it.driven.now
    it.until(lambda: 0 in it.left, within_s=10.0)
    assert it.left[0] - first < 1.0 + 2.0 + 2.0
    assert processed(it) < 4000


def test_the_calls_made_again_come_back_slowly_after_an_outage() -> None:
    is_down = True
    it = shop(share=1, records=2000, slots=8, retry=spent_after(1))
    it.is_bad = lambda _: is_down
    it.until(lambda: it.driven.engine.breaker.state is BreakerState.OPEN, within_s=5.0)
    held = len(it.driven.failing())
    is_down = False
    it.until(lambda: it.driven.engine.breaker.state is BreakerState.CLOSED, within_s=40.0)
    new = again = 0
    for _ in range(50):
        for slice_ in list(it.driven.out)[:8]:
            if slice_.is_new:
                new += len(slice_.messages)
            else:
                again += len(slice_.messages)
        it.turn()
    assert held > 0
    assert again <= 0.2 * new
    it.until(lambda: processed(it) + len(it.left) == 2000, within_s=10.0)


def test_keys_that_block_hold_up_nobody_else() -> None:
    driven = Driven(
        slots=4, ordering="key", retry=spent_after(3, on_failure="block"), breaker=BreakerRules()
    )
    keys = [b"bad %d" % (offset % 5) if offset % 2 else b"%d" % offset for offset in range(2000)]
    it = Shop(driven, lambda message: message.key().startswith(b"bad"))
    driven.deliver(*notes(*range(2000), keys=keys))
    driven.tick()
    took_s = it.until(lambda: processed(it) == 1000, within_s=30.0)
    assert took_s <= 1.2 * 1000 / 4 * CALL_S
    assert BreakerState.OPEN not in it.states


def test_copies_that_are_due_hold_up_no_new_records() -> None:
    driven = Laddered(slots=8, breaker=BreakerRules(), retry=spent_after(1, levels=LEVELS))
    it = Shop(driven, lambda message: message.topic() == RETRIED.topic)
    driven.deliver(*(driven.copy(offset, due_in=0.0) for offset in range(170)), name=RETRIED)
    driven.deliver(*notes(*range(1000, 5000)))
    driven.tick()
    took_s = it.until(lambda: processed(it) == 4000, within_s=20.0)
    assert took_s <= 1.2 * 4000 / 8 * CALL_S
    it.until(lambda: len(it.left) == 170, within_s=5.0)
    assert not it.states


def copies_alone(levels: tuple[Level, ...]) -> Shop:
    """Return a worker with 500 copies of the first level, which all fail, and nothing else."""
    driven = Laddered(
        slots=8, breaker=BreakerRules(max_hold_s=30.0), retry=spent_after(1, levels=levels)
    )
    it = Shop(driven, lambda _: True)
    driven.deliver(*(driven.copy(offset, due_in=0.0) for offset in range(500)), name=RETRIED)
    driven.tick()
    return it


def test_of_copies_alone_that_always_fail_twenty_die_and_the_rest_after_max_hold() -> None:
    it = copies_alone(LEVELS[:1])
    for _ in range(int(20.0 / CALL_S)):
        it.turn()
    assert len(it.left) == 20
    it.until(lambda: len(it.left) == 500, within_s=30.0 + 4 * 500 * CALL_S)


def test_copies_alone_that_fail_climb_to_the_next_level() -> None:
    it = copies_alone(LEVELS)
    it.until(lambda: len(it.left) == 500, within_s=20.0)
    assert not it.states


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("levels", [(), LEVELS], ids=["local", "levels"])
def test_of_what_is_put_back_into_an_outage_at_most_twenty_leave(
    attempts: int, levels: tuple[Level, ...]
) -> None:
    driven = Laddered(
        owned=(ORDERS, ENTRY),
        slots=8,
        breaker=BreakerRules(),
        retry=spent_after(attempts, levels=levels),
    )
    it = Shop(driven, lambda _: True)
    driven.deliver(*(driven.copy(o, due_in=0.0, attempts=5) for o in range(10_000)), name=ENTRY)
    driven.tick()
    for _ in range(20_000):
        it.turn()
    assert len(it.left) <= 20
    assert driven.engine.breaker.state is not BreakerState.CLOSED


def test_a_hold_at_the_end_of_a_topic_is_short() -> None:
    driven = Driven(slots=1, retry=spent_after(1), breaker=BreakerRules())
    it = Shop(driven, lambda message: message.offset() >= 1000)
    driven.deliver(*notes(*range(1012)))
    driven.tick()
    it.until(lambda: processed(it) == 1000, within_s=20.0)
    it.until(lambda: len(it.left) == 12, within_s=12 * CALL_S + HOLD_S + 2 * SETTLE_S)


# ---- hot keys


def hot(*, records: int, keys: int, every_nth: int = 250) -> Shop:
    """Return a worker with order by key; every n-th record is of one of three hot keys, and bad."""
    it = Shop(
        Driven(
            slots=8, ordering="key", retry=spent_after(3), breaker=BreakerRules(max_hold_s=HELD_S)
        ),
        lambda message: message.key().startswith(b"hot"),
    )
    named = [
        b"hot %d" % (n // every_nth % 3) if n % every_nth == 0 else b"%d" % (n % keys)
        for n in range(records)
    ]
    it.driven.deliver(*notes(*range(records), keys=named))
    it.driven.tick()
    return it


def test_hot_keys_that_always_fail_leave_although_nothing_else_is_left() -> None:
    """... as at the end of a backlog: by their records alone it looks like an outage."""
    it = hot(records=20_000, keys=500)
    it.until(lambda: processed(it) == 20_000 - 80, within_s=60.0)
    left = len(it.left)
    assert left < 60
    assert BreakerState.OPEN not in it.states
    it.until(lambda: len(it.left) == 80, within_s=HELD_S + 60.0)


@pytest.mark.parametrize("keys", [5, 500])
def test_an_outage_opens_it_although_hot_keys_have_failed_before(keys: int) -> None:
    """... be there many keys, or so few that each of their failures counts."""
    it = hot(records=20_000, keys=keys)
    it.until(lambda: processed(it) > 5_000, within_s=60.0)
    known = set(it.driven.failing_offsets())
    known |= it.left.keys()
    it.is_bad = lambda _message: True
    it.until(lambda: BreakerState.OPEN in it.states, within_s=60.0)
    assert len(it.left.keys() - known) <= 20


def test_calls_that_failed_while_it_held_are_charged_when_it_finds_poison() -> None:
    """... so that no bad record is called more often than its attempts say."""
    driven = Driven(slots=64, retry=spent_after(3), breaker=BreakerRules(), ordering="key")
    it = Shop(
        driven, lambda message: message.offset() % 30 < 10 or 300 <= message.offset() < 330, 0.2
    )
    calls: dict[int, int] = {}
    for first in range(0, 900, 30):  # few enough come that a round of calls takes its time
        offsets = range(first, first + 30)
        driven.deliver(*notes(*offsets, keys=[b"%d" % offset for offset in offsets]))
        it.turn()
        calls |= {each.message.offset(): each.attempts for each in driven.last_published}
    assert it.states >= {BreakerState.HOLDING, BreakerState.POISON}
    assert BreakerState.OVERLOAD not in it.states
    assert len(calls) > 100
    assert set(calls.values()) == {3}


def test_a_record_that_failed_beside_a_success_counts_among_the_twenty() -> None:
    departures = Departures()
    departures.succeeded()
    departures.began(10.15, "good")
    proven = SpentCall("bad", first_failed=10.1, began=10.1, ended=10.2)
    assert departures.decide(proven, BreakerState.CLOSED, 10.3, in_a_hurry=False) is Departure.LEAVE
    alone = [SpentCall(f"key-{n}", 12.0, 12.0, 12.1) for n in range(30)]
    state = BreakerState.CLOSED
    left = [departures.decide(call, state, 13.0, in_a_hurry=False) for call in alone]
    assert left.count(Departure.LEAVE) == 19


def test_a_call_that_began_in_an_outage_is_not_proven_by_what_succeeded_at_its_end() -> None:
    departures = Departures()
    departures.doubt(20.0)
    departures.outage_ended(20.0)
    departures.began(20.4, "good")
    met_it = SpentCall("one", first_failed=20.3, began=19.8, ended=20.3)
    came_later = SpentCall("two", first_failed=20.3, began=20.05, ended=20.3)
    decided = [
        departures.decide(call, BreakerState.POISON, 21.0, in_a_hurry=False)
        for call in (met_it, came_later)
    ]
    assert decided == [Departure.CALL_AGAIN, Departure.LEAVE]
