"""Odd records: handlers and dead-letter copies see them byte for byte."""

from __future__ import annotations

import hashlib

import pytest

from tests.integration.conftest import ShopOn
from tests.integration.shop import Shop, fails_on
from window_consumer import Record
from window_consumer.kafka.embedded import NewRecord
from window_consumer.model import headers as names
from window_consumer.model.errors import Fatal
from window_consumer.model.record import Message

ALL_BYTES = bytes(range(256))
MANY = [(f"h{number % 50}", None if number % 3 else ALL_BYTES) for number in range(300)]

RECORDS = {
    "a tombstone": NewRecord(None, b"k"),
    "a tombstone without a key": NewRecord(None, None),
    "an empty value": NewRecord(b"", b"k"),
    "an empty key": NewRecord(b"v", b""),
    "no key": NewRecord(b"v", None),
    "bytes that are no text": NewRecord(ALL_BYTES, ALL_BYTES),
    "a value of 1 MB": NewRecord(ALL_BYTES * 3900, b"k"),
    "many headers, repeated names, no values": NewRecord(b"v", b"k", MANY),
    "empty headers": NewRecord(b"v", b"k", [("", b""), ("empty", b""), ("none", None)]),
}


def refuse(_: Record) -> None:
    raise Fatal("refused")


def users_own(message: Message) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in message.headers() if not name.startswith("wc-")]


@pytest.fixture
def odd(shop: ShopOn) -> Shop:
    orders = shop(1)
    orders.write(RECORDS.values())
    return orders


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_handlers_see_odd_records_byte_for_byte(odd: Shop, ordering: str) -> None:
    with odd.running(ordering=ordering, retry={"on_failure": "overtake"}):
        odd.until_committed()
    calls = sorted(odd.calls, key=lambda call: call.offset)
    for call, (name, record) in zip(calls, RECORDS.items(), strict=True):
        seen = call.key, call.value, call.headers
        assert seen == (record.key, record.value, list(record.headers)), name
    assert odd.violations() == []


def test_dead_letter_copies_of_odd_records_are_the_same_byte_for_byte(odd: Shop) -> None:
    odd.behave = refuse
    with odd.running():
        odd.until_committed()
    copies = {copied_offset(copy): copy for copy in odd.dead_letters()}
    assert len(copies) == len(RECORDS)
    for offset, (name, record) in enumerate(RECORDS.items()):
        copy = copies[offset]
        assert (copy.key(), copy.value()) == (record.key, record.value), name
        assert users_own(copy) == list(record.headers), name
    assert odd.violations(copies=True) == []


def copied_offset(copy: Message) -> int:
    return int(dict(copy.headers())[names.ORIGINAL_OFFSET])


def test_headers_of_ours_on_a_source_record_are_replaced_in_its_copy(shop: ShopOn) -> None:
    """Only the id, tags, sending time and redrives of others are honoured."""
    orders = shop(1)
    theirs = [("wc-attempts", b"77"), ("wc-reason", b"?"), ("wc-id", b"mine"), ("a", b"1")]
    orders.write([NewRecord(b"v", b"k", [*theirs, ("wc-tags", b"x,y")])])
    orders.behave = refuse
    with orders.running():
        orders.until_committed()
    (copy,) = orders.dead_letters()
    headers = copy.headers()
    ours = [name for name, _ in headers if name.startswith("wc-")]
    assert len(ours) == len(set(ours))
    by_name = dict(headers)
    assert (by_name["wc-attempts"], by_name["wc-reason"]) == (b"1", b"FATAL")
    assert (by_name["wc-id"], by_name["wc-tags"], by_name["a"]) == (b"mine", b"x,y", b"1")


def test_a_record_larger_than_the_memory_passes_alone(shop: ShopOn) -> None:
    """Three records of 9 MB, with 8 MiB for everything, between small ones that all pass, too."""
    orders = shop(1, {"max.message.bytes": "20000000"})
    sizes = [10, 9_000_000, 10, 9_000_000, 9_000_001, 10]
    orders.write(NewRecord(b"x" * size) for size in sizes)
    with orders.running(memory="8MiB"):
        orders.until_committed()
    seen = sorted((call.offset, len(call.value or b"")) for call in orders.calls)
    assert seen == list(enumerate(sizes))
    assert orders.violations() == []


def test_a_record_larger_than_the_memory_can_be_copied(shop: ShopOn) -> None:
    orders = shop(1, {"max.message.bytes": "20000000"})
    value = ALL_BYTES * 40_000
    orders.write([NewRecord(value, b"k")])
    orders.behave = fails_on(value)
    with orders.running(memory="8MiB", retry={"attempts": 1}):
        orders.until_committed()
    (copy,) = orders.dead_letters()
    assert hashlib.sha256(copy.value()).digest() == hashlib.sha256(value).digest()
