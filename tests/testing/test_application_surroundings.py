"""What surrounds the handlers of an application under test, and how wrong use is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.logged import events_in
from tests.testing.shops import Shop, config
from window_consumer import App, ConfigError, Record, UsageError, WorkerStoppedError, current_record
from window_consumer.model.log_events import LogEvent
from window_consumer.testing import DONE, RETRYING, TestApp, make_record


@pytest.fixture
def shop() -> Shop:
    return Shop()


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
