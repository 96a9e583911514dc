"""The header that says to which trace a record belongs."""

from __future__ import annotations

import pytest

from window_consumer.model import traceparent
from window_consumer.model.traceparent import TraceParent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01".encode()


def test_a_header_names_a_trace_and_a_span_and_says_whether_they_are_recorded() -> None:
    assert traceparent.read(SAMPLED) == TraceParent(int(TRACE, 16), int(SPAN, 16), sampled=True)
    unsampled = traceparent.read(SAMPLED[:-1] + b"2")
    assert unsampled is not None
    assert not unsampled.sampled


def test_a_later_version_may_say_more() -> None:
    assert traceparent.read(b"01" + SAMPLED[2:] + b"-more") == traceparent.read(SAMPLED)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"nonsense",
        SAMPLED[:-1],
        SAMPLED + b"-more",
        SAMPLED + b"0",
        SAMPLED.upper(),
        b"ff" + SAMPLED[2:],
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        b"\xff" * 55,
    ],
)
def test_what_is_no_such_header_says_nothing(value: bytes | None) -> None:
    assert traceparent.read(value) is None


def test_the_last_of_several_counts() -> None:
    headers = [("traceparent", b"first"), ("x", b"y"), ("traceparent", SAMPLED), ("z", None)]
    assert traceparent.value_of(headers) == SAMPLED
    assert traceparent.value_of([("x", b"y")]) is None
    assert traceparent.value_of(None) is None


def test_one_digit_tells_whether_a_value_is_worth_reading() -> None:
    for flags in range(256):
        value = SAMPLED[:-2] + f"{flags:02x}".encode()
        read = traceparent.read(value)
        assert read is not None
        assert traceparent.may_be_sampled(value) == read.sampled == bool(flags & 1)
    assert not traceparent.may_be_sampled(None)
    assert not traceparent.may_be_sampled(value[:40])
