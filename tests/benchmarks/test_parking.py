"""What the benchmark of parking calls a violation of the order, and how it measures gaps."""

from __future__ import annotations

from itertools import count

import pytest

from benchmarks.parking import FAILING_S, Handled, Shop, fails

BAD = next(key for key in (b"%d" % number for number in count()) if fails(key))
GOOD = next(key for key in (b"%d" % number for number in count()) if not fails(key))


def shop(*handled: Handled) -> Shop:
    return Shop(0.0, began=0.0, handled=list(handled))


@pytest.mark.parametrize(
    ("calls", "violations"),
    [
        ([(0, 0.0, 1.0), (1, 1.0, 2.0), (2, 2.0, 3.0)], 0),
        ([(1, 0.0, 1.0), (0, 1.0, 2.0)], 1),
        ([(0, 0.0, 1.0), (1, 0.5, 2.0)], 1),
        ([(0, 0.0, 1.0), (2, 1.0, 2.0), (1, 2.0, 3.0), (3, 3.0, 4.0)], 1),
    ],
)
def test_a_record_before_its_time_is_a_violation(
    calls: list[tuple[int, float, float]], violations: int
) -> None:
    assert shop(*(Handled(BAD, *each) for each in calls)).order_violations() == violations
    others = shop(*(Handled(b"%d" % at, *each) for at, each in enumerate(calls)))
    assert others.order_violations() == 0


def test_gaps_are_those_of_parked_records_once_keys_fail_no_more() -> None:
    late = FAILING_S + 1
    found = shop(
        Handled(GOOD, 0, late, late),
        Handled(GOOD, 1, late + 9, late + 9),
        Handled(BAD, 0, 1.0, 1.0),
        Handled(BAD, 1, late, late + 1, was_parked=True),
        Handled(BAD, 2, late + 1.25, late + 2, was_parked=True),
        Handled(BAD, 3, late + 5, late + 6),
    )
    assert found.p99_gap_ms() == pytest.approx(250)


def test_the_rate_is_that_of_the_other_keys() -> None:
    found = shop(Handled(GOOD, 0, 0.0, 1.0), Handled(GOOD, 1, 1.0, 4.0), Handled(BAD, 0, 1.0, 90.0))
    assert found.rate == pytest.approx(0.5)
