"""What ``send`` promises while the brokers are well."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from window_consumer import Produce, Producer, SendResult, UsageError
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.producer import BufferFullError, ProducerClosedError


def test_a_result_says_where_the_record_is(broker: EmbeddedBroker, producer: Producer) -> None:
    future = producer.send("orders", b"anna", b"7", partition=1)
    sent = future.result(10)
    assert (sent.topic, sent.partition, sent.offset) == ("orders", 1, 0)
    assert future.done()
    assert future.exception() is None
    assert future.result() == sent
    (record,) = broker.read_all("orders")
    assert (record.key(), record.value(), record.partition()) == (b"anna", b"7", 1)


def test_each_record_has_an_id_of_its_own(broker: EmbeddedBroker, producer: Producer) -> None:
    for number in range(300):
        producer.send("orders", value=str(number))
    assert producer.flush(10) == 0
    ids = [dict(each.headers())["wc-id"] for each in broker.read_all("orders")]
    assert len(set(ids)) == 300


def test_an_id_that_is_given_stays(broker: EmbeddedBroker, producer: Producer) -> None:
    producer.send("orders", value=b"7", headers=[("wc-id", "o-17"), ("mine", b"x")]).result(10)
    (record,) = broker.read_all("orders")
    assert record.headers() == [("wc-id", b"o-17"), ("mine", b"x")]


def test_wishes_become_headers(broker: EmbeddedBroker, producer: Producer) -> None:
    producer.send("orders", value=b"7", ttl="1500ms", tags=["gold", "eu"], timestamp=5).result(10)
    (record,) = broker.read_all("orders")
    headers = dict(record.headers())
    assert (headers["ttl"], headers["wc-tags"]) == (b"1.5", b"gold,eu")
    assert record.timestamp()[1] == 5


def test_records_of_a_key_stay_in_order(broker: EmbeddedBroker, producer: Producer) -> None:
    for number in range(1000):
        producer.send("orders", b"anna", str(number), ttl=None if number % 3 else "1h")
    producer.flush(10)
    records = sorted(broker.read_all("orders"), key=lambda each: each.offset())
    assert [int(each.value()) for each in records] == list(range(1000))


def test_a_future_is_awaited_in_any_loop(producer: Producer) -> None:
    async def send(count: int) -> list[SendResult]:
        return await asyncio.gather(*[producer.send("orders", value=b"7") for _ in range(count)])

    async def again(future: Any) -> Any:
        return await future

    assert len(asyncio.run(send(100))) == 100
    future = producer.send("orders", value=b"8")
    assert asyncio.run(again(future)) == asyncio.run(again(future)) == future.result()


def test_a_result_can_be_waited_for_on_many_threads(producer: Producer) -> None:
    future = producer.send("orders", value=b"8")
    found: list[SendResult] = []
    threads = [threading.Thread(target=lambda: found.append(future.result(10))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_callback_that_raises_changes_nothing(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []

    def raises(_: object) -> None:
        raise RuntimeError("no")

    future = producer.send("orders", value=b"8")
    future.add_done_callback(raises)
    future.add_done_callback(called.append)
    others = [producer.send("orders", value=b"8") for _ in range(100)]
    producer.flush(10)
    assert called == [future]
    assert all(each.exception(10) is None for each in (future, *others))
    future.add_done_callback(called.append)
    assert called == [future, future]
    events = [record.event for record in caplog.records if record.levelno == logging.ERROR]  # type: ignore[attr-defined]
    assert events == [LogEvent.SEND_CALLBACK_FAILED]


def test_a_callback_may_send_but_not_wait(producer: Producer) -> None:
    found: list[Any] = []

    def send_more(_: object) -> None:
        more = producer.send("orders", value=b"9")
        found.append(more)
        try:
            more.result(10)
        except UsageError as error:
            found.append(error)

    producer.send("orders", value=b"8").add_done_callback(send_more)
    producer.flush(10)
    more, error = found
    assert type(error) is UsageError
    assert more.result(10).topic == "orders"


def test_values_are_serialized_by_topic(broker: EmbeddedBroker) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap}
    with Producer(kafka, serialize={"orders": lambda value: str(value * 2)}) as producer:
        producer.send("orders", value=21).result(10)
        producer.send("orders", value=None).result(10)
        with pytest.raises(TypeError):
            producer.send("others", value=21)
    assert {record.value() for record in broker.read_all("orders")} == {b"42", None}


def test_a_hook_may_change_a_record_or_refuse_it(broker: EmbeddedBroker) -> None:
    def check(record: Produce) -> Produce | None:
        if record.value == b"bad":
            raise ValueError("bad")
        return Produce(record.topic, b"anna", record.value) if record.key is None else None

    with Producer({"bootstrap.servers": broker.bootstrap}, before_send=check) as producer:
        producer.send("orders", value=b"7").result(10)
        producer.send("orders", b"bert", value=b"8").result(10)
        with pytest.raises(ValueError, match="bad"):
            producer.send("orders", value=b"bad")
    found = {(record.key(), record.value()) for record in broker.read_all("orders")}
    assert found == {(b"anna", b"7"), (b"bert", b"8")}


@pytest.mark.parametrize(
    "properties",
    [
        {"acks": "1"},
        {"request.required.acks": 0},
        {"enable.idempotence": False},
        {"message.timeout.ms": 5000},
        {"delivery.timeout.ms": 5000},
        {"retries": 3},
        {"queue.buffering.max.kbytes": 3},
        {"transactional.id": "x"},
        {"on_delivery": print},
        {"no.such.property": "1"},
    ],
)
def test_properties_that_lose_records_are_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        Producer({"bootstrap.servers": "127.0.0.1:1", **properties})
    assert next(iter(properties)) in str(raised.value)


def test_the_same_properties_are_taken_with_the_values_that_hold_anyway() -> None:
    properties = {"acks": -1, "enable.idempotence": "true", "bootstrap.servers": "127.0.0.1:1"}
    Producer(properties).close(0)


def test_verify_gives_the_range_of_each_partition(producer: Producer) -> None:
    producer.send("orders", value=b"7", partition=1).result(10)
    assert producer.verify(["orders"]) == {("orders", 0): (0, 0), ("orders", 1): (0, 1)}


def test_a_closed_producer_takes_nothing(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    future = producer.send("orders", value=b"7")
    producer.close()
    producer.close()
    assert future.result(0).topic == "orders"
    for use in (
        lambda: producer.send("orders", value=b"7"),
        lambda: producer.send("orders", value=b"7", tags="x"),
        producer.flush,
        lambda: producer.verify(["orders"]),
    ):
        with pytest.raises(ProducerClosedError):
            use()


def test_a_full_buffer_makes_the_call_wait_then_raise() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"}, memory="64KiB", max_block="50ms")
    for _ in range(64):
        producer.send("orders", value=b"x" * 1024)
    with pytest.raises(BufferFullError):
        producer.send("orders", value=b"x" * 1024)
    producer.close(0)


def test_small_records_are_bounded_by_their_number() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"}, memory="16KiB", max_block="50ms")
    for _ in range(32):  # one for each 512 bytes
        producer.send("orders", value=b"x")
    with pytest.raises(BufferFullError):
        producer.send("orders", value=b"x")
    producer.close(0)


def test_a_lower_limit_holds_at_once(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap}, max_block="5s")
    futures = [producer.send("orders", value=b"x" * 1000) for _ in range(1000)]
    producer.memory = "16KiB"
    assert producer.memory == 16 * 1024
    assert producer.flush(10) == 0
    broker.broker_down()
    futures += [producer.send("orders", value=b"x" * 1000) for _ in range(10)]
    futures += [producer.send("orders", value=b"x" * 1000) for _ in range(6)]
    with pytest.raises(BufferFullError):
        producer.send("orders", value=b"x" * 1000)
    broker.broker_up()
    producer.close()
    assert all(each.exception(0) is None for each in futures)
