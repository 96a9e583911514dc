"""What a user's test can do with an application, and see of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.logged import events_in, fields_of, lines_of
from tests.testing.shops import PATIENT, Shop, config
from window_consumer import App, ConfigError, Record, UsageError, WorkerStoppedError, current_record
from window_consumer.model.log_events import LogEvent
from window_consumer.testing import (
    DEAD_LETTERED,
    DONE,
    DROPPED,
    RETRYING,
    SKIPPED,
    WAITING,
    TestApp,
    make_record,
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


# ---- trouble


def test_what_was_not_committed_runs_again_after_a_crash(shop: Shop) -> None:
    with shop.run() as wc_app:
        before = wc_app.send("orders", 1, partition=0)
        wc_app.advance("1s")
        after = wc_app.send("orders", 2, partition=0)
        assert wc_app.committed["orders", 0] == 1
        wc_app.crash()
        assert (len(before.calls), len(after.calls)) == (1, 2)
        assert after.outcome is DONE
        assert shop.seen == [1, 2, 2]


def test_a_crash_within_a_handler_ends_the_process_there() -> None:
    app = App("shop")
    seen: list[int] = []
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        seen.append(order.json())
        if len(seen) == 1:
            try:
                holder[0].crash()
            except Exception:
                pytest.fail("a handler that catches every Exception would survive its process")
            seen.append(-1)

    with TestApp(app, config(charge={})) as wc_app:
        holder.append(wc_app)
        result = wc_app.send("orders", 7)
        assert seen == [7, 7]
        assert (result.outcome, len(result.calls)) == (DONE, 2)


def test_a_process_that_crashes_on_and_on_ends_the_test() -> None:
    app = App("shop")
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(_order: Record) -> None:
        holder[0].crash()

    with TestApp(app, config(charge={"retry": {"crash_attempts": 100}})) as wc_app:
        holder.append(wc_app)
        with pytest.raises(UsageError, match="crashed 100 times"):
            wc_app.send("orders", 7)


def test_a_record_that_crashes_the_process_leaves_and_the_others_are_handled() -> None:
    app = App("shop")
    calls: list[int] = []
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        calls.append(order.json())
        if order.json() == 7:
            holder[0].crash()

    with TestApp(app, config(charge={}), topics={"orders": 1}) as wc_app:
        holder.append(wc_app)
        wc_app.send_many("orders", range(20))
        (letter,) = wc_app.dead_letters
        assert (letter.reason, letter.value) == ("CRASHED", b"7")
        assert calls.count(7) == 5
        assert len(wc_app.processed) == 19


def test_a_rebalance_commits_what_is_done_and_begins_anew_with_what_is_not(shop: Shop) -> None:
    with shop.run(PATIENT, topics={"orders": 1}) as wc_app:
        done = wc_app.send("orders", 1)
        failed = wc_app.send("orders", '"fail"')
        wc_app.rebalance()
        assert wc_app.committed["orders", 0] == 1
        assert len(done.calls) == 1
        assert [call.attempt for call in failed.calls] == [1, 1]


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_rebalance_takes_every_partition_away(shop: Shop, partitions: int) -> None:
    with shop.run(PATIENT, topics={"orders": partitions}) as wc_app:
        failed = [wc_app.send("orders", '"fail"', partition=n) for n in range(partitions)]
        wc_app.rebalance()
        assert [len(each.calls) for each in failed] == [2] * partitions
        assert all(wc_app.send("orders", 1, partition=n).outcome is DONE for n in range(partitions))


def test_after_a_lost_session_what_was_not_committed_runs_again(shop: Shop) -> None:
    with shop.run() as wc_app:
        result = wc_app.send("orders", 1)
        wc_app.rebalance(lost=True)
        assert (len(result.calls), result.outcome) == (2, DONE)


def test_the_broker_can_be_made_to_fail(shop: Shop) -> None:
    with shop.run() as wc_app:
        limits = wc_app.broker.topics.by_name["shop.orders.dlq"]
        limits.max_message_bytes = 1
        result = wc_app.send("orders", '"poison"')
        assert result.outcome is RETRYING
        limits.max_message_bytes = 10**6
        wc_app.run_until_settled()
        assert result.outcome is DEAD_LETTERED


def test_leaving_drains_and_commits(shop: Shop) -> None:
    with shop.run(topics={"orders": 1}) as wc_app:
        wc_app.send("orders", 1)
        assert wc_app.committed["orders", 0] == 0
    assert wc_app.committed["orders", 0] == 1


# ---- the application around the handlers


def test_lifespan_and_middleware_are_honoured_and_a_crash_begins_a_new_lifespan() -> None:
    app = App("shop")
    reported: list[Any] = []
    lives = count(1)

    @app.lifespan
    def resources() -> Iterator[str]:
        reported.append("enter")
        yield f"state {next(lives)}"
        reported.append("leave")

    @app.middleware
    def outer(record: Record, call_next: Any) -> None:
        reported.append("before")
        call_next(record)
        reported.append("after")

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        reported.append(order.state)
        current = current_record()
        assert current is not None
        reported.append(current.offset)

    with TestApp(app, config(charge={}), topics={"orders": 1}) as wc_app:
        wc_app.send("orders", 1)
        assert reported == ["enter", "before", "state 1", 0, "after"]
        assert current_record() is None
        reported.clear()
        wc_app.crash()
        assert reported == ["enter", "before", "state 2", 0, "after"]
        reported.clear()
    assert reported == ["leave", "leave"]


def test_what_a_lifespan_raises_reaches_the_test() -> None:
    app = App("shop")

    def connect() -> object:
        raise ConnectionError("no database")

    @app.lifespan
    def resources() -> Iterator[object]:
        yield connect()

    app.handler("orders", group="shop", name="charge")(lambda _order: None)
    with pytest.raises(ConnectionError, match="no database"), TestApp(app, config(charge={})):
        pytest.fail("it should not have started")


def test_the_lifespan_is_left_where_a_worker_cannot_start() -> None:
    app = App("shop")
    reported: list[str] = []

    @app.lifespan
    def resources() -> Iterator[None]:
        reported.append("enter")
        yield
        reported.append("leave")

    app.handler("orders", group="shop", name="charge")(lambda _order: None)
    workers = config(charge={"on_no_offset": "fail"})
    with pytest.raises(WorkerStoppedError), TestApp(app, workers):
        pytest.fail("it should not have started")
    assert reported == ["enter", "leave"]


def test_handlers_that_send_records_feed_other_workers() -> None:
    app = App("shop")
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        holder[0].send("bills", order.value)

    @app.handler("bills", group="post")
    def post(_bill: Record) -> None: ...

    with TestApp(app, config(charge={}, post={})) as wc_app:
        holder.append(wc_app)
        wc_app.send("orders", {"amount": 1})
        assert [each.worker for each in wc_app.processed] == ["charge", "post"]
        assert wc_app.processed[1].record.json() == {"amount": 1}
        with pytest.raises(UsageError, match=r"\bpost, shop: .*\bcommitted_by"):
            _ = wc_app.committed
        assert wc_app.committed_by("post")


def test_several_workers_on_a_topic_are_asked_one_by_one() -> None:
    app = App("shop")

    @app.handler("orders", group="shop")
    def charge(_order: Record) -> None: ...

    @app.handler("orders", group="audit")
    def audit(_order: Record) -> None:
        raise ValueError("no")

    with TestApp(app, config(charge={}, audit={})) as wc_app:
        result = wc_app.send("orders", 1)
        with pytest.raises(UsageError, match=r"\bcharge, audit: .*\bresult\.of"):
            _ = result.outcome
        assert result.of("charge").outcome is DONE
        assert result.of("audit").outcome is RETRYING
        with pytest.raises(UsageError, match="'chrage'"):
            result.of("chrage")
    with TestApp(app, config(charge={}, audit={}), only=["charge"]) as wc_app:
        assert wc_app.send("orders", 1).outcome is DONE


def test_topics_that_a_pattern_matches_are_found_at_the_start_and_later() -> None:
    app = App("shop")
    seen: list[str] = []

    @app.handler(patterns=["^orders-"], group="shop")
    def charge(order: Record) -> None:
        seen.append(order.topic)

    with TestApp(app, config(charge={}), topics={"orders-eu": 1, "other": 1}) as wc_app:
        assert wc_app.send("orders-eu", 1).outcome is DONE
        wc_app.create_topic("orders-us")
        assert wc_app.send("orders-us", 1).outcome is DONE
        unread = wc_app.send("other", 1)
        with pytest.raises(UsageError, match=r"\bother .*\bresult\.of\("):
            _ = unread.outcome
        assert "other" in repr(unread)
        assert not any(outcome.name in repr(unread) for outcome in type(DONE))
    assert seen == ["orders-eu", "orders-us"]


def test_what_the_worker_says_reaches_the_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "window_consumer"), shop.run() as wc_app:
        wc_app.send("orders", '"poison"')
    assert events_in(caplog) == [LogEvent.CALL_FAILED]


def test_a_record_can_have_what_real_ones_have() -> None:
    app = App("shop")
    records: list[Record] = []
    app.handler("orders", group="shop", name="charge")(records.append)
    with TestApp(app, config(charge={})) as wc_app:
        wc_app.send("orders", None, key=b"\xff", headers=[("a", b"1"), ("a", None)], timestamp=5)
        wc_app.send("orders", b"\xfe", headers={"b": "2"})
    tombstone, plain = records
    assert (tombstone.value, tombstone.key) == (None, b"\xff")
    assert tombstone.headers == [("a", b"1"), ("a", None)]
    assert tombstone.timestamp == 5
    assert (plain.value, plain.headers, plain.key) == (b"\xfe", [("b", b"2")], None)


def test_a_record_can_be_made_for_a_handler_that_is_called_by_itself(shop: Shop) -> None:
    shop.charge(make_record({"amount": 1}, key="c"))
    assert shop.seen == [{"amount": 1}]
    made = make_record("x", "c", topic="orders", offset=7, attempt=2, state="pool")
    assert (made.topic, made.partition, made.offset) == ("orders", 0, 7)
    assert (made.key, made.value, made.headers, made.timestamp) == (b"c", b"x", [], None)
    assert (made.attempt, made.state, made.cancelled) == (2, "pool", False)


# ---- wrong use


def test_an_unknown_topic_is_refused_with_those_that_there_are(shop: Shop) -> None:
    with shop.run() as wc_app, pytest.raises(UsageError, match=r"'order': .*\borders\b"):
        wc_app.send("order", 1)


def test_a_partition_that_is_not_there_is_refused(shop: Shop) -> None:
    with shop.run() as wc_app, pytest.raises(UsageError, match="0 to 3"):
        wc_app.send("orders", 1, partition=4)


def test_a_value_that_json_cannot_say_is_refused(shop: Shop) -> None:
    with shop.run() as wc_app, pytest.raises(UsageError, match="or JSON"):
        wc_app.send("orders", {"when": object()})


def test_it_runs_only_within_its_block(shop: Shop) -> None:
    with pytest.raises(UsageError, match="with TestApp"):
        shop.run().send("orders", 1)


def test_a_configuration_that_would_not_start_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="attempts"):
        shop.run({"retry": {"attempts": 0}})


def test_variables_for_brokers_need_not_be_set_but_others_do(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="SHOP_THREADS"):
        shop.run({"concurrency": "${SHOP_THREADS}"})
    monkeypatch.setenv("SHOP_THREADS", "3")
    with shop.run({"concurrency": "${SHOP_THREADS}"}) as wc_app:
        assert wc_app.plan.workers[0].config.concurrency == 3


def test_verdicts_of_the_test_framework_pass_through_a_handler() -> None:
    app = App("shop")

    @app.handler("orders", group="shop")
    def charge(_order: Record) -> None:
        pytest.fail("called")

    failed = pytest.fail.Exception
    with TestApp(app, config(charge={})) as wc_app, pytest.raises(failed, match="called"):
        wc_app.send("orders", 1)
    assert current_record() is None


@pytest.mark.parametrize("key", ["c", b"c", lambda value: value["customer"]])
def test_a_key_is_a_value_or_returned_by_a_function_however_many_are_sent(
    shop: Shop, key: Any
) -> None:
    with shop.run() as wc_app:
        sent = [wc_app.send("orders", {"customer": "c"}, key=key)]
        sent += wc_app.send_many("orders", [{"customer": "c"}, {"customer": "c"}], key=key)
        assert [each.record.key for each in sent] == [b"c"] * 3
    assert make_record({"customer": "c"}, key).key == b"c"
