from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.engine.support import Note
from tests.golden_texts import Golden
from window_consumer import Condition, header, key, timestamp, topic
from window_consumer.model.conditions.expressions import parse
from window_consumer.model.conditions.lookup import RECORD_FIELDS, RecordLookup
from window_consumer.model.record import Call, Record

WRITTEN = datetime.fromtimestamp(1_700_000_000, UTC)
"""The timestamp of a Note."""


def holds(condition: Condition, note_key: bytes | None = b"k", **fields: Any) -> bool:
    record = Record.of(Note(0, note_key, **fields), Call())
    lookup = RecordLookup(record, lambda name: name.startswith("g."), lambda: 1_700_000_060_000)
    return condition.holds(lookup)


@pytest.mark.parametrize(
    "condition",
    [
        header("type") == "paid",
        header("type") != "other",
        header("type") == b"paid",
        header("count") == 3,
        header("count") > 2.5,
        header("missing") == None,  # noqa: E711 - a condition, no comparison
        header("flag") == True,  # noqa: E712 - a condition, no comparison
        header("type").is_in(["other", "paid"]),
        header("type").contains("ai"),
        header("type").startswith("p") & header("type").endswith("d"),
        header("type").matches("p*d"),
        ~(header("type") == "other"),
        (header("type") == "other") | (key == "k"),
        key <= "k",
        timestamp == WRITTEN,
        timestamp >= "2023-11-14T22:13:20",
        timestamp < 1_700_000_000_001,
        timestamp.is_in([WRITTEN]),
        topic == "orders",
        header("type") != header("count"),
        header("odd") == "\\xff",
    ],
    ids=str,
)
def test_a_condition_holds_as_it_reads_and_its_text_is_the_same_condition(
    condition: Condition,
) -> None:
    headers = [("type", b"other"), ("type", b"paid"), ("count", b"3"), ("flag", b"true")]
    odd = ("odd", b"\xff")
    assert holds(condition, headers=[*headers, odd])
    assert not holds(~condition, headers=[*headers, odd])
    assert parse(str(condition), RECORD_FIELDS) == condition.expression


def test_a_copy_says_what_its_first_delivery_said() -> None:
    ours = [("wc-orig-topic", b"orders"), ("wc-orig-timestamp", b"1600000000000")]
    first = (topic == "orders") & (timestamp == 1_600_000_000_000)
    assert holds(first, topic="g.orders.retry.10s", headers=ours)
    assert not holds(first, topic="others", headers=ours)


NUMBER: Any = 3
FUNCTION: Any = len


@pytest.mark.parametrize(
    "make",
    [
        lambda: bool(header("a") == "b"),
        lambda: (header("a") == "b") and (key == "c"),
        lambda: "a" < key < "c",
        lambda: bool(key),
        lambda: key == object(),
        lambda: key < None,
        lambda: key > True,
        lambda: key.is_in("abc"),
        lambda: key.contains(NUMBER),
        lambda: timestamp.contains("2"),
        lambda: timestamp == "yesterday",
        lambda: timestamp == True,  # noqa: E712 - a condition, no comparison
        lambda: (key == "a") & FUNCTION,
        lambda: {key: 1},
    ],
)
def test_what_is_no_condition_is_refused_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def test_joining_with_and_says_what_to_write(golden: Golden) -> None:
    with golden.raises(TypeError):
        bool(header("a") == "b")


def test_a_condition_that_can_never_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="empty list"):
        key.is_in([])
