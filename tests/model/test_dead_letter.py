from __future__ import annotations

import struct
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.support import Note
from tests.engine.test_copies import USERS, a_failed, copied
from tests.golden_texts import Golden
from window_consumer.dlq.dead_letter import DeadLetter, Position, WrittenBy, read_dead_letter
from window_consumer.dlq.foreign import FORMATS
from window_consumer.engine.retry.failed_record import Detail
from window_consumer.model.fault import Fault, place_in
from window_consumer.model.protocols import Copy

Headers = list[tuple[str, bytes | None]]

JAVA_STACK = """java.lang.IllegalStateException: no card 17
\tat com.shop.Cards.find(Cards.java:31)
\tat com.shop.Charge.lambda$on$3(Charge.java:12)
\tat app//com.shop.Charge$$Lambda$14/0x0000000800c03000.apply(Unknown Source)
Caused by: java.io.IOException: closed
\tat com.shop.Wire.read(Wire.java:5)
\t... 12 more
"""


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def int64(number: int) -> bytes:
    return struct.pack(">q", number)


SPRING: Headers = [
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailed"),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"no card 17"),
    ("kafka_dlt-exception-stacktrace", JAVA_STACK.encode()),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", int32(3)),
    ("kafka_dlt-original-offset", int64(5_000_000_000)),
    ("kafka_dlt-original-timestamp", int64(1_700_000_000_000)),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"shop"),
    ("retry_topic-attempts", int32(4)),
]
SPRINGS_RETRYABLE_TOPIC: Headers = [
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", int32(3)),
    ("kafka_original-offset", int64(5_000_000_000)),
    ("kafka_original-timestamp", int64(1_700_000_000_000)),
    ("kafka_original-timestamp-type", b"CreateTime"),
    ("kafka_original-consumer-group", b"shop"),
    ("retry_topic-original-timestamp", bytes.fromhex("018bcfe56800")),
    ("retry_topic-attempts", int32(2)),
    ("retry_topic-backoff-timestamp", bytes.fromhex("018bcfe56be8")),
    ("retry_topic-attempts", int32(3)),
    ("retry_topic-backoff-timestamp", bytes.fromhex("018bcfe56fd0")),
    (
        "kafka_exception-fqcn",
        b"org.springframework.kafka.listener.ListenerExecutionFailedException",
    ),
    ("kafka_exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_exception-message", b"Listener failed; no card 17"),
    ("kafka_exception-stacktrace", JAVA_STACK.encode()),
    ("retry_topic-attempts", int32(4)),
]
"""As @RetryableTopic writes it; the number of attempts counts the one that would come next."""
CONNECT: Headers = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"5000000000"),
    ("__connect.errors.connector.name", b"to-s3"),
    ("__connect.errors.task.id", b"1"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"no JSON"),
    ("__connect.errors.exception.stacktrace", JAVA_STACK.encode()),
]
STREAMS: Headers = [
    ("__streams.errors.exception", b"java.lang.IllegalStateException: no card 17"),
    ("__streams.errors.message", b"no card 17"),
    ("__streams.errors.stacktrace", JAVA_STACK.encode()),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"3"),
    ("__streams.errors.offset", b"5000000000"),
]
SHARE_GROUP: Headers = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"5000000000"),
    ("__dlq.errors.group", b"shop"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"rejected"),
]
KPIPE: Headers = [
    ("x-dlq-exception-class", b"java.lang.IllegalStateException"),
    ("x-dlq-exception-message", b"no card 17"),
    ("x-dlq-source-topic", b"orders"),
    ("x-dlq-source-partition", b"3"),
    ("x-dlq-source-offset", b"5000000000"),
    ("x-dlq-source-timestamp", b"1700000000000"),
]
FOREIGN = {
    WrittenBy.SPRING: SPRING,
    WrittenBy.KAFKA_CONNECT: CONNECT,
    WrittenBy.KAFKA_STREAMS: STREAMS,
    WrittenBy.SHARE_GROUP: SHARE_GROUP,
    WrittenBy.KPIPE: KPIPE,
}


def read(headers: Headers | None, **fields: Any) -> DeadLetter:
    letter = {"key": b"k", "topic": "dead", "partition": 1, "headers": headers, **fields}
    return read_dead_letter(Note(9, **letter))


def read_copy(copy: Copy, **fields: Any) -> DeadLetter:
    return read(list(copy.headers), topic=copy.topic, value=copy.value, **fields)


def test_what_the_copied_a_failed_record_says_is_read_back() -> None:
    letter = read_copy(copied(a_failed()))
    assert letter.written_by is WrittenBy.WINDOW_CONSUMER
    assert letter.position == Position("shop-charge.orders.dlq", 1, 9)
    assert (letter.id, letter.original) == ("orders/0/7", Position("orders", 0, 7))
    assert letter.original_timestamp == 1_700_000_000_000
    assert (letter.key, letter.value) == (b"k", b"v" * 10)
    assert (letter.group, letter.handler, letter.app_version) == ("shop-charge", "charge", "1.2.3")
    assert (letter.reason, letter.attempts, letter.redrives) == ("RETRIES_EXHAUSTED", 3, 0)
    assert (letter.error_class, letter.error_message) == ("ValueError", "broken")
    assert letter.fingerprint == "f"
    assert (letter.first_failure, letter.last_failure) == (1_700_000_100_000, 1_700_000_101_500)
    assert letter.failed_at == letter.last_failure
    assert letter.value_ref is None


def test_the_records_own_headers_come_back_as_they_were_sent() -> None:
    assert read_copy(copied(a_failed())).own_headers == USERS
    producers: Headers = [("wc-id", b"order-17"), ("wc-tags", b"eu"), *USERS, ("wc-redrives", b"2")]
    letter = read_copy(copied(a_failed(Note(7, headers=producers))))
    assert sorted(letter.own_headers, key=str) == sorted(producers[:-1], key=str)
    assert (letter.id, letter.redrives) == ("order-17", 2)


def test_a_reference_to_a_value_is_read() -> None:
    letter = read_copy(copied(a_failed(detail=Detail.REFERENCE)))
    assert letter.value is None
    assert (letter.value_ref or "").startswith("orders/0/7 sha256:")


@given(st.text(), st.text(), st.integers(1, 10**6))
def test_any_text_of_an_error_survives_the_way(message: str, name: str, attempts: int) -> None:
    fault = Fault(name.encode("utf-8", "replace").decode(), message[:200], "stack", "f")
    failed = a_failed(attempts=attempts)
    letter = read_copy(copied(evolve(failed, failure=evolve(failed.failure, fault=fault))))
    assert (letter.error_class or "") == fault.error_class
    assert (letter.error_message or "") == fault.message.encode("utf-8", "replace").decode()
    assert letter.attempts == attempts


@pytest.mark.parametrize(("writer", "headers"), FOREIGN.items(), ids=list(FOREIGN))
def test_others_dead_letters_tell_where_the_record_was(writer: WrittenBy, headers: Headers) -> None:
    own: Headers = [("tenant", b"eu"), ("empty", None)]
    letter = read([*own, *headers])
    assert letter.written_by is writer
    assert letter.original == Position("orders", 3, 5_000_000_000)
    assert letter.id == "orders/3/5000000000"
    assert letter.own_headers == own
    assert letter.error_message
    assert letter.failed_at == 1_700_000_000_000


def test_springs_tell_the_handlers_exception_and_not_the_one_around_it() -> None:
    letter = read(SPRING)
    assert (letter.error_class, letter.group) == ("java.lang.IllegalStateException", "shop")
    assert (letter.attempts, letter.reason) == (3, None)
    assert letter.original_timestamp == 1_700_000_000_000
    undecoded = b"org.springframework.kafka.support.serializer.DeserializationException"
    letter = read([("kafka_dlt-exception-fqcn", undecoded), *SPRING[1:]])
    assert (letter.error_class, letter.reason) == (undecoded.decode(), "DECODE")


def test_a_record_that_spring_moved_twice_tells_its_first_place_and_its_last_error() -> None:
    again: Headers = [
        ("kafka_dlt-original-topic", b"orders-retry"),
        ("kafka_dlt-original-partition", int32(0)),
        ("kafka_dlt-original-offset", int64(1)),
        ("kafka_dlt-exception-fqcn", b"java.lang.Error"),
    ]
    letter = read([*SPRING, *again])
    assert letter.original == Position("orders", 3, 5_000_000_000)
    assert letter.error_class == "java.lang.Error"


def test_what_spring_gives_up_after_retry_topics_is_read_although_its_headers_are_others() -> None:
    letter = read([("tenant", b"eu"), *SPRINGS_RETRYABLE_TOPIC])
    assert letter.written_by is WrittenBy.SPRING
    assert letter.original == Position("orders", 3, 5_000_000_000)
    assert (letter.original_timestamp, letter.group) == (1_700_000_000_000, "shop")
    assert letter.error_class == "java.lang.IllegalStateException"
    assert letter.error_message == "Listener failed; no card 17"
    assert letter.fingerprint == read(SPRING).fingerprint
    assert letter.attempts == 3
    assert letter.own_headers == [("tenant", b"eu")]
    old = [*SPRINGS_RETRYABLE_TOPIC, ("retry_topic-attempts", b"\xc8")]
    assert read(old).attempts == 199


@pytest.mark.parametrize("family", ["kafka_dlt-", "kafka_"])
def test_a_key_that_spring_could_not_read_is_an_error_of_its_own(
    family: str, golden: Golden
) -> None:
    name = b"org.springframework.kafka.support.serializer.DeserializationException"
    headers: Headers = [
        (f"{family}original-topic", b"orders"),
        (f"{family}key-exception-fqcn", name),
        (f"{family}key-exception-message", b"failed to deserialize"),
        (f"{family}key-exception-stacktrace", JAVA_STACK.encode()),
    ]
    letter = read(headers)
    assert (letter.error_class, letter.reason) == (name.decode(), "DECODE")
    golden(letter.error_message)
    assert letter.fingerprint is not None
    assert letter.own_headers == []


def test_connects_tell_connector_task_and_stage() -> None:
    letter = read(CONNECT)
    assert (letter.handler, letter.reason) == ("to-s3-1", "DECODE")
    assert letter.error_class == "org.apache.kafka.connect.errors.DataException"
    letter = read([*CONNECT, ("__connect.errors.stage", b"TASK_PUT")])
    assert letter.reason is None


def test_streams_write_class_and_message_as_one_text() -> None:
    assert read(STREAMS).error_class == "java.lang.IllegalStateException"
    plain: Headers = [("__streams.errors.exception", b"java.lang.Error")]
    assert read(plain).error_class == "java.lang.Error"


def test_share_groups_tell_how_often_a_record_was_delivered() -> None:
    letter = read(SHARE_GROUP)
    assert (letter.group, letter.attempts) == ("shop", 5)
    assert letter.fingerprint is None


def test_only_a_share_groups_empty_record_may_stand_for_one_that_is_elsewhere() -> None:
    assert read(SHARE_GROUP, key=None, value=None).may_be_pointer
    assert not read(SHARE_GROUP, key=b"k", value=None).may_be_pointer
    assert not read(SHARE_GROUP[1:], key=None, value=None).may_be_pointer
    assert not read(CONNECT, key=None, value=None).may_be_pointer


def test_foreign_errors_from_one_place_share_a_fingerprint_over_versions_and_processes() -> None:
    other = (
        JAVA_STACK.replace(":31)", ":44)")
        .replace("no card 17", "no card 4")
        .replace("Lambda$14/0x0000000800c03000", "Lambda/0x00007f1f")
        .replace("lambda$on$3", "lambda$on$5")
    )
    one = read(SPRING).fingerprint
    assert one is not None
    assert read([*SPRING, ("kafka_dlt-exception-stacktrace", other.encode())]).fingerprint == one
    elsewhere = JAVA_STACK.replace("Cards.find", "Cards.list").encode()
    assert read([*SPRING, ("kafka_dlt-exception-stacktrace", elsewhere)]).fingerprint != one
    assert read([*SPRING, ("kafka_dlt-exception-cause-fqcn", b"x.Y")]).fingerprint != one


def test_the_place_of_an_error_is_found_in_stacks_of_java_and_python() -> None:
    assert place_in(JAVA_STACK) == (
        "com.shop.Cards.find|com.shop.Charge.lambda$on$|com.shop.Charge$$Lambda.apply"
        "|java.io.IOException|com.shop.Wire.read"
    )
    assert place_in('  File "/srv/app/shop.py", line 3, in charge\n    pay()\n') == "shop.py:charge"
    assert place_in("no stack") == ""


def test_who_wrote_last_is_believed() -> None:
    ours = list(copied(a_failed()).headers)
    assert read([*SPRING, *ours]).written_by is WrittenBy.WINDOW_CONSUMER
    assert read([*ours, *SPRING]).written_by is WrittenBy.SPRING
    assert SPRING[0] in read([*SPRING, *ours]).own_headers


@pytest.mark.parametrize("headers", [None, [], [("tenant", b"eu")], [("wc-reason", b"FATAL")]])
def test_a_record_that_nobody_marked_comes_out_as_unknown(headers: Headers | None) -> None:
    letter = read(headers)
    assert letter.written_by is WrittenBy.UNKNOWN
    assert (letter.id, letter.original, letter.reason) == ("dead/1/9", None, None)
    assert letter.own_headers == (headers or [])


ALL_NAMES = sorted(
    {name for name, _ in copied(a_failed()).headers if name}
    | {name for headers in FOREIGN.values() for name, _ in headers}
    | set(FORMATS)
    | {"wc-redrives", "wc-level", "wc-value-ref"}
)
VALUES = (
    st.none() | st.binary(max_size=9) | st.sampled_from([b"-1", b"1e3", b"9" * 30, b"\xff" * 8])
)


@given(st.lists(st.tuples(st.sampled_from(ALL_NAMES), VALUES), max_size=12))
def test_no_header_is_so_broken_that_reading_raises(headers: Headers) -> None:
    letter = read(headers)
    for number in (letter.original_partition, letter.original_offset, letter.attempts):
        assert number is None or number >= 0
    assert letter.redrives >= 0
    assert letter.id


def test_broken_numbers_are_unknown_and_leave_the_rest_readable() -> None:
    broken: Headers = [("wc-attempts", b"many"), ("wc-orig-offset", b"-7"), ("wc-redrives", None)]
    letter = read([*copied(a_failed()).headers, *broken])
    assert (letter.attempts, letter.original_offset, letter.redrives) == (None, None, 0)
    assert letter.original is None
    assert letter.reason == "RETRIES_EXHAUSTED"
    letter = read([*SPRING[4:5], ("kafka_dlt-original-partition", b"3"), *SPRING[6:]])
    assert (letter.original_partition, letter.original_offset) == (None, 5_000_000_000)
