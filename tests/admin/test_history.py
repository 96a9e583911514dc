"""The last minutes, as charts have them."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, notes
from window_consumer.admin.board import MOST_CALLS, longest
from window_consumer.admin.history import KEPT, SampleHistory
from window_consumer.engine.counters import Counters
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import CallSnapshot, WindowsSnapshot
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot


def seen(driven: Driven | None = None, **counters: object) -> WindowsSnapshot:
    driven = driven or Driven()
    taken = driven.snapshot(cells=False)
    return evolve(taken, counters=Counters(**counters))  # type: ignore[arg-type] # its fields


def worker(windows: WindowsSnapshot | None) -> WorkerSnapshot:
    return WorkerSnapshot(name="charge", slots=4, windows=windows)


def test_rates_are_of_what_came_between_two_samples() -> None:
    history = SampleHistory()
    history.add(1000, seen(processed=100, retried=7, moved_to=Counter({"10s": 3})))
    after = seen(processed=150, retried=8, moved_to=Counter({"10s": 7}), dead_by=Counter(FATAL=2))
    history.add(3000, after)
    (sample,) = history.samples
    assert (sample["t"], sample["rate"], sample["retried"]) == (3000, 25.0, 0.5)
    assert (sample["moved"], sample["dead"]) == ({"10s": 2.0}, {"FATAL": 1.0})


def test_percentiles_are_of_the_calls_between_two_samples() -> None:
    history = SampleHistory()
    slow = Histogram((0,) * 12 + (1000,) + (0,) * 8, 500.0)
    quick = Histogram((0, 50, *slow.counts[2:]), 500.1)
    history.add(0, evolve(seen(), durations=slow))
    history.add(2000, evolve(seen(), durations=quick))
    history.add(4000, evolve(seen(), durations=quick))
    first, second = history.samples
    assert first["p99_s"] < 0.001
    assert second["p50_s"] is None


def test_a_worker_that_began_anew_has_no_negative_rates() -> None:
    history = SampleHistory()
    history.add(0, seen(processed=100, moved_to=Counter({"10s": 3})))
    history.add(2000, seen(processed=1, moved_to=Counter({"10s": 1})))
    (sample,) = history.samples
    assert sample["rate"] == 0
    assert sample["moved"]["10s"] == 0


def test_only_the_last_ten_minutes_are_kept_and_reported_from_where_one_was() -> None:
    history = SampleHistory()
    for number in range(KEPT + 50):
        history.add(number * 2000, seen())
    assert len(history.samples) == KEPT
    last = (KEPT + 49) * 2000
    assert [each["t"] for each in history.after(last - 4000)] == [last - 2000, last]
    assert history.after(last) == []


def test_a_frame_has_the_longest_calls() -> None:
    calls = [CallSnapshot(ORDERS, offset, seconds=1.0 + offset) for offset in range(30)]
    assert longest(calls) == tuple(calls[: -MOST_CALLS - 1 : -1])


def test_where_nothing_moves_there_is_no_time_to_drain() -> None:
    history, driven = SampleHistory(), Driven()
    driven.deliver(*notes(*range(20)))
    driven.engine.on_log_ends({ORDERS: 20})
    for at_ms in (0, 5000, 10_000):
        history.add(at_ms, seen(driven))
    reported = history.added_to(worker(seen(driven)))
    assert (reported.time_to_drain_s, reported.stands_still) == (None, True)
    history.add(15_000, seen(driven, processed=10))
    moving = history.added_to(worker(seen(driven)))
    assert moving.time_to_drain_s == pytest.approx(30.0)
    assert not moving.stands_still
    unknown = history.added_to(worker(None))
    assert (unknown.time_to_drain_s, unknown.stands_still) == (None, False)
