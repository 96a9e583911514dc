from __future__ import annotations

from array import array

import pytest

from benchmarks.outage import BEGINS_S, LASTS_S, Bank
from tests.golden_texts import Golden
from window_consumer.model.errors import RunError


def bank(*paid: float) -> Bank:
    found = Bank(wait_s=0.001)
    found.first = 100.0
    found.paid = array("d", paid)
    return found


def stretch(begin: float, seconds: float, rate: float) -> list[float]:
    return [begin + number / rate for number in range(int(seconds * rate))]


BEFORE = stretch(100.0, BEGINS_S, 1000)
UP = 100.0 + BEGINS_S + LASTS_S


def test_the_rate_before_is_that_of_the_last_seconds() -> None:
    assert bank(*BEFORE).rate_before() == pytest.approx(1000, rel=0.01)


def test_full_speed_counts_from_the_first_call_after_the_outage() -> None:
    probe = UP + 7.0
    slowly, fast = stretch(probe, 1.0, 500), stretch(probe + 1.0, 3.0, 1000)
    assert bank(*BEFORE, *slowly, *fast).full_speed_after_s() == pytest.approx(1.0, abs=0.1)


def test_a_speed_that_does_not_come_back_is_an_error(golden: Golden) -> None:
    with golden.raises(RunError):
        bank(*BEFORE, *stretch(UP + 7.0, 5.0, 500)).full_speed_after_s()


def test_the_longest_time_without_a_call_is_found_and_failed_calls_count() -> None:
    found = bank(1.0, 2.0, 9.0)
    found.refused = array("d", [4.0])
    assert found.stood_s() == pytest.approx(5.0)
