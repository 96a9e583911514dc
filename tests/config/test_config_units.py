from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.config import units
from window_consumer.config.units import UnitError

SECONDS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("1m", 60.0),
        ("2h", 7200.0),
        ("14d", 1209600.0),
        ("0", 0.0),
        ("0s", 0.0),
        ("0.1ms", 0.0001),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024B", 1024),
        ("500KiB", 512_000),
        ("64MiB", 67_108_864),
        ("1GiB", 1_073_741_824),
        ("1.5GiB", 1_610_612_736),
        ("10MB", 10_000_000),
        ("1TB", 10**12),
        ("0", 0),
    ],
)
def test_sizes_are_bytes_in_powers_of_1024_with_an_i_and_of_1000_without(
    text: str, size: int
) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "share"), [("50%", 0.5), ("100%", 1.0), ("12.5%", 0.125), ("0.1%", 0.001), ("0", 0.0)]
)
def test_percentages_are_shares_of_one(text: str, share: float) -> None:
    assert units.parse_percent(text) == share


@given(st.floats(min_value=0, max_value=1))
def test_a_formatted_percentage_parses_to_exactly_the_same_share(share: float) -> None:
    assert units.parse_percent(units.format_percent(share)) == share


@given(SECONDS)
def test_a_formatted_duration_parses_to_exactly_the_same_seconds(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=2**80))
def test_a_formatted_size_parses_to_exactly_the_same_bytes(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.tuples(SECONDS, SECONDS))
def test_a_formatted_range_parses_to_exactly_the_same_ends(ends: tuple[float, float]) -> None:
    lower, upper = sorted(ends)
    if lower > 0:
        text = units.format_duration_range((lower, upper))
        assert units.parse_duration_range(text) == (lower, upper)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "200ms"),
        (1.5, "1500ms"),
        (5.0, "5s"),
        (90.0, "90s"),
        (1209600.0, "14d"),
        (0, "0s"),
        (0.00025, "0.25ms"),
        (1.00025, "1.00025s"),
    ],
)
def test_durations_are_written_in_the_largest_unit_that_gives_a_whole_number(
    seconds: float, text: str
) -> None:
    assert units.parse_duration(text) == seconds
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(268_435_456, "256MiB"), (10_000_000, "10MB"), (1025, "1025B"), (0, "0B"), (10**9, "1GB")],
)
def test_sizes_are_written_in_the_largest_unit_that_gives_a_whole_number(
    size: int, text: str
) -> None:
    assert units.format_size(size) == text


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("5", "has no unit", "write 5ms or 5s"),
        ("5sec", "has the unknown unit 'sec'", "write 5s"),
        ("5x", "has the unknown unit 'x'", "units are ms, s, m, h, d"),
        ("-5s", "is negative", ""),
        ("1m30s", "is not a duration", ""),
        ("", "is not a duration", ""),
        ("5 s", "is not a duration", ""),
        ("\N{ARABIC-INDIC DIGIT FIVE}s", "is not a duration", ""),
        ("9" * 400 + "s", "is too large", ""),
        ("9" * 5000 + "s", "is too large", ""),
    ],
)
def test_what_is_no_duration_is_refused_with_what_was_meant(
    text: str, wrong: str, hint: str
) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_duration(text)
    assert (str(caught.value), caught.value.hint) == (wrong, hint)


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("50", "has no unit", "write 50%"),
        ("0.5", "has no unit", "write 50%"),
        ("50 %", "is not a percentage", ""),
        ("half", "is not a percentage", ""),
        ("-5%", "is negative", ""),
    ],
)
def test_what_is_no_percentage_is_refused_with_what_was_meant(
    text: str, wrong: str, hint: str
) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_percent(text)
    assert (str(caught.value), caught.value.hint) == (wrong, hint)


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("64", "has no unit", "write 64B or 64MiB"),
        ("64mib", "has the unknown unit 'mib'", "write 64MiB"),
        ("64M", "has the unknown unit 'M'", "write 64MiB"),
        ("0.3B", "is not a whole number of bytes", ""),
        ("lots", "is not a size", ""),
    ],
)
def test_what_is_no_size_is_refused_with_what_was_meant(text: str, wrong: str, hint: str) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_size(text)
    assert (str(caught.value), caught.value.hint) == (wrong, hint)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("5s", "does not have two ends"),
        ("5s..200ms", "has its ends in the wrong order"),
        ("0..5s", "begins at 0"),
        ("1..5s", "has an end, '1', that has no unit"),
        ("1s..", "has an end, '', that is not a duration"),
    ],
)
def test_what_is_no_range_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(UnitError, match=wrong.replace(".", r"\.")):
        units.parse_duration_range(text)
