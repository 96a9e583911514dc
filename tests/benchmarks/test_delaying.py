"""How the benchmarks of the delay service judge when records were delivered."""

from __future__ import annotations

from benchmarks.delaying import lateness


def test_a_record_that_is_early_is_no_late_one() -> None:
    found = lateness([3.0, -1.0, 0.0, 8.0, 5.0])
    assert found["early"] == 1
    assert found["p50_lateness_ms"] == 3
    assert found["max_lateness_ms"] == 8
