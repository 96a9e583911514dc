"""Dead-letter topics that do not take a copy: its record stays open, the offset is held."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ShopOn
from tests.integration.shop import DEADLINE_S, Shop, fails_on
from window_consumer import Record
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode, NewRecord
from window_consumer.model.errors import Fatal, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.guarantees import NoDuplicates

LIMIT = 6_000
POISON = b"p" * 10_000
"""Too large for a dead-letter topic that takes ``LIMIT`` bytes."""

TOO_LARGE = "[0]@1 "

ONCE = {"attempts": 1}

QUICK: dict[str, Any] = {
    "producer": {
        "topic.metadata.refresh.interval.ms": 500,
        "topic.metadata.propagation.max.ms": 500,
        "message.timeout.ms": 2000,
    }
}
"""What the client waits for by itself before it gives a copy up, shortened."""


def small(shop: ShopOn, *values: bytes) -> Shop:
    """An application with these records whose dead-letter topic takes only small ones."""
    orders = shop(1)
    orders.create_topic(orders.dlq, config={"max.message.bytes": str(LIMIT)})
    orders.write(NewRecord(value, b"k%d" % n) for n, value in enumerate(values))
    return orders


def fails_at_length(record: Record) -> None:
    """Fail with the longest stack and message that a copy carries."""
    dig(record, 200)


def dig(record: Record, depth: int) -> None:
    if depth:
        dig_on(record, depth - 1)
    raise Fatal("because " * 1000 + str(record.offset))


def dig_on(record: Record, depth: int) -> None:
    dig(record, depth)


def test_stack_and_message_are_left_out_of_a_copy_before_its_value_is(shop: ShopOn) -> None:
    value = b"v" * (LIMIT - 2_000)
    orders = small(shop, value)
    orders.behave = fails_at_length
    with orders.running():
        orders.until_committed()
    (copy,) = orders.dead_letters()
    headers = dict(copy.headers())
    assert copy.value() == value
    assert headers["wc-error-class"] == b"window_consumer.model.errors.Fatal"
    assert not {"wc-error-stack", "wc-error-message"} & headers.keys()
    assert orders.violations(copies=True) == []


def test_stack_and_message_are_bounded_where_they_fit(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce([1])
    orders.behave = fails_at_length
    with orders.running():
        orders.until_committed()
    headers = dict(orders.dead_letters()[0].headers())
    assert 3000 < len(headers["wc-error-stack"]) <= 4096
    assert 1000 < len(headers["wc-error-message"]) <= 1024


def test_a_copy_that_is_too_large_is_held_until_its_topic_takes_it(shop: ShopOn) -> None:
    orders = small(shop, b"1", POISON, b"2", b"3")
    orders.behave = fails_on(POISON)
    with orders.running(retry={**ONCE, "on_oversize": "hold"}):
        orders.until_logged(LogEvent.COPY_REFUSED, about=TOO_LARGE)
        orders.until_open(1)
        assert orders.dead_letters() == []
        orders.set_topic(orders.dlq, "max.message.bytes", "20000")
        orders.until_committed()
    assert [copy.value() for copy in orders.dead_letters()] == [POISON]
    assert orders.violations(NoDuplicates(), copies=True) == []


def test_a_copy_that_is_too_large_is_held_over_a_restart(shop: ShopOn) -> None:
    orders = small(shop, b"1", POISON, b"2", b"3")
    orders.behave = fails_on(POISON)
    with orders.running(retry=ONCE):
        orders.until_logged(LogEvent.COPY_REFUSED, about=TOO_LARGE)
        orders.until_open(1)
    with orders.running(retry=ONCE):
        orders.until_logged(LogEvent.COPY_REFUSED, about=TOO_LARGE, times=2)
    assert orders.uncovered() == [1]
    assert orders.places(since=4) == [(0, 1)]


def test_a_copy_that_is_too_large_can_stop_the_worker(shop: ShopOn) -> None:
    orders = small(shop, b"1", POISON)
    orders.behave = fails_on(POISON)
    stopped = rf"the copy of {orders.topic}\[0\]@1 is too large and on_oversize is stop"
    with (
        pytest.raises(WorkerStoppedError, match=stopped),
        orders.running(retry={**ONCE, "on_oversize": "stop"}) as running,
    ):
        assert running.wait(DEADLINE_S)
    assert orders.uncovered() == [1]
    assert orders.dead_letters() == []


def test_a_copy_that_is_too_large_can_refer_to_its_record(shop: ShopOn) -> None:
    orders = small(shop, b"1", POISON, b"2")
    orders.behave = fails_on(POISON)
    with orders.running(retry={**ONCE, "on_oversize": "reference"}):
        orders.until_committed()
    (copy,) = orders.dead_letters()
    headers = dict(copy.headers())
    reference = f"{orders.topic}/0/1 sha256:{sha256(POISON).hexdigest()}"
    assert headers["wc-value-ref"] == reference.encode()
    assert (copy.key(), copy.value()) == (b"k1", None)
    assert orders.violations(NoDuplicates(), copies=True) == []


def test_records_wait_while_their_dead_letter_topic_is_gone(shop: ShopOn) -> None:
    """One copy was written before: the producer knows the topic, and the broker the producer."""
    orders = shop(1)
    orders.behave = fails_on(b"bad", b"worse", b"worst")
    orders.write([NewRecord(b"bad")])
    with orders.running(retry=ONCE, kafka=QUICK):
        orders.until_committed()
        orders.delete_topic(orders.dlq)
        orders.write([NewRecord(b"worse"), NewRecord(b"good"), NewRecord(b"worst")])
        orders.until_logged(LogEvent.COPY_REFUSED)
        orders.until_open(1, 3)
        orders.create_topic(orders.dlq)
        orders.until_committed()
    assert sorted(copy.value() for copy in orders.dead_letters()) == [b"worse", b"worst"]


def test_records_wait_while_their_dead_letter_topic_takes_no_records(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 1)
    orders = Shop(embedded.client_settings(), "orders", "shop", tmp_path)
    embedded.create_topic(orders.dlq, 1)
    orders.behave = fails_on(b"bad")
    refusals = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.MESSAGE_TOO_LARGE]
    orders.write([NewRecord(b"bad"), NewRecord(b"good")])
    embedded.push_request_errors(ApiKey.PRODUCE, *refusals)
    with orders.running(retry=ONCE):
        orders.until_logged(LogEvent.COPY_REFUSED, about="TOPIC_AUTHORIZATION_FAILED")
        orders.until_committed()
    assert [copy.value() for copy in orders.dead_letters()] == [b"bad"]
    assert orders.violations(NoDuplicates(), copies=True) == []
