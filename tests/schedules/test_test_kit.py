"""Schedules in the test kit, whose clock the test moves."""

from __future__ import annotations

import pytest

from window_consumer import App, Record
from window_consumer.testing import TestApp

app = App("shop")
reports: list[str] = []

CONFIG = {
    "delay": {"to": ["reports"]},
    "workers": {"report": {"group": "shop"}},
    "schedules": {"half-hourly": {"cron": "*/30 * * * *", "to": "reports", "missed": "all"}},
}
"""The clock of the test kit begins at 22:13:20."""


@app.handler("reports")
def report(order: Record) -> None:
    reports.append(order.id.removeprefix("schedule/half-hourly/"))


@pytest.fixture(autouse=True)
def _clear() -> None:
    reports.clear()


def test_ticks_come_when_the_clock_is_moved() -> None:
    with TestApp(app, config=CONFIG) as wc_app:
        wc_app.advance("16m")
        assert reports == []
        wc_app.advance("1m")
        assert reports == ["2023-11-14T22:30:00Z"]
        wc_app.advance("1h")
        assert reports[1:] == ["2023-11-14T23:00:00Z", "2023-11-14T23:30:00Z"]


def test_after_a_crash_and_a_rebalance_ticks_go_on() -> None:
    with TestApp(app, config=CONFIG) as wc_app:
        wc_app.advance("30m")
        wc_app.crash()
        wc_app.rebalance()
        wc_app.advance("30m")
        assert reports == ["2023-11-14T22:30:00Z", "2023-11-14T23:00:00Z"]


def test_schedules_do_not_tick_where_the_delay_service_does_not_run() -> None:
    with TestApp(app, config={**CONFIG, "delay": {"to": ["reports"], "run": False}}) as wc_app:
        wc_app.advance("2h")
        assert reports == []
