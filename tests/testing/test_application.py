"""What a user's test can do with an application, and see of it."""

from __future__ import annotations

import re

import pytest

from tests.logged import events_in, fields_of, lines_of
from tests.testing.shops import PATIENT, Shop, config
from window_consumer import App, Record, UsageError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing import (
    DEAD_LETTERED,
    DONE,
    DROPPED,
    RETRYING,
    SKIPPED,
    WAITING,
    TestApp,
)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---- outcomes


def test_a_record_whose_handler_returns_is_done(shop: Shop) -> None:
    with shop.run() as wc_app:
        result = wc_app.send("orders", {"amount": 3}, key="c")
        assert result.outcome is DONE
        assert (result.attempts, result.error, result.copy) == (1, None, None)
        assert shop.seen == [{"amount": 3}]
        assert [each.record.json() for each in wc_app.processed] == [{"amount": 3}]


def refusing() -> App:
    app = App("shop")

    @app.handler("orders", group="shop", retry={"attempts": 1})
    def charge(order: Record) -> None:
        raise ValueError(f"unknown: {order.text()}")

    return app


def test_texts_of_exceptions_are_redacted_wherever_they_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = refusing()
    app.redact(lambda text: text.replace("Smith", "***"))
    with TestApp(app, config(charge={})) as wc_app:
        wc_app.send("orders", "Smith")
        (letter,) = wc_app.dead_letters
        assert dict(letter.headers)["wc-error-message"] == b"unknown: ***"
    (failed,) = lines_of(caplog, LogEvent.CALL_FAILED)
    assert "ValueError: unknown: ***" in failed.getMessage()
    assert "Smith" not in caplog.text
    with pytest.raises(UsageError, match=r"@app\.redact: "):
        app.redact(str)


def test_texts_of_exceptions_can_stay_at_home(caplog: pytest.LogCaptureFixture) -> None:
    whole = {**config(charge={}), "errors": {"message": "class"}}
    with TestApp(refusing(), whole) as wc_app:
        wc_app.send("orders", "Smith")
        (letter,) = wc_app.dead_letters
        headers = dict(letter.headers)
    assert headers["wc-error-class"] == b"ValueError"
    assert headers["wc-error-message"] == b""
    assert fields_of(caplog, LogEvent.CALL_FAILED)["error"] == "ValueError"
    assert "Smith" not in caplog.text


def test_a_poisonous_record_is_dead_lettered_with_headers_to_assert_on(shop: Shop) -> None:
    with shop.run() as wc_app:
        result = wc_app.send("orders", '"poison"', key="c", headers={"trace": "1"})
        assert result.outcome is DEAD_LETTERED
        (letter,) = wc_app.dead_letters
        assert result.copy == letter
        assert (letter.key, letter.value) == (b"c", b'"poison"')
        assert list(letter.own_headers) == [("trace", b"1")]
        headers = dict(letter.headers)
        assert headers["wc-reason"] == b"FATAL"
        assert headers["wc-error-message"] == b"no such customer"
        assert headers["wc-app-version"] == b"7"
        assert letter.position.topic == "shop.orders.dlq"
        assert letter.error_stack is not None
        assert "in charge" in letter.error_stack.splitlines()[1]


def test_a_record_that_nobody_wants_is_skipped(shop: Shop) -> None:
    with shop.run() as wc_app:
        assert wc_app.send("orders", '"skip"').outcome is SKIPPED
        assert len(wc_app.skipped) == 1


def test_a_record_that_a_rule_drops_is_dropped(shop: Shop) -> None:
    with shop.run({"retry": {"when_spent": "drop"}}) as wc_app:
        assert wc_app.send("orders", '"poison"').outcome is DROPPED
        assert (len(wc_app.dropped), wc_app.dead_letters) == (1, [])


def test_a_failed_record_waits_for_its_retry_and_tells_what_it_raised(shop: Shop) -> None:
    with shop.run(PATIENT) as wc_app:
        result = wc_app.send("orders", '"fail"')
        assert result.outcome is RETRYING
        assert isinstance(result.error, ConnectionError)
        assert result.error.__traceback__ is not None
        shown = repr(result)
        assert re.search(r"\bRETRYING .*\b1 call\b", shown)
        assert "ConnectionError: away at" in shown
        assert "shops.py:" in shown


def test_a_worker_that_a_rule_stops_raises_in_send_and_in_whatever_comes_next(shop: Shop) -> None:
    with shop.run({"retry": {"when_spent": "stop"}}) as wc_app:
        with pytest.raises(WorkerStoppedError, match="when_spent"):
            wc_app.send("orders", '"poison"')
        with pytest.raises(WorkerStoppedError):
            wc_app.send("orders", "1")


def test_a_worker_that_stops_while_nobody_looks_fails_the_test_at_its_end(shop: Shop) -> None:
    wc_app = shop.run({"retry": {"attempts": 2, "backoff": "1s..1s", "when_spent": "stop"}})
    with wc_app:
        wc_app.send("orders", '"fail"')
        with pytest.raises(WorkerStoppedError):
            wc_app.advance(1)
    with pytest.raises(WorkerStoppedError), shop.run({"on_no_offset": "fail"}):
        pytest.fail("it should not have started")


# ---- time


def test_time_passes_only_when_the_test_says_so(shop: Shop) -> None:
    with shop.run({**PATIENT, "concurrency": 4}) as wc_app:
        began = wc_app.clock.now()
        result = wc_app.send("orders", '"fail"')
        for number in range(20):
            wc_app.send("orders", number)
        wc_app.send_many("orders", range(200))
        assert wc_app.clock.now() == began
        assert (result.outcome, result.attempts) == (RETRYING, 1)


def test_a_retry_is_called_when_it_is_due_and_not_before(shop: Shop) -> None:
    with shop.run(PATIENT) as wc_app:
        result = wc_app.send("orders", '"fail"')
        wc_app.advance(0.99)
        assert result.attempts == 1
        wc_app.advance(0.01)
        assert (result.attempts, result.outcome) == (2, RETRYING)
        wc_app.advance("1999ms")
        assert result.attempts == 2
        wc_app.advance("1ms")
        assert (result.attempts, result.outcome) == (3, DEAD_LETTERED)
        assert [call.attempt for call in result.calls] == [1, 2, 3]
        assert wc_app.retried == [result.of("charge")]


def test_a_handler_that_asks_for_later_is_called_then(shop: Shop) -> None:
    with shop.run(PATIENT) as wc_app:
        result = wc_app.send("orders", '"later"')
        wc_app.advance(2.9)
        assert result.attempts == 1
        wc_app.advance(0.1)
        assert result.attempts == 2


def test_a_record_that_recovers_is_done(shop: Shop) -> None:
    with shop.run(PATIENT) as wc_app:
        shop.down = True
        result = wc_app.send("orders", 1)
        shop.down = False
        wc_app.run_until_settled()
        assert (result.outcome, result.attempts) == (DONE, 2)


def test_what_never_settles_is_reported(shop: Shop) -> None:
    retry = {"on_failure": "block", "backoff": "1s..1s"}
    with shop.run({"ordering": "key", "retry": retry}) as wc_app:
        wc_app.send("orders", '"fail"', key="c")
        behind = wc_app.send("orders", 1, key="c")
        beside = wc_app.send("orders", 1, key="d")
        assert (behind.outcome, beside.outcome) == (WAITING, DONE)
        with pytest.raises(AssertionError, match=r"\b2 records .*\b60s") as reported:
            wc_app.run_until_settled("60s")
        assert "away" in str(reported.value)


def test_an_outage_opens_the_breaker_and_what_waits_is_done_after_it(shop: Shop) -> None:
    breaker = {"cool_down": "30s", "min_calls": 5, "max_hold": "never"}
    with shop.run({**PATIENT, "concurrency": 1, "breaker": breaker}) as wc_app:
        shop.down = True
        results = wc_app.send_many("orders", range(100))
        wc_app.advance("1h")
        assert {each.outcome for each in results} <= {WAITING, RETRYING}
        assert wc_app.dead_letters == []
        shop.down = False
        wc_app.run_until_settled()
        assert {each.outcome for each in results} == {DONE}


def test_within_a_handler_time_passes_as_in_a_slow_one() -> None:
    app = App("shop")
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(_order: Record) -> None:
        holder[0].advance(30)

    with TestApp(app, config(charge={})) as wc_app:
        holder.append(wc_app)
        began = wc_app.clock.now()
        assert wc_app.send("orders", 1).outcome is DONE
        assert wc_app.send("orders", 2).outcome is DONE
        assert wc_app.clock.now() == began + 60


def test_the_worker_goes_on_beside_a_call_that_lasts(caplog: pytest.LogCaptureFixture) -> None:
    app = App("shop")
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        if order.json() == "hang":
            holder[0].advance("1m")
            holder[0].send("orders", "sent meanwhile")

    with TestApp(app, config(charge={}), topics={"orders": 1}) as wc_app:
        holder.append(wc_app)
        assert wc_app.send("orders", '"hang"').outcome is DONE
        assert [each.outcome for each in wc_app.records] == [DONE, RETRYING]
        assert LogEvent.HEAD_BLOCKED in events_in(caplog)


# ---- order


def test_records_of_one_key_are_called_in_order_and_a_failed_one_holds_its_key_back(
    shop: Shop,
) -> None:
    ordered = {"ordering": "key", "retry": {"on_failure": "overtake", "backoff": "1s..1s"}}
    with shop.run(ordered) as wc_app:
        first, second = wc_app.send_many("orders", ["1", '"fail"'], key=lambda _: "c")
        third = wc_app.send("orders", 3, key="c")
        assert [first.outcome, second.outcome, third.outcome] == [DONE, RETRYING, WAITING]
        wc_app.run_until_settled()
        assert [second.outcome, third.outcome] == [DEAD_LETTERED, DONE]
        assert shop.seen == [1, "fail", "fail", "fail", 3]


def test_the_key_chooses_the_partition_and_without_one_they_take_turns(shop: Shop) -> None:
    with shop.run(topics={"orders": 3}) as wc_app:
        same = {wc_app.send("orders", n, key="c").record.partition for n in range(5)}
        turns = [wc_app.send("orders", n).record.partition for n in range(6)]
        assert len(same) == 1
        assert turns == [0, 1, 2, 0, 1, 2]
        assert wc_app.send("orders", 1, partition=2).record.partition == 2


def test_many_records_fill_the_windows_and_all_are_done(shop: Shop) -> None:
    small = {"window": {"cells": 2, "cell_records": 5}, "concurrency": 2}
    with shop.run(small) as wc_app:
        wc_app.send_many("orders", range(1000))
        assert sorted(shop.seen) == list(range(1000))
        assert len(wc_app.processed) == 1000
