"""``record.id`` and ``record.origin``: what a handler may use as an idempotency key."""

from __future__ import annotations

import pytest

from window_consumer.dlq.dead_letter import read_dead_letter
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.model.protocols import Headers
from window_consumer.model.record import Call, Record, TopicPartition
from window_consumer.testing.fakes.log import FakeMessage

FIRST: Headers = [
    ("wc-orig-topic", b"orders"),
    ("wc-orig-partition", b"2"),
    ("wc-orig-offset", b"7"),
    ("wc-format", b"1"),
]
LEVEL = "shop.orders.retry.10s"
SOURCE, COPY = RetryTopicLevel("orders"), RetryTopicLevel("orders", is_copy=True)


def delivered(
    headers: Headers, *, topic: str = "orders", retry_level: RetryTopicLevel = SOURCE
) -> Record:
    message = FakeMessage(TopicPartition(topic, 0), 40, b"k", b"v", headers)
    return Record.of(message, Call(before=retry_level.attempts_before))


def test_a_record_without_an_id_is_called_after_its_place() -> None:
    record = delivered([])
    assert record.id == "orders/0/40"
    assert (record.origin.topic, record.origin.partition, record.origin.offset) == ("orders", 0, 40)


def test_a_copy_keeps_id_and_origin_of_its_first_delivery() -> None:
    record = delivered([*FIRST, ("wc-id", b"orders/2/7")], topic=LEVEL, retry_level=COPY)
    assert (record.topic, record.offset) == (LEVEL, 40)
    assert record.id == "orders/2/7" == str(record.origin)
    assert record.origin == ("orders", 2, 7)


def test_the_producers_id_is_the_records() -> None:
    assert delivered([("wc-id", b"order-17")]).id == "order-17"
    assert (
        delivered([*FIRST, ("wc-id", b"order-17")], topic=LEVEL, retry_level=COPY).id == "order-17"
    )


def test_our_headers_on_a_topic_that_is_not_ours_mean_nothing_but_for_the_id() -> None:
    record = delivered([*FIRST, ("wc-id", b"order-17")])
    assert (record.id, str(record.origin)) == ("order-17", "orders/0/40")


def test_a_copy_that_lost_its_headers_is_a_record_of_the_topic_where_it_lies() -> None:
    for headers in ([], FIRST[:2], [*FIRST[:2], ("wc-orig-offset", b"seven")]):
        assert delivered(headers, topic=LEVEL, retry_level=COPY).id == f"{LEVEL}/0/40"


@pytest.mark.parametrize("retry_level", [SOURCE, COPY])
@pytest.mark.parametrize("ids", [[], [b"a"], [b""], [b"a", b"b"], [b"a", b""], [b"\xff\xfe"]])
def test_the_ladder_and_the_handler_agree(retry_level: RetryTopicLevel, ids: list[bytes]) -> None:
    """What is written into copies, counted and shown is what the handler was given."""
    record = delivered([*FIRST, *(("wc-id", each) for each in ids)], retry_level=retry_level)
    hop = retry_level.hop_of(record._message)
    assert hop.record_id.decode("utf-8", "backslashreplace") == record.id
    assert (*hop.origin, hop.offset) == record.origin
    if retry_level is COPY:
        assert read_dead_letter(record._message).id == record.id


def test_ids_that_are_no_text_still_differ() -> None:
    one, other = (delivered([("wc-id", each)]).id for each in (b"\xff", b"\xfe"))
    assert one != other
