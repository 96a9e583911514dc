from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.runtime.calls.expiry import ExpiryRules, TtlHeader

NOW_MS = 1_795_262_400_000
RULES = ExpiryRules()

SECONDS = TtlHeader("ttl", 1.0, "int64be")
MILLISECONDS = TtlHeader("ttl", 0.001, "text")


@pytest.mark.parametrize(
    ("age_s", "overdue_s"), [(0, None), (34, None), (35, None), (35.001, 5.001), (90, 60)]
)
def test_a_record_is_expired_past_its_time_to_live_and_the_skew_of_clocks(
    age_s: float, overdue_s: float | None
) -> None:
    found = RULES.overdue_s(30, NOW_MS - round(age_s * 1000), NOW_MS)
    assert found == (None if overdue_s is None else pytest.approx(overdue_s))


@pytest.mark.parametrize("timestamp", [None, 0, -1, NOW_MS, NOW_MS + 1, NOW_MS * 2])
def test_a_record_without_a_time_or_with_one_in_the_future_never_expires(
    timestamp: int | None,
) -> None:
    assert RULES.overdue_s(0.001, timestamp, NOW_MS) is None


@pytest.mark.parametrize(
    ("header", "value", "ttl_s"),
    [
        (SECONDS, (30).to_bytes(8, "big"), 30),
        (SECONDS, (2**62).to_bytes(8, "big"), 2**62),
        (MILLISECONDS, b"1500", 1.5),
        (MILLISECONDS, b" 0.5 ", 0.0005),
        (TtlHeader("ttl", 3600.0, "text"), b"2", 7200),
    ],
)
def test_a_header_says_its_time_in_its_unit_and_form(
    header: TtlHeader, value: bytes, ttl_s: float
) -> None:
    assert header.ttl_s(value) == pytest.approx(ttl_s)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (SECONDS, b""),
        (SECONDS, b"30"),
        (SECONDS, (30).to_bytes(4, "big")),
        (SECONDS, (0).to_bytes(8, "big")),
        (SECONDS, (-1).to_bytes(8, "big", signed=True)),
        (MILLISECONDS, b""),
        (MILLISECONDS, b"0"),
        (MILLISECONDS, b"-5"),
        (MILLISECONDS, b"30s"),
        (MILLISECONDS, b"\xff\xfe"),
        (MILLISECONDS, (30).to_bytes(8, "big")),
        (MILLISECONDS, b"nan"),
        (MILLISECONDS, b"9" * 31),
    ],
)
def test_a_header_that_is_malformed_or_not_above_zero_says_nothing(
    header: TtlHeader, value: bytes
) -> None:
    assert header.ttl_s(value) is None


@given(st.binary(max_size=40), st.sampled_from([SECONDS, MILLISECONDS]), st.none() | st.integers())
def test_no_header_and_no_time_raises(value: bytes, header: TtlHeader, timestamp: Any) -> None:
    ttl_s = header.ttl_s(value)
    if ttl_s is not None:
        overdue_s = RULES.overdue_s(ttl_s, timestamp, NOW_MS)
        assert overdue_s is None or overdue_s > RULES.max_skew_s
