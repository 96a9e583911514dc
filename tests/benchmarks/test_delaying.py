"""How the benchmarks of the delay service judge when records were delivered."""

from __future__ import annotations

from benchmarks.delaying import Arrival, lateness


def test_a_record_that_is_early_is_no_late_one() -> None:
    found = lateness(Arrival(0, 1000, 1000 + late) for late in (3, -1, 0, 8, 5))
    assert found["early"] == 1
    assert found["p50_lateness_ms"] == 3
    assert found["max_lateness_ms"] == 8
