"""Where a record waits next, for each delay and both precisions."""

from __future__ import annotations

import pytest

from window_consumer.delay.config import DelayConfig
from window_consumer.delay.waiting import Levels


def levels(precision: str) -> Levels:
    section = DelayConfig(to=("orders",), precision=precision)  # type: ignore[arg-type]
    return Levels.of(section)


def path(delay_s: float, precision: str = "exact") -> list[str]:
    """Return the levels that a record passes."""
    found, service = [], levels(precision)
    while (level := service.next(delay_s)) is not None:
        found.append(level.name)
        delay_s -= level.delay_s
    return found


@pytest.mark.parametrize(
    ("delay_s", "passed"),
    [
        (0.0, []),
        (4.999, []),
        (5.0, ["5s"]),
        (17.0, ["10s", "5s"]),
        (3600.0, ["1h"]),
        (3599.0, ["45m", "10m", "2m", "2m", "30s", "10s", "10s", "5s"]),
    ],
)
def test_exact_takes_the_longest_level_that_ends_in_time(delay_s: float, passed: list[str]) -> None:
    assert path(delay_s) == passed
    assert levels("exact").hops(delay_s) == len(passed)


@pytest.mark.parametrize(
    ("delay_s", "passed"),
    [(-1.0, []), (0.0, []), (0.1, ["5s"]), (17.0, ["30s"]), (3 * 3600.0, ["2h", "1h"])],
)
def test_level_takes_the_shortest_one_that_is_long_enough(
    delay_s: float, passed: list[str]
) -> None:
    assert path(delay_s, "level") == passed


def test_thirty_days_take_the_longest_level_again_and_again() -> None:
    assert levels("exact").hops(30 * 86_400.0) == 360
    assert levels("level").hops(30 * 86_400.0) == 360
