"""Fair shares: which class gets the next slot, by slot time, weights, floors and bounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, Note
from tests.engine.test_ordering import LanesMachine
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.lanes import Lanes
from window_consumer.engine.scheduling.ordering import ByPartition, Ordering, Unordered
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.engine.scheduling.shares.class_ordering import ClassOrdering
from window_consumer.engine.scheduling.shares.share_classes import FairRules, ShareClasses
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import Message

SLOTS = 4


def tenant(_topic: str, message: Message) -> str | None:
    value = dict(message.headers() or ()).get("tenant")
    return None if value is None else value.decode()


class Shop(Driven):
    """An Engine whose records have tenants, and a clock that calls of slots advance."""

    def __init__(self, ordering: str = "unordered", rules: Any = (), **fair: Any):
        given = {"slots": SLOTS, "ordering": ordering, **dict(rules)}
        super().__init__(names=(ORDERS, OTHERS), fair=FairRules(tenant, **fair), **given)
        self.engine.dispatcher.length.record(1000, 10.0)  # a slice is a record
        self.engine.dispatcher.length.learn()
        self.next = Counter[Any]()
        self.calls: list[tuple[str, float, bytes | None, int]] = []

    def send(self, name: str | None, records: int, key: Any = None, to: Any = ORDERS) -> None:
        headers = None if name is None else [("tenant", name.encode())]
        first = self.next[to]
        self.next[to] += records
        keys = [key(number) if callable(key) else key for number in range(records)]
        self.deliver(
            *(Note(first + at, each, headers=headers) for at, each in enumerate(keys)), name=to
        )

    def run(self, calls: int, cost_s: Any = 0.01) -> dict[str, float]:
        """Let the slots run calls, each as long as its tenant's take; return seconds by tenant."""
        used: defaultdict[str, float] = defaultdict(float)
        ends: dict[Slice, tuple[float, str, float]] = {}
        self.tick()
        for _ in range(calls):
            for slice_ in self.out:
                if slice_ not in ends:
                    ends[slice_] = self._begin(slice_, cost_s)
            if not self.out:
                break
            slice_ = min(self.out, key=lambda each: ends[each][0])
            at, name, cost = ends[slice_]
            self.now = max(self.now, at)
            used[name] += cost
            self.finish(slice_, cost)
            self.tick()
        return used

    def _begin(self, slice_: Slice, cost_s: Any) -> tuple[float, str, float]:
        """Return when a slice ends, of which tenant it is, and what it takes."""
        if not slice_.messages:
            return self.now, "", 0.0  # taken back before it began
        first = slice_.messages[0]
        name = str(tenant("", first))
        self.calls.append((name, self.now, first.key(), first.offset()))
        cost = cost_s if isinstance(cost_s, float) else cost_s[name]
        return self.now + cost, name, cost

    def running(self) -> Counter[str]:
        return Counter(str(tenant("", each.messages[0])) for each in self.out)


def test_a_small_tenant_is_not_behind_the_thousands_of_another() -> None:
    shop = Shop()
    shop.send("big", 1000)
    shop.send("small", 10)
    shop.run(40)
    assert [name for name, *_ in shop.calls[:30]].count("small") == 10


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_shares_are_slot_time_so_slow_calls_use_them_up(ordering: str) -> None:
    shop = Shop(ordering, weights={"gold": 3.0, "default": 1.0})
    shop.send("iron", 500, key=lambda n: b"i%d" % n)
    shop.send("gold", 1500, key=lambda n: b"g%d" % n)
    used = shop.run(800, {"gold": 0.01, "iron": 0.04})
    assert 2.7 < used["gold"] / used["iron"] < 3.3


def test_a_tenant_that_was_away_has_saved_nothing_up() -> None:
    shop = Shop()
    shop.send("a", 600)
    shop.run(200)
    shop.send("b", 300)
    shop.calls.clear()
    used = shop.run(100)
    assert 0.8 < used["a"] / used["b"] < 1.25


def test_records_wait_from_their_arrival_on_not_from_the_turn_before_it() -> None:
    shop = Shop()
    shop.tick(5.0)
    shop.now += 5.0  # the poll thread waits for records
    shop.send("a", SLOTS + 1)
    shop.tick(0.5)
    shares = shop.snapshot().shares
    assert shares is not None
    assert shares.largest[0].waits.seconds == pytest.approx(SLOTS * 0.5)


def test_classes_of_two_partitions_are_one_class() -> None:
    shop = Shop()
    shop.send("a", 200)
    shop.send("a", 200, to=OTHERS)
    shop.send("b", 200, to=OTHERS)
    used = shop.run(200)
    assert 0.9 < used["a"] / used["b"] < 1.1


def test_the_order_of_a_key_comes_first() -> None:
    shop = Shop("key")
    for name in ("a", "b", "a", "c", "b"):
        shop.send(name, 40, key=b"k")
        shop.send(name, 10, key=lambda n: b"%d" % n)
    shop.run(1000)
    offsets = [offset for _, _, key, offset in shop.calls if key == b"k"]
    assert offsets == sorted(offsets)
    assert len(shop.calls) == 250


def test_at_most_a_part_of_the_slots_while_others_wait() -> None:
    shop = Shop(most_share=0.5)
    shop.send("a", 100)
    shop.tick()
    assert shop.running() == {"a": 4}
    shop.send("b", 100)
    shop.run(20)
    assert shop.running() == {"a": 2, "b": 2}


def test_at_most_a_number_of_slots_whoever_waits() -> None:
    shop = Shop(most_slots=1)
    shop.send("a", 100)
    shop.tick()
    assert shop.running() == {"a": 1}
    shop.send("b", 100)
    shop.run(20)
    assert shop.running() == {"a": 1, "b": 1}


def test_strict_order_gives_the_others_their_floor() -> None:
    shop = Shop(order="strict", weights={"urgent": 10.0}, floor=0.1)
    shop.send("slow", 400)
    shop.send("urgent", 2000)
    used = shop.run(1000)
    assert 0.08 < used["slow"] / sum(used.values()) < 0.13


def test_the_floor_of_the_others_comes_after_the_first_class_has_used_the_rest() -> None:
    shop = Shop(order="strict", weights={"urgent": 10.0}, floor=0.15)
    shop.send("slow", 400)
    shop.run(40)
    shop.send("urgent", 30)
    shop.calls.clear()
    shop.run(20)
    begun = [name for name, *_ in shop.calls]
    first = begun.index("urgent")  # what was in slots before is called again by this test
    others = [at - first for at, name in enumerate(begun) if at > first and name == "slow"]
    assert others[:2] == [6, 13]


def starts_of(shop: Shop, until_s: float, cost_s: float = 0.01) -> list[float]:
    """Let slots work and the poll thread wait for as long as it says; return when calls began."""
    began: dict[Slice, float] = {}
    starts: list[float] = []
    end = shop.now + until_s
    while shop.now < end:
        for slice_ in [each for each in shop.out if began.get(each, end) + cost_s <= shop.now]:
            shop.finish(slice_, cost_s)
        for slice_ in shop.tick().dispatch:
            began[slice_] = shop.now
            starts.append(shop.now)
        next_end = min((began[each] + cost_s for each in shop.out), default=end)
        wait_s = shop.engine.wait_s(shop.now, 1.0)
        assert wait_s > 0 or shop.last.dispatch
        shop.now = min(next_end, shop.now + max(wait_s, 1e-6))
    return starts


@pytest.mark.parametrize("is_strict", [True, False])
def test_strict_order_spreads_starts_so_that_a_slot_becomes_free_soon(*, is_strict: bool) -> None:
    """Four slots that begin together would end together each time."""
    order: Any = {"order": "strict", "weights": {"urgent": 10.0}} if is_strict else {}
    shop = Shop(**order)
    shop.send("slow", 2000)
    starts = starts_of(shop, 1.0)
    gaps = [after - before for before, after in pairwise(starts[-100:])]
    assert (max(gaps) < 0.004) == is_strict, "even is 0.0025"
    assert len(starts) > 0.97 * SLOTS * 1.0 / 0.01


def test_an_urgent_record_is_not_held_for_even_starts() -> None:
    shop = Shop(order="strict", weights={"urgent": 10.0})
    shop.send("slow", 2000)
    starts_of(shop, 0.5)
    for slice_ in shop.out[:2]:
        shop.finish(slice_, 0.01)
    shop.send("urgent", 2)
    shop.tick()
    assert shop.running()["urgent"] == 2


def test_strict_order_without_a_floor_starves_the_others() -> None:
    shop = Shop(order="strict", weights={"urgent": 10.0}, floor=0.0)
    shop.send("slow", 400)
    shop.send("urgent", 500)
    shop.run(500)
    assert {name for name, *_ in shop.calls[:500]} == {"urgent"}


def test_classes_beyond_the_most_are_one_and_idle_ones_are_forgotten() -> None:
    shop = Shop(max_classes=3)
    for number in range(6):
        shop.send(f"t{number}", 1)
    shares = shop.engine.shares
    assert shares is not None
    assert [each.name for each in shares.classes()] == [None, "t0", "t1", "t2"]
    assert shares.overflow == 3
    shop.run(6)
    shop.send("t9", 1)
    assert "t9" in [each.name for each in shares.classes()]
    assert shares.overflow == 3


def test_a_tenant_named_default_is_no_default() -> None:
    shop = Shop(weights={"default": 2.0})
    shop.send("default", 10)
    shop.send(None, 10)
    shares = shop.engine.shares
    assert shares is not None
    assert [(each.name, each.weight) for each in shares.classes()] == [(None, 2), ("default", 2)]
    assert [each.waiting for each in shares.classes()] == [10, 10]


def test_nothing_is_forgotten_when_partitions_leave_and_come_back() -> None:
    shop = Shop("key")
    shop.send("a", 50, key=b"k")
    shop.send("b", 50, key=lambda n: b"%d" % n, to=OTHERS)
    shop.run(20)
    shop.engine.on_revoking([ORDERS], shop.now)
    shop.engine.on_lost([ORDERS], shop.now)
    shop.run(100)
    shares = shop.engine.shares
    assert shares is not None
    assert [(each.waiting, each.slots) for each in shares.classes()] == [(0, 0)] * 3
    assert shop.engine.dispatcher.new.startable == 0


@pytest.mark.parametrize("per", ["worker", "key", "partition"])
def test_a_rate_and_shares_go_together(per: Any) -> None:
    shop = Shop("key", {"rate": RateRules(100.0, per, 1)}.items())
    for name in ("a", "b"):
        shop.send(name, 30, key=lambda n: b"%d" % (n % 3))
    for _ in range(3000):
        shop.tick(0.005)
        for slice_ in list(shop.out):
            shop.finish(slice_)
    assert shop.committable == 60


class ClassMachine(LanesMachine):
    """Classes change nothing about lanes."""

    inner: type[Ordering] = ByKey

    @classmethod
    def make(cls, lanes: Lanes) -> ClassOrdering:
        rules = FairRules(lambda _topic, message: str(int(message.offset()) % 3))
        ordering = ClassOrdering(lanes, cls.inner.lane_of, ShareClasses(rules))
        partition: Any = SimpleNamespace(
            retry_level=SimpleNamespace(source="orders"), ordering=ordering
        )
        ordering.belongs_to(partition)
        return ordering


class UnorderedClassMachine(ClassMachine):
    inner = Unordered


class OneLaneClassMachine(ClassMachine):
    inner = ByPartition


TestClasses = ClassMachine.TestCase
TestUnorderedClasses = UnorderedClassMachine.TestCase
TestOneLaneClasses = OneLaneClassMachine.TestCase
