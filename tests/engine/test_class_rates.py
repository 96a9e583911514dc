"""Rates for each class that shares the slots: what may start when, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.engine.support import ORDERS, OTHERS
from tests.engine.test_fair_shares import Shop, tenant
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.rate_limit import RateRules


def rated(per_s: float, burst: int = 1, ordering: str = "unordered", **fair: Any) -> Shop:
    return Shop(ordering, {"rate": RateRules(per_s, "class", burst)}.items(), **fair)


def started(shop: Shop, seconds: float, step_s: float = 0.002) -> Counter[str]:
    """Let slots take what is handed out at once; return how many calls of each class began."""
    found = Counter[str]()
    until = shop.now + seconds
    while shop.now < until:
        shop.tick()
        for slice_ in list(shop.out):
            found.update(str(tenant("", each)) for each in slice_.messages)
            shop.finish(slice_, 0.0001)
        shop.now += step_s
    return found


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_each_class_has_its_own_rate_and_nobody_waits_for_another_one(ordering: str) -> None:
    shop = rated(10.0, 2, ordering)
    for name, records, to in (("big", 300, ORDERS), ("big", 300, OTHERS), ("small", 5, ORDERS)):
        shop.send(name, records, key=lambda number: b"%d" % number, to=to)
    shop.send(None, 40, key=lambda number: b"n%d" % number)
    found = started(shop, 1.0)
    assert found["big"] == pytest.approx(2 + 10, abs=1), "one rate in both partitions"
    assert found["small"] == 5
    assert found["None"] == pytest.approx(2 + 10, abs=1)


def test_the_records_of_a_key_keep_their_order_whatever_their_classes() -> None:
    shop = rated(100.0, 1, "key")
    for number in range(60):
        shop.send("ab"[number % 2], 1, key=b"k")
    offsets: list[int] = []
    for _ in range(2000):
        shop.tick(0.001)
        for slice_ in list(shop.out):
            offsets += [int(each.offset()) for each in slice_.messages]
            shop.finish(slice_, 0.0001)
    assert offsets == list(range(60))


def test_the_worker_wakes_up_for_the_next_token_and_not_before() -> None:
    shop = rated(10.0)
    shop.send("a", 10)
    shop.tick()
    shop.finish(shop.out[0], 0.0001)
    shop.tick()
    assert not shop.out
    assert shop.engine.wait_s(shop.now, 60.0) == pytest.approx(0.1, abs=0.01)
    shop.tick(shop.engine.wait_s(shop.now, 60.0) + 1e-6)
    assert len(shop.out) == 1


def test_records_that_wait_for_their_rate_are_seen_as_such_and_do_not_starve() -> None:
    shop = rated(0.01)
    shop.send("a", 3)
    shop.send("b", 1)
    started(shop, 50.0, 1.0)
    shares = shop.snapshot().shares
    assert shares is not None
    seen = {each.name: (each.waiting, each.starved_s) for each in shares.largest}
    assert seen == {"a": (2, 0.0), "b": (0, 0.0)}
    assert shop.engine.partitions[ORDERS].ordering.waits


def test_an_urgent_class_without_tokens_lets_others_run() -> None:
    shop = rated(10.0, order="strict", weights={"urgent": 10.0}, floor=0.0)
    shop.send("urgent", 100)
    shop.send("slow", 5)
    assert started(shop, 1.0)["slow"] == 5


def test_retries_are_charged_to_their_class() -> None:
    retry = RetryRules(attempts=1000, backoff_min_s=0.001, backoff_max_s=0.002)
    rate = RateRules(10.0, "class", 1)
    shop = Shop("unordered", {"rate": rate, "retry": retry}.items())
    shop.send("bad", 3)
    shop.send("good", 5)
    calls = Counter[str]()
    for _ in range(1000):
        shop.tick(0.001)
        for slice_ in list(shop.out):
            name = str(tenant("", slice_.messages[0]))
            calls[name] += len(slice_.messages)
            if name == "bad":
                shop.fail(slice_, *range(len(slice_.messages)))
            else:
                shop.finish(slice_, 0.0001)
    assert calls["bad"] == pytest.approx(10, abs=2)
    assert calls["good"] == 5


def test_classes_beyond_the_most_keep_to_their_rates() -> None:
    shop = rated(10.0, max_classes=1)
    for name in ("a", "b", "c"):
        shop.send(name, 100)
    found = started(shop, 1.0)
    assert all(found[name] <= 12 for name in "abc")
    assert found["a"] >= 9
    started(shop, 30.0, 0.05)
    assert shop.committable == 300


def test_nothing_is_forgotten_when_partitions_leave() -> None:
    shop = rated(100.0)
    shop.send("a", 50)
    shop.send("a", 50, to=OTHERS)
    started(shop, 0.1)
    shop.engine.on_revoking([ORDERS], shop.now)
    shop.engine.on_lost([ORDERS], shop.now)
    found = started(shop, 1.0)
    assert found["a"] >= 40
    assert shop.engine.dispatcher.new.startable == 0


def test_classes_that_wait_for_their_rate_are_not_asked_each_time_something_arrives() -> None:
    shop = rated(0.0001)
    for number in range(500):
        shop.send(f"t{number}", 2)
    assert started(shop, 2.0).total() == 500
    shop.send("t1", 1)
    shop.tick(0.001)
    assert len(shop.engine.dispatcher.new) == 0
