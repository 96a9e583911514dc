"""The times of cron expressions, above all on the days when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest

from window_consumer.schedules.cron import Cron, CronError, zone_of

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def ticks(expression: str, zone: str, day: str, days: int = 1) -> list[str]:
    """Return the ticks of a day, in local time with its offset."""
    begin = datetime.fromisoformat(day).replace(tzinfo=zone_of(zone))
    end = (begin + timedelta(days=days)).astimezone(UTC)
    found: list[str] = []
    for tick in Cron(expression, zone).after(begin - timedelta(seconds=1)):
        if tick >= end:
            return found
        found.append(tick.astimezone(zone_of(zone)).strftime("%H:%M:%S%z"))
    return found


SPRING = [(BERLIN, "2026-03-29"), (NEW_YORK, "2026-03-08")]
AUTUMN = [(BERLIN, "2026-10-25"), (NEW_YORK, "2026-11-01")]


@pytest.mark.parametrize(("zone", "day"), SPRING)
@pytest.mark.parametrize("expression", ["0 2 * * *", "30 2 * * *", "15 30 2 * * *", "*/7 2 * * *"])
def test_what_falls_into_a_skipped_hour_ticks_once_after_it(
    expression: str, zone: str, day: str
) -> None:
    (tick,) = ticks(expression, zone, day)
    assert tick.startswith("03:00")


@pytest.mark.parametrize(("zone", "day"), AUTUMN)
def test_what_falls_into_a_repeated_hour_ticks_in_the_first_one(zone: str, day: str) -> None:
    hour = 2 if zone == BERLIN else 1
    first = "+0200" if zone == BERLIN else "-0400"
    assert ticks(f"30 {hour} * * *", zone, day) == [f"0{hour}:30:00{first}"]
    assert ticks(f"5 30 {hour} * * *", zone, day) == [f"0{hour}:30:05{first}"]
    assert len(ticks(f"* {hour} * * *", zone, day)) == 60


@pytest.mark.parametrize(("zone", "day"), [*SPRING, *AUTUMN])
def test_other_daily_times_are_as_on_any_day(zone: str, day: str) -> None:
    assert [each[:5] for each in ticks("0 0,4,12 * * *", zone, day)] == ["00:00", "04:00", "12:00"]


@pytest.mark.parametrize("expression", ["0 * * * *", "0 0-23 * * *", "0 */1 * * *", "0 0 * * * *"])
def test_an_expression_for_every_hour_stays_hourly(expression: str) -> None:
    for zone, day in (*SPRING, *AUTUMN):
        found = list(islice(Cron(expression, zone).after(at(f"{day}T00:00:00Z")), 24))
        assert {after - before for before, after in pairwise(found)} == {timedelta(hours=1)}


def test_every_minute_stays_every_minute() -> None:
    for zone, day in (*SPRING, *AUTUMN):
        found = list(islice(Cron("* * * * *", zone).after(at(f"{day}T00:00:00Z")), 600))
        assert {after - before for before, after in pairwise(found)} == {timedelta(minutes=1)}


def test_ticks_lie_behind_the_moment_also_within_a_repeated_hour() -> None:
    cron = Cron("30 2 * * *", BERLIN)
    first, second = at("2026-10-25T00:30:00Z"), at("2026-10-25T01:15:00Z")
    assert next(cron.after(first - timedelta(microseconds=1))) == first
    assert next(cron.after(first)) == at("2026-10-26T01:30:00Z")
    assert next(cron.after(second)) == at("2026-10-26T01:30:00Z")


@pytest.mark.parametrize(
    ("expression", "newest"),
    [
        ("* * * * * *", "2026-01-01T00:00:00Z"),
        ("*/5 * * * *", "2026-01-01T00:00:00Z"),
        ("30 * * * *", "2025-12-31T23:30:00Z"),
        ("30 7 * * *", "2025-12-31T07:30:00Z"),
        ("0 0 29 2 *", "2024-02-29T00:00:00Z"),
    ],
)
def test_the_newest_tick_is_found_however_long_ago_it_was(expression: str, newest: str) -> None:
    cron = Cron(expression)
    until = at("2026-01-01T00:00:00Z")
    assert cron.newest(at("2020-01-01T00:00:00Z"), until) == at(newest)
    assert cron.newest(at(newest), until) is None


@pytest.mark.parametrize(
    "expression", ["", "* * * *", "61 * * * *", "@daily", "0 0 31 4 *", "a b c d e", "0 0 0 1 1 8"]
)
def test_a_bad_expression_is_refused(expression: str) -> None:
    with pytest.raises(CronError):
        Cron(expression)


@pytest.mark.parametrize("zone", ["", "Europe/Nowhere", "../etc/passwd", "Europe"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(CronError):
        Cron("0 2 * * *", zone)
