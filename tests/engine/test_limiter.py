"""The limiter before made-up downstreams: a heap of calls, each of which ends in its time."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable
from random import Random

import pytest

from tests.engine.driver import Driven
from tests.engine.support import notes
from tests.golden_texts import Golden
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import (
    AdaptiveConcurrency,
    LimitCause,
    LimitNews,
    LimitRules,
)
from window_consumer.engine.scheduling.slices import Slice

TEN_MS = 0.010

Takes = Callable[[int], float]
"""How long a call takes that is one of so many."""


class World:
    """A limiter, calls that take as long as somebody says, and always enough to do."""

    def __init__(self, *, lower: int = 1, upper: int = 200, seed: int = 1):
        self.limiter = AdaptiveConcurrency(LimitRules(lower), upper)
        self.takes: Takes = lambda _calls: TEN_MS
        self.rng = Random(seed)
        self.now = 100.0
        self.news: list[LimitNews] = []
        self.limits: list[int] = []
        self.work = 10**9
        """How many calls may be out at once beside the limit."""
        self.failed = 0
        """How many of a slice's records fail."""
        self.records = 1
        self.there = 10**9
        """How many slots there are; more of them come ``comes_s`` after the limit wants them."""
        self.comes_s = 0.0
        self._wanted_at: float | None = None
        self._ends: list[tuple[float, int, float]] = []
        self._ties = 0

    def go_on(self, seconds: float) -> int:
        """Let so much time pass; return how many slices ended."""
        until, ended = self.now + seconds, 0
        limiter = self.limiter
        while self.now < until:
            while len(self._ends) < min(limiter.limit, self.work, self.there):
                self._ties += 1
                took_s = self.takes(len(self._ends) + 1) * self.records
                heapq.heappush(self._ends, (self.now + took_s, self._ties, self.now))
            self._get_slots()
            missing = max(0, limiter.limit - self.there)
            if missing:
                limiter.wait(self.now)
            # What no slot takes waits for one, as a slice that is out.
            news = None if missing else limiter.adjust(self.now, len(self._ends))
            if news is not None:
                self.news.append(news)
            end, _, sent = heapq.heappop(self._ends)
            self.now = end
            limiter.record(sent, end, self.records, self.failed, end - sent)
            self.limits.append(limiter.limit)
            ended += 1
        return ended

    def _get_slots(self) -> None:
        if self.limiter.limit <= self.there:
            self._wanted_at = None
            return
        self._wanted_at = self._wanted_at or self.now
        if self.now - self._wanted_at >= self.comes_s:
            self.there, self._wanted_at = self.limiter.limit, None

    def even(self, seconds: float, stands: int = 50) -> Takes:
        """Calls that are much alike; beyond so many at once throughput falls."""
        rng = self.rng
        return lambda calls: seconds * max(1.0, calls / stands) ** 2 * rng.uniform(0.95, 1.15)

    def uneven(self, seconds: float, stands: int = 50) -> Takes:
        """The same, but the calls differ as widely as those of a busy database."""
        rng = self.rng
        return lambda calls: rng.expovariate(1 / (seconds * max(1.0, calls / stands) ** 2))


@pytest.mark.parametrize(
    ("seconds", "lasts_s"), [(0.001, 5.0), (TEN_MS, 20.0), (0.1, 20.0)], ids=str
)
def test_it_finds_what_the_downstream_stands(seconds: float, lasts_s: float) -> None:
    world = World()
    world.takes = world.even(seconds)
    found = world.go_on(lasts_s)
    assert found >= 0.9 * lasts_s * 50 / (1.05 * seconds)
    assert 40 <= world.limiter.base <= 60


def test_times_that_differ_widely_do_not_mislead_it() -> None:
    world = World()
    world.takes = world.uneven(TEN_MS)
    world.go_on(3.0)
    found = world.go_on(20.0)
    assert found >= 0.9 * 20.0 * 50 / TEN_MS
    assert min(world.limits[10_000:]) > 20


def test_slow_calls_that_differ_widely_are_not_taken_for_fast_ones() -> None:
    """The long ones have not ended when the short ones are counted."""
    world = World()
    world.takes = world.uneven(0.1)
    world.go_on(40.0)
    assert world.limiter.base <= 100
    assert max(world.limits) <= 160


def test_it_goes_to_the_upper_end_where_every_slot_is_of_use() -> None:
    world = World()
    world.takes = world.even(TEN_MS, stands=1000)
    world.go_on(10.0)
    assert world.limiter.base == 200


def test_slots_that_take_long_to_come_are_not_judged_before_they_are_there() -> None:
    world = World(upper=8)
    world.there, world.comes_s = 2, 3.0
    world.limiter = AdaptiveConcurrency(LimitRules(1, first=2), 8)
    world.takes = world.even(TEN_MS)
    world.go_on(30.0)
    assert world.limits[0] == 2
    assert world.limiter.base == 8


def test_it_stays_near_what_is_enough_where_slots_wait_for_each_other() -> None:
    world = World()
    world.takes = lambda calls: 0.0002 * calls * world.rng.uniform(0.9, 1.2)
    world.go_on(10.0)
    assert world.limiter.base <= 5


def test_it_loses_no_throughput_step_by_step() -> None:
    """Each slot less costs a little; all of them together may not cost much.

    With 20 slots half of one more is of use: there throughput / latency is largest.
    """
    world = World()
    world.takes = lambda calls: TEN_MS * (1 + calls / 20)
    world.go_on(20.0)
    assert 17 <= world.limiter.base <= 30


def test_it_backs_off_when_the_downstream_stands_less_and_grows_again() -> None:
    world = World()
    world.takes = world.even(TEN_MS)
    world.go_on(10.0)
    before = world.limiter.base
    world.takes = world.even(TEN_MS, stands=20)
    world.go_on(6.0)
    assert world.limiter.base <= 25
    world.takes = world.even(TEN_MS)
    world.go_on(10.0)
    assert world.limiter.base >= 0.8 * before


def test_calls_that_take_longer_whatever_it_does_do_not_make_it_collapse() -> None:
    world = World()
    world.takes = world.even(TEN_MS)
    world.go_on(10.0)
    world.takes = world.even(3 * TEN_MS)
    world.go_on(10.0)
    assert world.limiter.base >= 40


def test_longer_slices_are_no_slower_calls() -> None:
    world = World()
    world.takes = world.even(TEN_MS)
    world.go_on(10.0)
    del world.news[:]
    world.records = 5
    world.go_on(5.0)
    assert world.limiter.base >= 40
    assert not any("it took" in each.why for each in world.news)


def test_failed_calls_are_no_throughput() -> None:
    """Too many at once fail quickly: the fastest calls of all, and good for nothing."""
    world = World()

    def takes(calls: int) -> float:
        world.failed = int(calls > 50)
        return TEN_MS / 5 if calls > 50 else TEN_MS * world.rng.uniform(0.95, 1.15)

    world.takes = takes
    world.go_on(5.0)
    assert world.limiter.base <= 60


def test_it_says_why(golden: Golden) -> None:
    world = World()
    world.takes = lambda calls: TEN_MS * max(1.0, calls / 50) ** 2
    world.go_on(11.0)
    golden(world.news[0].why)
    assert world.news[0].cause is LimitCause.MORE_THROUGHPUT
    world.takes = lambda calls: TEN_MS * max(1.0, calls / 20) ** 2
    del world.news[:]
    world.go_on(6.0)
    why = r"at 50 a call takes 6\d(.\d)? ms instead of 10(.\d)? ms: fewer calls do as much"
    slower = [each for each in world.news if re.fullmatch(why, each.why)]
    assert slower
    assert {each.cause for each in slower} == {LimitCause.SLOWER_CALLS}
    world = World()
    world.takes = lambda calls: TEN_MS * max(1.0, calls / 3)
    world.go_on(11.0)
    reported = {f"{each.cause.name}: {re.sub(r'[0-9.]+', 'N', each.why)}" for each in world.news}
    golden("\n".join(sorted(reported)))
    assert world.limiter.why == world.news[-1].why


def test_with_little_to_do_it_stays_where_it_is() -> None:
    world = World()
    world.takes = world.even(TEN_MS)
    world.go_on(10.0)
    before = world.limiter.base
    world.work = 5
    world.go_on(10.0)
    assert world.limiter.limit == world.limiter.base == before


def test_a_pause_is_no_slowness() -> None:
    """Nothing comes in for a while: that says nothing about the calls before and after."""
    world = World()
    world.takes = world.uneven(TEN_MS)
    world.go_on(10.0)
    before = world.limiter.base
    for _ in range(10):
        for _ in range(10):
            world.limiter.adjust(world.now, 0)
            world.now += 0.1
        world.go_on(0.15)
        assert world.limiter.base >= 0.7 * before


def test_the_ends_hold() -> None:
    world = World(lower=20, upper=30)
    world.takes = world.even(TEN_MS)
    world.go_on(5.0)
    world.takes = world.even(TEN_MS, stands=12)
    world.go_on(5.0)
    assert set(world.limits) <= set(range(20, 31))
    assert world.limiter.base == 20


def test_a_range_of_one_is_a_fixed_concurrency() -> None:
    world = World(lower=7, upper=7)
    world.takes = world.even(TEN_MS)
    world.go_on(3.0)
    assert set(world.limits) == {7}


def test_where_every_call_fails_it_concludes_nothing() -> None:
    world = World()
    world.failed = 1
    world.go_on(5.0)
    assert world.limiter.base == 10


# ---- within the Engine


def test_no_more_slices_are_out_than_the_limit_says() -> None:
    driven = Driven(slots=200, limit=LimitRules(), cell_records=5000)
    driven.deliver(*notes(*range(1000)))
    driven.tick()
    assert len(driven.out) == 10
    assert driven.engine.slot_limit.adaptive is not None
    driven.engine.dispatcher.slots = driven.engine.slot_limit.adaptive.limit = (
        driven.engine.slot_limit.adaptive.base
    ) = 3
    for slice_ in driven.out[:5]:
        driven.finish(slice_)
    assert len(driven.tick().dispatch) == 0
    for slice_ in driven.out[:4]:
        driven.finish(slice_)
    assert len(driven.tick().dispatch) == 2


def keep_busy(driven: Driven, turns: int) -> None:
    """Let an Engine have enough to do, with calls of 10 ms."""
    for _ in range(turns):
        if driven.engine.appetite():
            delivered = driven.engine.counters.delivered
            driven.deliver(*notes(*range(delivered, delivered + 500)))
        driven.tick()
        driven.now += TEN_MS
        for slice_ in list(driven.out):
            driven.finish(slice_, elapsed=TEN_MS * len(slice_.messages))


def test_an_engine_finds_its_limit() -> None:
    driven = Driven(slots=64, limit=LimitRules(), cell_records=5_000)
    keep_busy(driven, turns=400)
    assert driven.engine.slot_limit.adaptive is not None
    assert driven.engine.slot_limit.adaptive.base > 30
    assert driven.engine.dispatcher.slots == driven.engine.slot_limit.adaptive.limit
    assert driven.engine.counters.copy().limit_changes[LimitCause.MORE_THROUGHPUT] > 0


def run_calls(driven: Driven, seconds: float, takes: Takes, *, step_s: float = 0.001) -> int:
    """Let slots that hold the limit run calls; fetch as many records as are asked for."""
    until, ended = driven.now + seconds, 0
    running: dict[Slice, float] = {}
    while driven.now < until:
        for slice_ in [each for each, end in running.items() if end <= driven.now]:
            del running[slice_]
            driven.finish(slice_, elapsed=driven.now - slice_.started)
            ended += 1
        if wanted := driven.engine.appetite():
            first = driven.engine.counters.delivered
            driven.deliver(*notes(*range(first, first + wanted)))
        driven.tick()
        for slice_ in driven.out:
            if len(running) == driven.engine.dispatcher.slots:
                break
            if slice_ not in running:
                driven.claim(slice_)
                running[slice_] = driven.now + takes(len(running) + 1) * len(slice_.messages)
        driven.now += step_s
    return ended


@pytest.mark.parametrize("seconds", [TEN_MS, 0.03, 0.1, 0.3], ids=str)
def test_a_limit_grows_where_records_are_fetched_as_they_are_needed(seconds: float) -> None:
    """Nothing waits beside a long call: whether the slots are busy is what counts."""
    driven = Driven(slots=200, limit=LimitRules(), cell_records=5_000)
    driven.engine.slot_limit.slots_can_rest()
    run_calls(driven, 200 * seconds, World().even(seconds))
    assert driven.engine.slot_limit.adaptive is not None
    assert 40 <= driven.engine.slot_limit.adaptive.base <= 60


def test_an_engine_waits_for_slots_that_are_not_there() -> None:
    driven = Driven(slots=64, limit=LimitRules(first=2), cell_records=5_000)
    driven.engine.slot_limit.slots_ready = False
    keep_busy(driven, turns=100)
    assert driven.engine.dispatcher.slots == 2
    driven.engine.slot_limit.slots_ready = True
    keep_busy(driven, turns=100)
    assert driven.engine.dispatcher.slots > 2
