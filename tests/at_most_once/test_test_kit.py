"""At most once in the test kit: a crash ends calls, and none of them begins again."""

from __future__ import annotations

from window_consumer import App, Record
from window_consumer.testing import DONE, DROPPED, TestApp

CONFIG = {"workers": {"charge": {"group": "shop", "delivery": "at_most_once"}}}


def test_a_record_on_which_the_process_crashes_is_not_called_again() -> None:
    app = App("shop")
    calls: list[int] = []
    holder: list[TestApp] = []

    @app.handler("orders")
    def charge(order: Record) -> None:
        calls.append(order.json())
        if order.json() == 7:
            holder[0].crash()

    with TestApp(app, CONFIG, topics={"orders": 1}) as wc_app:
        holder.append(wc_app)
        wc_app.send_many("orders", range(20))
        wc_app.advance("1m")
    assert len(calls) == len(set(calls))
    assert calls.count(7) == 1
    missing = set(range(20)) - set(calls)
    assert len(missing) <= 32, "slots and what was queued for them"


def test_a_failed_call_is_the_only_one() -> None:
    app = App("shop")

    @app.handler("orders", ordering="key")
    def charge(order: Record) -> None:
        if order.json() == 1:
            raise ValueError("bad")

    with TestApp(app, CONFIG) as wc_app:
        bad, good = wc_app.send("orders", 1, key="a"), wc_app.send("orders", 2, key="a")
        wc_app.advance("1m")
        assert (bad.outcome, bad.attempts) == (DROPPED, 1)
        assert good.outcome is DONE
        assert wc_app.dead_letters == []
