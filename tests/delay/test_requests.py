"""What the headers of a record ask for, whatever a client in another language writes there."""

from __future__ import annotations

import traceback

import pytest

from window_consumer.delay.request import (
    DelayRequest,
    DelayUnreadable,
    TargetIsOurs,
    TargetNotAllowed,
    Targets,
    request_of,
)
from window_consumer.model.errors import NotCalled
from window_consumer.plan.ladder_topics import LadderNames

NOW_MS = 1_700_000_000_000
LARGEST = 2**63


def request_from(
    found: dict[str, bytes | None], to: bytes | None = b"orders", timestamp: int | None = NOW_MS
) -> DelayRequest:
    targets = Targets(("*",), LadderNames(("wc.delay",), frozenset({"shop.failed"})))
    return request_of({"wc-deliver-to": to, **found}, timestamp, targets)


@pytest.mark.parametrize(
    ("found", "at_ms"),
    [
        ({"wc-deliver-at": b"5"}, 5),
        ({"wc-deliver-at": b"0"}, 0),
        ({"wc-deliver-at": b"0007"}, 7),
        ({"wc-delay": b"0"}, NOW_MS),
        ({"wc-delay": b"250"}, NOW_MS + 250),
        ({"wc-deliver-at": b"5", "wc-delay": b"250"}, 5),
        ({"wc-deliver-at": b"5", "wc-delay": b"soon"}, 5),
        ({"wc-deliver-at": b"%d" % LARGEST}, LARGEST),
        ({"wc-delay": b"%d" % LARGEST}, NOW_MS + LARGEST),
    ],
)
def test_the_time_is_a_number_and_the_one_of_two_headers_that_is_absolute(
    found: dict[str, bytes | None], at_ms: int
) -> None:
    assert request_from(found) == DelayRequest("orders", at_ms)


@pytest.mark.parametrize("name", ["wc-deliver-at", "wc-delay"])
@pytest.mark.parametrize(
    "value",
    [None, b"", b"-1", b"+1", b" 1", b"1.5", b"1e3", b"30m", b"\xff\xfe", b"1" * 20, b"\xd9\xa1"],
)
def test_any_other_time_is_unreadable(name: str, value: bytes | None) -> None:
    with pytest.raises(DelayUnreadable):
        request_from({name: value})


def test_a_delay_needs_a_timestamp_and_a_time_does_not() -> None:
    with pytest.raises(DelayUnreadable):
        request_from({"wc-delay": b"1"}, timestamp=None)
    assert request_from({"wc-deliver-at": b"1"}, timestamp=None).at_ms == 1


@pytest.mark.parametrize(
    ("target", "error"),
    [
        (None, TargetNotAllowed),
        (b"", TargetNotAllowed),
        (b"two words", TargetNotAllowed),
        (b"\xff\xfe", TargetNotAllowed),
        (b"x" * 250, TargetNotAllowed),
        (b"..", TargetNotAllowed),
        (b"wc.delay", TargetIsOurs),
        (b"wc.delay.dlq", TargetIsOurs),
        (b"shop.failed", TargetIsOurs),
        (b"shop.orders.retry.10s", TargetIsOurs),
        (b"shop.orders.park", TargetIsOurs),
        (b"shop.dlq.state", TargetIsOurs),
    ],
)
def test_a_target_is_a_topic_of_others(target: bytes | None, error: type[NotCalled]) -> None:
    with pytest.raises(error):
        request_from({"wc-delay": b"1"}, to=target)


def test_refusing_a_target_again_and_again_takes_no_memory() -> None:
    targets = Targets((), LadderNames((), frozenset()))
    for _ in range(3):
        with pytest.raises(TargetNotAllowed) as caught:
            targets.check("orders")
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2
    for number in range(10):
        with pytest.raises(TargetNotAllowed):
            targets.check(f"{number}" * 1_000_000)
    assert len(targets._known) == 1
