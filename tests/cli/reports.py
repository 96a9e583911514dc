"""Findings on dead letters, for tests of their presentation."""

from __future__ import annotations

from typing import Any

from window_consumer.dlq.spark.findings import (
    HOUR_MS,
    SIDES,
    DeadLetterFindings,
    Example,
    FailureGroup,
    KeySpread,
    Share,
)

NOW_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS


def hours_ago(hours: float) -> int:
    return NOW_MS - round(hours * HOUR_MS)


def share(
    value: str | None, count: int = 10, first: float = 5, last: float = 0.1, **more: Any
) -> Share:
    return Share(
        value=value, count=count, first_ms=hours_ago(first), last_ms=hours_ago(last), **more
    )


def example(**changed: Any) -> Example:
    fields: dict[str, Any] = {
        "dead_letter": "shop-charge.orders.dlq/0/3",
        "id": "orders/0/17",
        "failed_ms": hours_ago(0.1),
        "handler": "charge",
        "version": "2",
        "host": "pod-1",
        "attempts": 3,
        "redrives": 0,
        "key": "c1",
        "error_message": "no card",
        "error_stack": "ValueError: no card\n  in charge\n",
        "headers": (("tenant", "eu"),),
        "value": None,
        "value_bytes": 38,
        **changed,
    }
    return Example(**fields)


def cause(*, sides: dict[str, tuple[Share, ...]] | None = None, **changed: Any) -> FailureGroup:
    fields: dict[str, Any] = {
        "fingerprint": "0123456789abcdef",
        "reason": "FATAL",
        "error_class": "shop.NoCard",
        "error_message": "no card",
        "count": 10,
        "failed_again": 0,
        "put_back": 0,
        "first_ms": hours_ago(5),
        "last_ms": hours_ago(0.1),
        "keys": KeySpread(distinct=2, count=10, without=0, top=(("c1", 9), ("c2", 1))),
        "periods": {hours_ago(5): 4, hours_ago(0): 6},
        "examples": (example(),),
        **changed,
    }
    reported = {
        **dict.fromkeys(SIDES, ()),
        "by": (share("window-consumer"),),
        "dead_letters": (share("shop-charge.orders.dlq"),),
        "version": (share("2", of="shop-charge"),),
        **(sides or {}),
    }
    return FailureGroup(sides=reported, **fields)


def findings(*causes: FailureGroup, **changed: Any) -> DeadLetterFindings:
    count = sum(each.count for each in causes)
    periods: dict[int, int] = {}
    for each in causes:
        for begin, number in each.periods.items():
            periods[begin] = periods.get(begin, 0) + number
    fields: dict[str, Any] = {
        "asked_ms": NOW_MS,
        "since_ms": None,
        "source": "the topics themselves",
        "count": count,
        "failed_again": sum(each.failed_again for each in causes),
        "put_back": sum(each.put_back or 0 for each in causes),
        "first_ms": hours_ago(5) if causes else None,
        "last_ms": hours_ago(0.1) if causes else None,
        "unreadable": 0,
        "distinct_causes": len(causes),
        "causes": causes,
        "period_ms": HOUR_MS,
        "periods": dict(sorted(periods.items())),
        "sides": causes[0].sides if causes else dict.fromkeys(SIDES, ()),
        "keys": KeySpread(
            distinct=1, count=count, without=0, top=(("c1", count),) if count else ()
        ),
        **changed,
    }
    return DeadLetterFindings(**fields)
