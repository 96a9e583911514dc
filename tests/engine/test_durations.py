from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import notes
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram


def test_each_call_of_a_slice_counts_with_their_mean() -> None:
    driven = Driven(slots=1)
    driven.deliver(*notes(*range(4)))
    driven.tick()
    calls = 0
    while driven.out:
        (slice_, *_) = driven.out
        calls += len(slice_.messages)
        driven.finish(slice_, elapsed=0.02 * len(slice_.messages))
        driven.tick()
    histogram = driven.engine.durations.histogram()
    assert calls == histogram.calls == 4
    assert histogram.counts[BOUNDS_S.index(0.025)] == 4
    assert histogram.seconds == pytest.approx(0.08)


@pytest.mark.parametrize(("seconds", "bucket"), [(0.01, BOUNDS_S.index(0.01)), (61.0, -1)])
def test_a_bound_belongs_to_its_bucket_and_the_last_has_none(seconds: float, bucket: int) -> None:
    driven = Driven(slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish(driven.out[0], elapsed=seconds)
    assert driven.engine.durations.histogram().counts[bucket] == 1


def of_buckets(**calls: int) -> Histogram:
    counts = [0] * (len(BOUNDS_S) + 1)
    for bound, count in calls.items():
        counts[-1 if bound == "longer" else BOUNDS_S.index(float(bound[1:]) / 1000)] = count
    return Histogram(tuple(counts), 1.0)


def test_quantiles_lie_in_the_bucket_in_which_so_many_calls_are() -> None:
    histogram = of_buckets(_10=90, _100=10)
    median, high = histogram.quantile(0.5), histogram.quantile(0.95)
    assert median == pytest.approx(0.005 + 0.005 * 50 / 90)
    assert high == pytest.approx(0.0875)
    assert histogram.quantile(1.0) == 0.1


def test_quantiles_of_nothing_and_beyond_the_last_bound() -> None:
    assert of_buckets().quantile(0.5) is None
    assert of_buckets(longer=3).quantile(0.5) == BOUNDS_S[-1]


def test_what_came_later_is_the_difference_unless_a_new_process_has_begun() -> None:
    later = of_buckets(_10=5, _100=2).since(of_buckets(_10=3))
    assert (later.calls, later.counts[BOUNDS_S.index(0.01)], later.seconds) == (4, 2, 0.0)
    anew = of_buckets(_10=1)
    assert anew.since(of_buckets(_10=3)) is anew
