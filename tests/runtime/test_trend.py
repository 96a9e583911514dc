"""What the last minute was like."""

from __future__ import annotations

import math

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.trend import Trend, TrendSample


def snapshot(log_end: int | None, slots: int = 4) -> WindowsSnapshot:
    driven = Driven(slots=slots)
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish(driven.out[0], elapsed=0.02)
    driven.tick()
    if log_end is not None:
        driven.engine.on_log_ends({ORDERS: log_end})
    return driven.snapshot()


def trend(*samples: TrendSample) -> Trend:
    made = Trend()
    for sample in samples:
        made.add(sample)
    return made


def test_before_there_is_a_trend_nothing_is_said() -> None:
    assert trend().busy_ratio(4) is None
    assert trend(TrendSample(0.0, 0, 0.0)).time_to_drain_s(snapshot(100)) is None


def test_the_slots_time_that_calls_took_is_the_busy_ratio() -> None:
    assert trend(TrendSample(0.0, 0, 5.0), TrendSample(10.0, 9, 25.0)).busy_ratio(
        4
    ) == pytest.approx(0.5)


def test_the_backlog_drains_at_the_pace_of_the_last_minute() -> None:
    found = trend(TrendSample(0.0, 100, 0.0), TrendSample(10.0, 600, 9.0)).time_to_drain_s(
        snapshot(10_001)
    )
    assert found == pytest.approx(10_000 / 50)


def test_where_nothing_was_finished_what_lags_takes_for_ever() -> None:
    idle = trend(TrendSample(0.0, 100, 0.0), TrendSample(10.0, 100, 0.0))
    assert idle.time_to_drain_s(snapshot(1)) == 0.0
    assert idle.time_to_drain_s(snapshot(1001)) == math.inf


def test_without_the_log_s_end_nobody_knows() -> None:
    assert (
        trend(TrendSample(0.0, 0, 0.0), TrendSample(9.0, 5, 1.0)).time_to_drain_s(snapshot(None))
        is None
    )


def test_older_samples_than_a_minute_are_forgotten() -> None:
    long_ago = [TrendSample(5.0 * n, 1000 * n, 20.0 * n) for n in range(10)]
    quiet = [TrendSample(50.0 + 5.0 * n, 10_000, 200.0) for n in range(13)]
    made = trend(*long_ago, *quiet)
    assert made.busy_ratio(4) == 0.0


def test_a_call_that_still_runs_keeps_its_slot_busy() -> None:
    driven = Driven(slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.claim(driven.out[0])
    driven.now += 30.0
    found = driven.snapshot()
    assert TrendSample.of(0.0, found).busy_s == pytest.approx(30.0)
