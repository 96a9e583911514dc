"""A rate is kept from the first record on."""

from __future__ import annotations

from window_consumer.runtime.copy_rate import CopyRate
from window_consumer.testing.clock import ManualClock


def never() -> bool:
    return False


def test_time_before_the_first_record_is_not_caught_up_on() -> None:
    clock = ManualClock()
    rate = CopyRate(100.0, clock)
    clock.sleep(5.0)
    begun = clock.now()
    for _ in range(10):
        rate.wait(10, never)
    assert round(clock.now() - begun, 6) == 1.0


def test_a_second_at_most_is_caught_up_on() -> None:
    clock = ManualClock()
    rate = CopyRate(100.0, clock)
    rate.wait(10, never)
    clock.sleep(5.0)
    begun = clock.now()
    for _ in range(20):
        rate.wait(10, never)
    assert round(clock.now() - begun, 6) == 1.0


def test_a_share_is_one_record_at_least_and_without_a_rate_the_most() -> None:
    clock = ManualClock()
    assert CopyRate(100.0, clock).share(0.02, 1_000) == 2
    assert CopyRate(0.1, clock).share(0.02, 1_000) == 1
    assert CopyRate(1e6, clock).share(0.02, 1_000) == 1_000
    assert CopyRate(None, clock).share(0.02, 1_000) == 1_000
