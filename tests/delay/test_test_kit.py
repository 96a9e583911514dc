"""The delay service in the test kit, whose clock the test moves."""

from __future__ import annotations

from window_consumer import App, Record
from window_consumer.testing import TestApp

app = App("shop")
charged: list[str] = []


@app.handler("orders")
def charge(order: Record) -> None:
    charged.append(order.id)


def test_a_delayed_record_comes_when_the_clock_is_moved() -> None:
    charged.clear()
    workers = {"charge": {"group": "shop"}}
    with TestApp(app, config={"delay": {"to": ["orders"]}, "workers": workers}) as wc_app:
        headers = {"wc-deliver-to": "orders", "wc-delay": str(30 * 60_000), "wc-id": "mail 7"}
        wc_app.send("wc.delay", "hello", headers=headers)
        wc_app.advance("29m")
        wc_app.advance("59s")
        assert charged == []
        wc_app.advance("1s")
        wc_app.advance("2ms")
        assert charged == ["mail 7"]


def test_a_cancelled_record_does_not_come() -> None:
    charged.clear()
    workers = {"charge": {"group": "shop"}}
    with TestApp(app, config={"delay": {"to": ["orders"]}, "workers": workers}) as wc_app:
        for record_id in ("mail 7", "mail 8"):
            headers = {"wc-deliver-to": "orders", "wc-delay": "60000", "wc-id": record_id}
            wc_app.send("wc.delay", "hello", headers=headers)
        wc_app.send("wc.delay.cancel", "yes", key="mail 7")
        wc_app.advance("61s")
        assert charged == ["mail 8"]
