"""Futures that nobody has are used again, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable

from window_consumer import Producer, SendFuture
from window_consumer.kafka.embedded import EmbeddedBroker

RECORDS = 3_000
ROUNDS = 3


def test_a_forgotten_future_serves_another_record(producer: Producer) -> None:
    used: set[int] = set()
    for _ in range(ROUNDS):
        for number in range(RECORDS):
            used.add(id(producer.send("orders", b"anna", str(number))))
        assert producer.flush(10) == 0
    assert len(used) <= RECORDS + ROUNDS


def test_a_spare_future_holds_no_value(producer: Producer) -> None:
    for _ in range(10):
        producer.send("orders", b"anna", b"x" * 1_000)
    assert producer.flush(10) == 0
    spares = producer._delivery.spares
    assert spares
    assert [(each.key, each.value) for each in spares] == [(None, None)] * len(spares)


def test_who_has_a_future_has_its_own_result(broker: EmbeddedBroker, producer: Producer) -> None:
    held: list[SendFuture] = []
    for _ in range(ROUNDS):
        for number in range(RECORDS):
            if number % 3 == 0:
                held.append(producer.send("orders", value=f"held-{len(held)}"))
            else:
                producer.send("orders", value="forgotten")
        producer.flush(10)
    assert len(set(map(id, held))) == len(held)
    places = {(each.partition(), each.offset()): each.value() for each in broker.read_all("orders")}
    results = [each.result(10) for each in held]
    assert [places[each.partition, each.offset] for each in results] == [
        f"held-{number}".encode() for number in range(len(held))
    ]


def noting(called: list[tuple[int, object]], number: int) -> Callable[[SendFuture], None]:
    return lambda future: called.append((number, future.value))


def test_a_callback_is_called_although_nobody_has_the_future(producer: Producer) -> None:
    called: list[tuple[int, object]] = []
    for number in range(RECORDS):
        producer.send("orders", value=b"7").add_done_callback(noting(called, number))
        producer.send("orders", value=b"8")
    producer.flush(10)
    assert sorted(called, key=str) == sorted([(number, b"7") for number in range(RECORDS)], key=str)


def test_futures_of_many_threads_are_not_mixed_up(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    wrong: list[str] = []
    held: dict[str, SendFuture] = {}

    def send(thread: int) -> None:
        for number in range(RECORDS):
            value = f"{thread}-{number}"
            future = producer.send("orders", value=value)
            if number % 5 == 0:
                held[value] = future
            if future.value != value:
                wrong.append(value)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    producer.flush(10)
    places = {(each.partition(), each.offset()): each.value() for each in broker.read_all("orders")}
    assert not wrong
    assert len(places) == 4 * RECORDS
    for value, future in held.items():
        result = future.result(10)
        assert places[result.partition, result.offset] == value.encode()
