from __future__ import annotations

import pytest
from attrs import evolve

from tests.dlq.memory import DEAD, ENTRY, Stored, letter
from window_consumer.dlq.redrive_copy import (
    DeadLetterHeaders,
    Destination,
    Returning,
    ValueReference,
)
from window_consumer.model.protocols import Copy

TO_ENTRY = Destination(ENTRY, 4, of_the_ladder=True)
TO_SOURCE = Destination("orders", 4, of_the_ladder=False)
USERS: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b"\xff"), ("", b"")]


def returned(record: Stored, value: bytes | None, to: Destination) -> Copy:
    return Returning(to).copy(record, DeadLetterHeaders(record), value)


def as_record(copy: Copy, offset: int = 0) -> Stored:
    return Stored((copy.topic, copy.partition or 0, offset), copy.key, copy.value, copy.headers)


def size_of(copy: Copy) -> int:
    return sum(len(name) + len(value or b"") for name, value in copy.headers)


def test_key_value_and_the_users_headers_stay_byte_for_byte() -> None:
    record = evolve(letter(7), its_headers=[*USERS, *letter(7).headers()[1:]])
    copy = returned(record, b"\x00\xfe", TO_ENTRY)
    assert (copy.key, copy.value) == (b"key 7", b"\x00\xfe")
    assert [pair for pair in copy.headers if not pair[0].startswith("wc-")] == USERS


@pytest.mark.parametrize("value", [b"", None])
def test_an_empty_value_stays_empty_and_a_missing_one_missing(value: bytes | None) -> None:
    assert returned(letter(7), value, TO_ENTRY).value == value


def test_what_stands_twice_in_our_headers_goes_back_once() -> None:
    record = evolve(letter(7), its_headers=[*USERS, ("wc-tags", b"eu"), ("wc-tags", b"us")])
    for to in (TO_ENTRY, TO_SOURCE):
        copy = returned(record, b"v", to)
        assert list(copy.headers) == [*USERS, ("wc-tags", b"us"), ("wc-redrives", b"1")]


def test_identity_and_history_stay_and_what_the_failure_said_goes() -> None:
    more = [("wc-tags", b"t"), ("wc-sent-at", b"9"), ("wc-level", b"10s"), ("wc-not-before", b"1")]
    more.append(("wc-orig-topic-id", b"topic-1"))
    copy = returned(letter(7, *more), b"v", TO_ENTRY)
    assert [pair for pair in copy.headers if pair[0].startswith("wc-")] == [
        ("wc-id", b"orders/1/7"),
        ("wc-orig-topic", b"orders"),
        ("wc-orig-partition", b"1"),
        ("wc-orig-offset", b"7"),
        ("wc-format", b"1"),
        ("wc-group", b"shop"),
        ("wc-attempts", b"3"),
        ("wc-first-failure", b"1700000000000"),
        ("wc-tags", b"t"),
        ("wc-sent-at", b"9"),
        ("wc-orig-topic-id", b"topic-1"),
        ("wc-redrives", b"1"),
    ]


def test_only_what_counts_there_goes_to_the_source_topic() -> None:
    copy = returned(letter(7, ("wc-tags", b"t")), b"v", TO_SOURCE)
    assert copy.headers == [
        ("user", b"\x00\xff"),
        ("wc-id", b"orders/1/7"),
        ("wc-tags", b"t"),
        ("wc-redrives", b"1"),
    ]


def test_redrives_are_counted_on_and_replaced() -> None:
    record = letter(7, ("wc-redrives", b"1"), ("wc-redrives", b"41"))
    assert DeadLetterHeaders(record).redrives == 41
    copy = returned(record, b"v", TO_ENTRY)
    assert [value for name, value in copy.headers if name == "wc-redrives"] == [b"42"]


def test_ten_returns_add_no_more_than_the_first() -> None:
    copy = returned(letter(7), b"v", TO_ENTRY)
    first = size_of(copy)
    for hop in range(9):
        copy = returned(as_record(copy, hop), b"v", TO_ENTRY)
    assert dict(copy.headers)["wc-redrives"] == b"10"
    assert size_of(copy) == first + 1  # the second digit


@pytest.mark.parametrize(
    ("headers", "to", "partition"),
    [
        ([("wc-orig-partition", b"3")], TO_ENTRY, 3),
        ([("wc-orig-partition", b"0")], TO_ENTRY, 0),
        ([("wc-orig-partition", b"3")], evolve(TO_ENTRY, partitions=8), 3),
        ([("wc-orig-partition", b"3")], evolve(TO_ENTRY, partitions=3), None),
        ([("wc-orig-partition", b"4")], TO_ENTRY, None),
        ([("wc-orig-partition", b"x")], TO_ENTRY, None),
        ([], TO_ENTRY, None),
    ],
)
def test_the_partition_of_the_original_is_kept_where_there_is_one(
    headers: list[tuple[str, bytes]], to: Destination, partition: int | None
) -> None:
    record = Stored((DEAD, 2, 7), b"k", b"v", headers)
    assert returned(record, b"v", to).partition == partition


def test_a_reference_is_read() -> None:
    text = b"shop.eu-orders/3/42 sha256:2c26b46b"
    assert DeadLetterHeaders(letter(7, ("wc-value-ref", text))).value_ref == text
    assert ValueReference.parse(text) == ValueReference("shop.eu-orders", 3, 42, "2c26b46b")
    assert DeadLetterHeaders(letter(7)).value_ref is None


@pytest.mark.parametrize(
    "text",
    [b"", b"orders", b"orders/1 sha256:ab", b"orders/1/x sha256:ab", b"/1/2 sha256:ab",
     b"orders/1/2", b"orders/1/2 sha256:", b"\xff/\xff"],
)  # fmt: skip
def test_what_is_no_reference_is_none(text: bytes) -> None:
    assert ValueReference.parse(text) is None
