"""Routing and time to live, the way that a user's test sees them."""

from __future__ import annotations

from typing import Any

import pytest

from window_consumer import App, Record, header
from window_consumer.testing import DEAD_LETTERED, DONE, EXPIRED, RETRYING, SKIPPED, TestApp


def routed_app() -> App:
    app = App("routed")

    @app.handler("orders", group="routed", when=header("type") == "paid")
    def paid(_order: Record) -> None:
        raise ValueError("not yet")

    @app.handler("orders", group="routed", when=header("type") == "refunded")
    def refunded(_order: Record) -> None: ...

    return app


def routed_workers(**worker: Any) -> dict[str, Any]:
    handler = ["paid", "refunded"]
    retry = {"attempts": 9, "backoff": "10s..10s"}
    return {"workers": {"shop": {"handler": handler, "retry": retry, **worker}}}


def test_records_expire_by_the_tests_clock_and_are_not_called_then() -> None:
    with TestApp(routed_app(), routed_workers(ttl="12s")) as wc_app:
        result = wc_app.send("orders", "one", headers=[("type", b"paid")])
        assert (result.outcome, result.attempts) == (RETRYING, 1)
        wc_app.advance("10s")
        assert result.attempts == 2
        wc_app.advance("10s")
        assert (result.outcome, result.attempts) == (EXPIRED, 2)
        (letter,) = wc_app.dead_letters
        assert (letter.reason, letter.attempts, letter.handler) == ("EXPIRED", 2, "paid,refunded")


@pytest.mark.parametrize(
    ("otherwise", "outcome"), [("dead_letter", DEAD_LETTERED), ("skip", SKIPPED)]
)
def test_a_record_that_is_for_nobody_was_not_called(otherwise: str, outcome: Any) -> None:
    with TestApp(routed_app(), routed_workers(otherwise=otherwise)) as wc_app:
        result = wc_app.send("orders", "one")
        assert (result.outcome, result.attempts) == (outcome, 0)
        refund = wc_app.send("orders", "two", headers=[("type", b"refunded")])
        assert (refund.outcome, refund.attempts) == (DONE, 1)
