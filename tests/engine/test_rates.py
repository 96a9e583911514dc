"""Rates: what may start when, and that nothing else is held up by it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes, spent_after
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.rate_limit import FORGET_AT, RateRules, TokenBucket

BIG: dict[str, Any] = {"slots": 64, "cell_records": 5000}


def rated(per_s: float, burst: int = 1, per: Any = "worker", **rules: Any) -> Driven:
    return Driven(rate=RateRules(per_s, per, burst), **{**BIG, **rules})


def started(driven: Driven, seconds: float, step_s: float = 0.001) -> list[tuple[float, Any]]:
    """Let slots take what is handed out at once, for so long; return who started when."""
    found = []
    until = driven.now + seconds
    while driven.now < until:
        driven.tick()
        for slice_ in list(driven.out):
            found += [(driven.now, message) for message in slice_.messages]
            driven.finish(slice_, elapsed=0.0001)
        driven.now += step_s
    return found


def test_calls_start_at_the_rate_after_the_burst() -> None:
    driven = rated(100.0, burst=10)
    driven.deliver(*notes(*range(5000)))
    found = started(driven, 2.0)
    assert sum(at == found[0][0] for at, _ in found) == 10
    assert len(found) == pytest.approx(210, abs=2)


@pytest.mark.parametrize("burst", [1, 2, 7])
def test_a_slice_holds_no_more_records_than_there_are_tokens(burst: int) -> None:
    driven = rated(1.0, burst=burst)
    driven.engine.dispatcher.length.record(1000, 0.001)  # a handler for which slices are long
    driven.deliver(*notes(*range(100)))
    driven.tick()
    assert driven.running_offsets == list(range(burst))


def test_what_waits_for_a_slot_keeps_its_tokens_from_coming_again() -> None:
    """Or all that was handed out would start with what is handed out later, in one moment."""
    driven = rated(10.0, burst=5)
    driven.deliver(*notes(*range(100)))
    driven.tick()
    assert len(driven.running_offsets) == 5
    driven.tick(10.0)
    assert len(driven.running_offsets) == 5
    for slice_ in list(driven.out):
        driven.claim(slice_)
    driven.tick(0.2)
    driven.tick(0.1)
    assert len(driven.running_offsets) in (7, 8)


def test_a_token_comes_as_long_after_a_call_began_as_the_rate_says() -> None:
    """Not as long after somebody has looked: that would be slower than what was asked for."""
    driven = rated(10.0)
    driven.deliver(*notes(*range(100)))
    driven.tick()
    driven.out[0].started = driven.now
    driven.claim(driven.out[0])
    driven.tick(0.099)
    assert len(driven.out) == 1
    driven.tick(0.002)
    assert len(driven.out) == 2


def test_waiting_occupies_no_slot() -> None:
    driven = rated(1.0, burst=2)
    driven.deliver(*notes(*range(100)))
    driven.tick()
    for slice_ in list(driven.out):
        driven.finish(slice_)
    driven.tick(0.01)
    assert not driven.out
    assert not driven.engine.dispatcher.out


def test_the_next_tick_comes_with_the_next_token() -> None:
    driven = rated(10.0)
    driven.deliver(*notes(*range(10)))
    driven.tick()
    driven.finish(driven.out[0])
    driven.tick()
    assert driven.engine.wait_s(driven.now, 60.0) == pytest.approx(0.1, abs=0.01)
    driven.tick(driven.engine.wait_s(driven.now, 60.0) + 1e-6)
    assert len(driven.out) == 1


def test_the_next_tick_comes_with_the_next_token_of_a_key() -> None:
    driven = rated(10.0, per="key")
    driven.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    driven.tick()
    driven.finish(driven.out[0])
    for _ in range(5):
        driven.tick(0.001)
    assert driven.engine.wait_s(driven.now, 60.0) == pytest.approx(0.095, abs=0.01)


def test_nothing_more_is_asked_for_while_the_worker_waits_for_its_rate() -> None:
    driven = rated(1.0)
    driven.deliver(*notes(*range(10)))
    driven.tick()
    driven.finish(driven.out[0])
    driven.tick(0.01)
    assert driven.engine.appetite() == 0


def test_each_partition_has_its_own_rate() -> None:
    driven = rated(10.0, burst=3, per="partition", names=[ORDERS, OTHERS])
    driven.deliver(*notes(*range(100)))
    driven.deliver(*notes(*range(2)), name=OTHERS)
    found = started(driven, 1.0)
    assert len(found) == pytest.approx(3 + 10 + 2, abs=1)
    driven.deliver(*notes(*range(2, 50)), name=OTHERS)
    later = started(driven, 1.0)
    assert len(later) == pytest.approx(10 + 3 + 10, abs=2)


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_each_key_has_its_own_rate_and_nobody_waits_for_another_one(ordering: str) -> None:
    driven = rated(10.0, burst=2, per="key", ordering=ordering)
    keys = [b"hot"] * 500 + [b"cold"] * 3 + [b"hot"] * 500 + [b"other"] * 2
    driven.deliver(*notes(*range(len(keys)), keys=keys))
    found = started(driven, 1.0)
    counted = {key: sum(message.key() == key for _, message in found) for key in set(keys)}
    assert counted[b"hot"] == pytest.approx(2 + 10, abs=1)
    assert counted[b"cold"] == 3
    assert counted[b"other"] == 2


@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("per", ["worker", "key", "partition"])
def test_order_is_kept(ordering: str, per: str) -> None:
    driven = rated(200.0, burst=3, per=per, ordering=ordering)
    random = Random(1)
    keys = [random.choice((b"a", b"b", b"c")) for _ in range(300)]
    driven.deliver(*notes(*range(300), keys=keys))
    seen: dict[bytes, list[int]] = {}
    for _ in range(5000):
        driven.tick(0.001)
        lanes = [m.key() if ordering == "key" else 0 for s in driven.out for m in s.messages[:1]]
        assert len(lanes) == len(set(lanes)), "two calls of a lane run at once"
        for slice_ in list(driven.out):
            if random.random() < 0.3:
                for message in slice_.messages:
                    seen.setdefault(message.key(), []).append(message.offset())
                driven.finish(slice_)
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert sum(map(len, seen.values())) == 300


def test_retries_are_charged() -> None:
    retry = RetryRules(attempts=1000, backoff_min_s=0.001, backoff_max_s=0.002)
    driven = rated(10.0, retry=retry)
    driven.deliver(*notes(0))
    calls = 0
    for _ in range(2000):
        driven.tick(0.001)
        for slice_ in list(driven.out):
            calls += 1
            driven.fail(slice_, 0)
    assert calls == pytest.approx(20, abs=2)


def test_what_was_taken_back_gets_its_token_again() -> None:
    driven = rated(0.001, burst=6, slots=2)
    driven.engine.dispatcher.length.record(1000, 0.5)
    driven.deliver(*notes(*range(6)))
    driven.tick()
    first = driven.out[0]
    assert len(first.messages) > 1
    driven.claim(first, 1)
    for _ in range(10):
        driven.tick(0.05)
    assert driven.engine.counters.taken_back
    offsets = set()
    for _ in range(20):
        for slice_ in list(driven.out):
            offsets |= {message.offset() for message in driven.claim(slice_)}
            driven.finish(slice_)
        driven.tick(0.01)
    assert len(offsets | {0}) == 6


def test_a_probe_of_the_breaker_needs_a_token_and_gets_one() -> None:
    breaker = BreakerRules(min_calls=4, cool_down_s=1.0)
    driven = rated(2.0, burst=6, breaker=breaker, retry=spent_after(1))
    driven.deliver(*notes(*range(50)))
    driven.tick()
    for slice_ in list(driven.out):
        driven.fail(slice_, *range(50))
    driven.tick(0.6)
    states = []
    for _ in range(1000):
        driven.tick(0.01)
        states.append(driven.engine.breaker.state.value)
        for slice_ in list(driven.out):
            driven.finish(slice_)
    assert "open" in states
    assert states[-1] in ("poison", "closed")
    assert driven.engine.counters.processed > 0


def test_a_head_that_waits_for_its_rate_is_not_reported() -> None:
    driven = rated(0.0001, hover_s=1.0)
    driven.deliver(*notes(*range(10)))
    driven.tick()
    driven.finish(driven.out[0])
    reports = [driven.tick(1.0).hovering for _ in range(10)]
    assert reports == [[]] * 10


def test_a_head_that_hangs_is_reported_for_all_its_rate() -> None:
    driven = rated(1000.0, hover_s=1.0, burst=2)
    driven.deliver(*notes(0))
    driven.tick()
    driven.claim(driven.out[0])
    assert any(driven.tick(1.0).hovering for _ in range(3))


def test_buckets_that_are_full_again_are_forgotten() -> None:
    driven = rated(1000.0, burst=1, per="key")
    rates = driven.engine.rates
    assert rates is not None
    for start in range(0, 20_000, 500):
        offsets = range(start, start + 500)
        driven.deliver(*notes(*offsets, keys=[b"%d" % each for each in offsets]))
        for _ in range(40):
            driven.tick(0.001)
            for slice_ in list(driven.out):
                driven.finish(slice_)
    assert driven.engine.counters.processed == 20_000
    assert len(rates) <= 3 * FORGET_AT


def test_what_waits_is_seen() -> None:
    driven = rated(0.1, per="key")
    driven.deliver(*notes(0, 1, keys=[b"a", b"a"]))
    driven.tick()
    driven.finish(driven.out[0])
    driven.tick(0.01)
    assert driven.engine.partitions[ORDERS].ordering.waits
    driven.tick(10.0)
    driven.finish(driven.out[0])
    driven.tick(0.01)
    assert not driven.engine.partitions[ORDERS].ordering.waits


def test_a_bucket_is_in_debt_where_too_many_are_charged_together() -> None:
    bucket = TokenBucket(RateRules(10.0, "worker", 5), 0.0)
    bucket.charge(10)
    bucket.taken(10, 0.0)
    bucket.fill(0.5)
    assert bucket.room == 0
    bucket.fill(0.65)
    assert bucket.room == 1
