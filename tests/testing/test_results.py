"""What a user's test sees of the records that handlers return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.golden_texts import Golden
from tests.testing.shops import config
from window_consumer import App, Produce, Record, ResultRefusedError
from window_consumer.testing import DEAD_LETTERED, DONE, RETRYING, TestApp
from window_consumer.testing.fakes.broker import Fate
from window_consumer.testing.fakes.topics import partition_of

Returns = Callable[[Record], object]


def app(returns: Returns, seen: list[bytes | None] | None = None) -> App:
    shop = App("shop")
    shop.handler("orders", group="shop", name="charge")(returns)

    @shop.handler("invoices", group="shop-mail")
    def mail(invoice: Record) -> None:
        if seen is not None:
            seen.append(invoice.value)

    return shop


def running(returns: Returns, seen: list[bytes | None] | None = None) -> TestApp:
    patient = {"retry": {"attempts": 2, "backoff": "1s..1s"}}
    return TestApp(app(returns, seen), config(charge=patient, mail={}))


def invoice(order: Record) -> Produce:
    return Produce("invoices", order.key, order.value)


def test_what_a_handler_returns_is_produced_and_can_be_compared() -> None:
    seen: list[bytes | None] = []
    with running(invoice, seen) as wc_app:
        result = wc_app.send("orders", "10", key="c")
        assert result.outcome is DONE
        assert result.produced == [Produce("invoices", "c", "10")]
        assert wc_app.produced == result.produced
        assert seen == [b"10"]  # by the worker that reads it
        (record,) = wc_app.broker.log("invoices", partition_of(b"c", 4)).messages
        assert (record.key(), record.value()) == (b"c", b"10")


def test_what_a_coroutine_returns_is_produced() -> None:
    async def charge(order: Record) -> object:
        return invoice(order)

    with running(charge) as wc_app:
        assert wc_app.send("orders", "10", key="c").produced == [Produce("invoices", "c", "10")]


def test_a_topic_that_nobody_reads_is_made() -> None:
    with running(lambda _: [Produce("audit", "1"), Produce("audit", "2")]) as wc_app:
        assert wc_app.send("orders").outcome is DONE
        assert wc_app.produced == [Produce("audit", "1"), Produce("audit", "2")]
        assert wc_app.broker.topics.partitions("audit") == 4


def test_a_record_is_not_done_before_its_results_are_acked() -> None:
    with running(invoice) as wc_app:
        wc_app.broker.fate_of = lambda _: Fate.LOST
        result = wc_app.send("orders", "10", key="c")
        assert (result.outcome, wc_app.produced) == (RETRYING, [])
        wc_app.broker.fate_of = lambda _: Fate.ACKED
        wc_app.advance("1m")
        assert (result.outcome, result.attempts) == (DONE, 1)
        assert wc_app.produced == [Produce("invoices", "c", "10")]


def test_a_refused_result_is_the_error_of_its_call_and_ends_among_the_dead_letters(
    golden: Golden,
) -> None:
    with running(lambda _: Produce("invoices", partition=7)) as wc_app:
        result = wc_app.send("orders", "10", key="c")
        assert result.outcome is RETRYING
        assert isinstance(result.error, ResultRefusedError)
        wc_app.advance("1m")
        assert (result.outcome, result.attempts) == (DEAD_LETTERED, 2)
        (letter,) = wc_app.dead_letters
        golden(letter.error_message or "")


def test_after_a_crash_between_ack_and_commit_results_are_produced_again() -> None:
    with running(invoice) as wc_app:
        wc_app.send("orders", "10", key="c")
        wc_app.crash()
        assert wc_app.produced == [Produce("invoices", "c", "10")] * 2


@pytest.mark.parametrize("returned", [True, "text", [1, 2]])
def test_what_else_a_handler_returns_is_ignored(returned: object) -> None:
    with running(lambda _: returned) as wc_app:
        assert wc_app.send("orders").outcome is DONE
        assert wc_app.produced == []


@pytest.mark.parametrize("kind", ["functions", "coroutines"])
def test_middleware_that_forgets_to_return_results_fails_the_record(
    kind: str, golden: Golden
) -> None:
    async def charge(order: Record) -> Produce:
        return invoice(order)

    shop = App("shop")
    shop.handler("orders", group="shop", name="charge")(invoice if kind == "functions" else charge)
    if kind == "functions":

        @shop.middleware
        def forgets(record: Record, call_next: Callable[[Record], object]) -> None:
            call_next(record)
    else:

        @shop.middleware
        async def awaits(record: Record, call_next: Callable[[Record], Any]) -> None:
            await call_next(record)

    with TestApp(shop, config(charge={})) as wc_app:
        result = wc_app.send("orders", "10", key="c")
        assert result.outcome is RETRYING
        golden(str(result.error))


def test_middleware_that_returns_nothing_is_fine_around_handlers_without_results() -> None:
    shop = App("shop")
    shop.handler("orders", group="shop", name="charge")(lambda _: None)

    @shop.middleware
    def plain(record: Record, call_next: Callable[[Record], object]) -> None:
        call_next(record)

    with TestApp(shop, config(charge={})) as wc_app:
        assert wc_app.send("orders").outcome is DONE


def test_middleware_may_change_what_is_produced() -> None:
    shop = App("shop")
    shop.handler("orders", group="shop", name="charge")(invoice)

    @shop.middleware
    def drops(record: Record, call_next: Callable[[Record], object]) -> object:
        call_next(record)
        return [] if record.key == b"test" else Produce("audit")

    with TestApp(shop, config(charge={})) as wc_app:
        wc_app.send("orders", key="test")
        wc_app.send("orders", key="c")
        assert wc_app.produced == [Produce("audit")]


def test_a_list_with_something_else_in_it_fails_the_record() -> None:
    with running(lambda _: [Produce("invoices"), 1]) as wc_app:
        result = wc_app.send("orders")
        assert result.outcome is RETRYING
        assert isinstance(result.error, TypeError)


def test_results_of_exactly_once_come_with_the_commit_or_not_at_all() -> None:
    seen: list[bytes | None] = []
    once = {"delivery": "exactly_once", "retry": {"attempts": 1}}
    with TestApp(app(invoice, seen), config(charge=once, mail={})) as wc_app:
        wc_app.broker.topics.by_name["invoices"].max_message_bytes = 100
        assert wc_app.send("orders", "10", key="c").produced == [Produce("invoices", "c", "10")]
        assert seen == [b"10"]
        refused = wc_app.send("orders", "x" * 200, key="c")
        wc_app.advance(5)
        assert refused.outcome is DEAD_LETTERED
        assert wc_app.send("orders", "11", key="c").outcome is DONE
        assert seen == [b"10", b"11"]
