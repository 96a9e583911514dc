"""What a test sees of a record that leaves its topic: retry topics, and what comes after them."""

from __future__ import annotations

from time import perf_counter

import pytest

from tests import reading
from tests.golden_texts import Golden
from tests.testing.shops import Shop, config
from window_consumer import App, Record, UsageError
from window_consumer.testing import (
    DEAD_LETTERED,
    DONE,
    DROPPED,
    EXPIRED,
    MOVED,
    SKIPPED,
    WAITING,
    TestApp,
)

LEVELS = {"retry": {"attempts": 1, "levels": ["10s", "10m"]}}


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_record_climbs_the_levels_each_at_its_time(shop: Shop) -> None:
    with shop.run(LEVELS) as wc_app:
        result = wc_app.send("orders", '"fail"', key="c")
        assert (result.outcome, result.attempts) == (MOVED, 1)
        assert result.copy is not None
        assert result.copy.position.topic == "shop.orders.retry.10s"
        wc_app.advance("9999ms")
        assert result.attempts == 1
        wc_app.advance("1ms")
        assert (result.outcome, result.attempts) == (MOVED, 2)
        wc_app.advance("599999ms")
        assert result.attempts == 2
        wc_app.advance("1ms")
        assert (result.outcome, result.attempts) == (DEAD_LETTERED, 3)
        assert [call.attempt for call in result.calls] == [1, 2, 3]
        assert wc_app.moved == wc_app.retried == [result.of("charge")]
        (letter,) = wc_app.dead_letters
        assert (letter.reason, letter.attempts) == ("RETRIES_EXHAUSTED", 3)
        assert letter.original_offset == result.record.offset


def test_a_ten_minute_retry_passes_in_a_moment(shop: Shop) -> None:
    with shop.run(LEVELS) as wc_app:
        shop.down = True
        result = wc_app.send("orders", 1)
        wc_app.advance("10s")
        shop.down = False
        began = perf_counter()
        wc_app.advance("10m")
        assert perf_counter() - began < 1  # some two milliseconds, far below on a busy machine
        assert (result.outcome, result.attempts) == (DONE, 3)


def test_all_levels_settle(shop: Shop) -> None:
    with shop.run(LEVELS) as wc_app:
        results = wc_app.send_many("orders", ['"fail"', "1", '"poison"', '"fail"'])
        wc_app.run_until_settled()
        outcomes = [each.outcome for each in results]
        assert outcomes == [DEAD_LETTERED, DONE, DEAD_LETTERED, DEAD_LETTERED]
        assert len(wc_app.dead_letters) == 3


def test_a_record_in_a_level_survives_crashes_and_rebalances(shop: Shop) -> None:
    with shop.run(LEVELS) as wc_app:
        shop.down = True
        result = wc_app.send("orders", 1)
        wc_app.advance("5s")
        wc_app.crash()
        wc_app.rebalance()
        assert (result.outcome, result.attempts) == (MOVED, 1)
        shop.down = False
        wc_app.advance("5s")
        assert (result.outcome, result.attempts) == (DONE, 2)


def test_with_overtake_later_records_of_the_key_wait_until_its_local_attempts_are_spent(
    shop: Shop,
) -> None:
    retry = {"attempts": 2, "backoff": "1s..1s", "levels": ["10s"], "on_failure": "overtake"}
    with shop.run({"ordering": "key", "retry": retry}) as wc_app:
        first = wc_app.send("orders", '"fail"', key="c")
        second = wc_app.send("orders", 2, key="c")
        assert (first.attempts, second.outcome) == (1, WAITING)
        wc_app.advance("1s")
        assert (first.attempts, first.outcome, second.outcome) == (2, MOVED, DONE)


def test_a_later_record_of_the_key_overtakes_one_in_a_level(shop: Shop) -> None:
    ordered = {"ordering": "key", "retry": {**LEVELS["retry"], "on_failure": "overtake"}}
    with shop.run(ordered) as wc_app:
        first = wc_app.send("orders", '"fail"', key="c")
        second = wc_app.send("orders", 2, key="c")
        assert [first.outcome, second.outcome] == [MOVED, DONE]


def test_levels_of_topics_that_a_pattern_matches_are_levels() -> None:
    app = App("shop")

    @app.handler(patterns=["^orders-"], group="shop", retry=LEVELS["retry"])
    def charge(_order: Record) -> None:
        raise ConnectionError

    with TestApp(app, config(charge={}), topics={"orders-eu": 1}) as wc_app:
        wc_app.create_topic("orders-us")
        results = [wc_app.send("orders-eu", 1), wc_app.send("orders-us", 1)]
        wc_app.run_until_settled()
        assert [each.outcome for each in results] == [DEAD_LETTERED] * 2
        assert [each.attempts for each in results] == [3, 3]
        assert len(wc_app.records) == 2


def test_two_groups_do_not_see_each_others_ladder() -> None:
    app = App("shop")
    calls: list[str] = []

    @app.handler("orders", group="shop", retry=LEVELS["retry"])
    def charge(_order: Record) -> None:
        calls.append("charge")
        raise ConnectionError

    @app.handler("orders", group="audit", retry=LEVELS["retry"])
    def audit(_order: Record) -> None:
        calls.append("audit")

    with TestApp(app, config(charge={}, audit={})) as wc_app:
        result = wc_app.send("orders", 1)
        assert (result.of("charge").outcome, result.of("audit").outcome) == (MOVED, DONE)
        wc_app.run_until_settled()
        assert calls.count("audit") == 1
        assert calls.count("charge") == 3


def test_dead_letters_are_put_back_and_may_succeed(shop: Shop) -> None:
    with shop.run({"retry": {"attempts": 1}}) as wc_app:
        shop.down = True
        result = wc_app.send("orders", {"a": 1}, key="c", headers={"trace": "1"})
        other = wc_app.send("orders", 2)
        assert [result.outcome, other.outcome] == [DEAD_LETTERED, DEAD_LETTERED]
        shop.down = False
        wc_app.redrive(*(each for each in wc_app.dead_letters if each.key == b"c"))
        assert [result.outcome, other.outcome] == [DONE, DEAD_LETTERED]
        assert result.attempts == 2
        wc_app.redrive()
        assert other.outcome is DONE
        wc_app.redrive()
        assert shop.seen == [{"a": 1}, 2, {"a": 1}, 2]


def test_a_dead_letter_of_somebody_else_is_not_put_back(shop: Shop, golden: Golden) -> None:
    with shop.run(topics={"others": 1}) as wc_app:
        letter = reading.dead_letter(wc_app.broker.produce("others"))
        with golden.raises(UsageError):
            wc_app.redrive(letter)


def test_a_value_that_was_too_large_is_found_in_the_source_topic(shop: Shop) -> None:
    rules = {"attempts": 1, "on_oversize": "reference", "when_spent": "dead_letter"}
    with shop.run({"retry": rules}) as wc_app:
        wc_app.broker.topics.by_name["shop.orders.dlq"].max_message_bytes = 5000
        shop.down = True
        result = wc_app.send("orders", ["x" * 10_000])
        wc_app.run_until_settled()
        assert result.copy is not None
        assert result.copy.value_ref is not None
        shop.down = False
        wc_app.redrive()
        assert result.outcome is DONE
        assert shop.seen[-1] == ["x" * 10_000]


@pytest.mark.parametrize(("rule", "letters"), [("dead_letter", 1), ("drop", 0)])
def test_a_record_beyond_its_time_to_live_is_expired(shop: Shop, rule: str, letters: int) -> None:
    with shop.run({"ttl": "30s", "on_expired": rule}) as wc_app:
        # 5 s are allowed for clocks that disagree.
        now = wc_app.clock.wall_ms()
        late = wc_app.send("orders", 1, timestamp=now - 35_001)
        fresh = wc_app.send("orders", 2, timestamp=now - 34_000)
        assert (late.outcome, late.calls, fresh.outcome) == (EXPIRED, [], DONE)
        assert [each.reason for each in wc_app.dead_letters] == ["EXPIRED"] * letters
        assert wc_app.expired == [late.of("charge")]


@pytest.mark.parametrize(("rule", "outcome"), [("dead_letter", DEAD_LETTERED), ("skip", SKIPPED)])
def test_a_record_for_no_handler_goes_where_the_rule_says(rule: str, outcome: object) -> None:
    app = App("shop")
    seen: list[str] = []

    @app.handler()
    def paid(_order: Record) -> None:
        seen.append("paid")

    @app.handler()
    def refunded(_order: Record) -> None:
        seen.append("refunded")

    routes = {
        "topics": ["orders"],
        "group": "shop",
        "otherwise": rule,
        "handler": ["paid", "refunded"],
        "routes": {"paid": "header('kind') == 'paid'", "refunded": "header('kind') == 'refunded'"},
    }
    with TestApp(app, config(orders=routes)) as wc_app:
        assert wc_app.send("orders", 1, headers={"kind": "refunded"}).outcome is DONE
        lost = wc_app.send("orders", 2, headers={"kind": "unknown"})
        assert (lost.outcome, lost.calls) == (outcome, [])
    assert seen == ["refunded"]


def test_names_of_outcomes_are_what_is_shown() -> None:
    assert repr([WAITING, DROPPED]) == "[WAITING, DROPPED]"
