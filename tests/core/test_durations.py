from __future__ import annotations

import pytest

from tests.core.support import Driven, notes
from window_consumer.core.durations import BOUNDS_S


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
