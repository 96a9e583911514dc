from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note, failure
from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of, cut, cut_front
from window_consumer.engine.retry.failed_record import Detail, FailedRecord
from window_consumer.engine.retry.policy import Spent
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.model.fault import Fault
from window_consumer.model.headers import Reason
from window_consumer.model.protocols import Copy

ORIGIN = CopyOrigin("shop-charge", "charge", "1.2.3")
TARGET = Target("shop-charge.orders.dlq", partitions=4, source_partitions=4)
USERS: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b"\xff"), ("", b"")]


def a_failed(message: Any = None, **fields: Any) -> FailedRecord:
    partition = Driven().engine.partitions[ORDERS]
    record = FailedRecord(
        partition,
        Note(7, b"k", headers=USERS) if message is None else message,
        seq=0,
        lane=None,
        attempts=3,
        failure=failure(),
        first_failure=100.0,
        last_failure=101.5,
        spent=Spent(Reason.RETRIES_EXHAUSTED),
    )
    return evolve(record, **fields)


def copied(failed: FailedRecord, target: Target = TARGET) -> Copy:
    return copy_of(failed, ORIGIN, target, wall_offset_ms=1_700_000_000_000)


def headers_of(copy: Copy) -> dict[str, bytes | None]:
    ours = [(name, value) for name, value in copy.headers if name.startswith("wc-")]
    assert len(ours) == len(dict(ours)), "each of our headers stands once"
    return dict(ours)


def test_key_value_and_the_users_headers_stay_byte_for_byte() -> None:
    copy = copied(a_failed())
    assert (copy.key, copy.value) == (b"k", b"v" * 10)
    assert [pair for pair in copy.headers if not pair[0].startswith("wc-")] == USERS


def test_our_headers_say_where_from_who_why_and_when() -> None:
    assert headers_of(copied(a_failed())) == {
        "wc-id": b"orders/0/7",
        "wc-orig-topic": b"orders",
        "wc-orig-partition": b"0",
        "wc-orig-offset": b"7",
        "wc-orig-timestamp": b"1700000000000",
        "wc-format": b"1",
        "wc-group": b"shop-charge",
        "wc-handler": b"charge",
        "wc-app-version": b"1.2.3",
        "wc-reason": b"RETRIES_EXHAUSTED",
        "wc-error-class": b"ValueError",
        "wc-error-message": b"broken",
        "wc-error-stack": b"",
        "wc-error-fingerprint": b"f",
        "wc-attempts": b"3",
        "wc-first-failure": b"1700000100000",
        "wc-last-failure": b"1700000101500",
    }


@pytest.mark.parametrize("carried", [None, b"topic-1"])
def test_the_topics_id_goes_along_from_the_first_copy_on_and_is_never_replaced(
    carried: bytes | None,
) -> None:
    failed = a_failed(Note(7, headers=[("wc-orig-topic-id", b"of another system")]))
    failed.partition.topic_id = "topic-1"
    first = copied(failed)
    assert headers_of(first)["wc-orig-topic-id"] == b"topic-1"
    headers = {**headers_of(first), "wc-orig-topic-id": carried}
    again = a_failed(Note(8, headers=[pair for pair in headers.items() if pair[1]]))
    again.partition.topic_id = "of the level"
    again.partition.retry_level = RetryTopicLevel("orders", Level("10s", 10.0), is_copy=True)
    assert headers_of(copied(again)).get("wc-orig-topic-id") == carried


def test_the_producers_own_id_is_kept() -> None:
    message = Note(7, headers=[("wc-id", b"order-17"), ("wc-tags", b"eu")])
    headers = headers_of(copied(a_failed(message)))
    assert (headers["wc-id"], headers["wc-tags"]) == (b"order-17", b"eu")


def test_of_what_a_producer_says_twice_in_our_headers_the_last_counts() -> None:
    twice = [("wc-tags", b"eu"), ("x", b"1"), ("wc-tags", b"us"), ("x", b"1")]
    copy = copied(a_failed(Note(7, headers=twice)))
    assert headers_of(copy)["wc-tags"] == b"us"
    assert [pair for pair in copy.headers if pair[0] == "x"] == [("x", b"1")] * 2


def test_headers_of_an_earlier_hop_are_replaced_not_appended() -> None:
    message = Note(7, headers=[("x", b"1"), ("wc-attempts", b"99"), ("wc-reason", b"EXPIRED")])
    once = copied(a_failed(message))
    again = copied(a_failed(Note(8, headers=list(once.headers))))
    assert headers_of(again)["wc-attempts"] == b"3"
    assert len(again.headers) == len(once.headers)


@pytest.mark.parametrize(("partitions", "number"), [(4, 2), (8, 2), (3, 2), (2, None)])
def test_a_copy_keeps_its_sources_partition_number_where_there_is_one(
    partitions: int, number: int | None
) -> None:
    message = Note(7, b"k", partition=2)
    target = evolve(TARGET, partitions=partitions)
    assert copied(a_failed(message), target).partition == number


def test_tombstones_and_empty_values_stay_what_they_are() -> None:
    assert copied(a_failed(Note(7, value=None))).value is None
    assert copied(a_failed(Note(7, value=b""))).value == b""


def test_long_texts_are_cut_to_their_bounds_and_the_innermost_frames_kept() -> None:
    fault = Fault("E", "ä" * 5000, "outer\n" * 5000 + "inner", "f")
    headers = headers_of(copied(a_failed(failure=evolve(failure(), fault=fault))))
    message, stack = headers["wc-error-message"] or b"", headers["wc-error-stack"] or b""
    assert len(message) <= 1024
    assert len(stack) <= 4096
    assert stack.endswith(b"inner")
    assert message.decode() == "ä" * 512


def test_a_copy_that_was_too_large_comes_without_the_errors_texts_but_whole() -> None:
    copy = copied(a_failed(detail=Detail.WITHOUT_ERROR_TEXTS))
    assert not {"wc-error-message", "wc-error-stack"} & headers_of(copy).keys()
    assert copy.value == b"v" * 10


def test_a_reference_points_at_the_value_and_proves_it() -> None:
    copy = copied(a_failed(detail=Detail.REFERENCE))
    digest = sha256(b"v" * 10).hexdigest()
    assert copy.value is None
    assert headers_of(copy)["wc-value-ref"] == f"orders/0/7 sha256:{digest}".encode()


@given(st.text(max_size=300), st.integers(4, 200))
def test_cutting_tears_no_character(text: str, max_bytes: int) -> None:
    data = text.encode("utf-8", "replace")
    for part in (cut(text, max_bytes), cut_front(text, max_bytes)):
        assert len(part) <= max_bytes
        part.decode()
    assert data.startswith(cut(text, max_bytes))
    assert data.endswith(cut_front(text, max_bytes))


@pytest.mark.parametrize("attempts", [1, 1000])
def test_attempts_are_written_in_decimal(attempts: int) -> None:
    copy = copied(a_failed(attempts=attempts))
    assert headers_of(copy)["wc-attempts"] == str(attempts).encode()
