"""What becomes of records while a client cannot be made, or may not log in."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.admin.certificates import make_certificate
from tests.conftest import MakeTopic
from tests.waiting import wait_until
from window_consumer import Producer
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.producer import LoginRefusedError, NeverSentError, TransactionAbortedError
from window_consumer.testing.real_kafka import RealKafka

PATIENCE_S = 60.0


def logged(caplog: pytest.LogCaptureFixture, event: LogEvent) -> int:
    return sum(getattr(each, "event", None) is event for each in caplog.records)


def producer_with(authorities: Path) -> Producer:
    """Return a producer without brokers, which reads a file whenever it makes a client."""
    make_certificate(authorities, authorities.with_suffix(".key"))
    return Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SSL",
            "ssl.ca.location": str(authorities),
        }
    )


def test_a_client_that_cannot_be_made_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authorities, gone = tmp_path / "ca.pem", tmp_path / "gone.pem"
    producer = producer_with(authorities)
    future = producer.send("orders", b"anna", b"1")
    authorities.rename(gone)
    changing = threading.Thread(target=setattr, args=(producer, "memory", "32MiB"))
    changing.start()
    wait_until(lambda: logged(caplog, LogEvent.PRODUCER_WARNED) > 0, PATIENCE_S, "it failed")
    gone.rename(authorities)
    changing.join(PATIENCE_S)
    assert not changing.is_alive()
    assert producer.flush(0) == 1
    later = producer.send("orders", b"anna", b"2")
    producer.close(0)
    assert [type(each.exception(0)) for each in (future, later)] == [NeverSentError] * 2


def test_flush_counts_records_and_not_what_the_client_reports() -> None:
    backoff = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 1}
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **backoff})
    producer.send("orders", b"anna", b"1")
    counts = set()
    ends = time.monotonic() + 1
    while time.monotonic() < ends:  # its connection fails a thousand times meanwhile
        counts.add(producer.flush(0))
    producer.close(0)
    assert counts == {1}


def test_a_producer_that_can_make_no_client_answers_when_it_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authorities = tmp_path / "ca.pem"
    producer = producer_with(authorities)
    future = producer.send("orders", b"anna", b"1")
    authorities.unlink()
    changing = threading.Thread(target=setattr, args=(producer, "memory", "32MiB"))
    changing.start()
    wait_until(lambda: logged(caplog, LogEvent.PRODUCER_WARNED) > 0, PATIENCE_S, "it failed")
    producer.close(0)
    changing.join(PATIENCE_S)
    assert type(future.exception(0)) is NeverSentError


def test_transactions_begin_while_clients_are_replaced(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    settings = {"bootstrap.servers": embedded.bootstrap}
    committed = 0
    stopped = threading.Event()

    def replace() -> None:
        while not stopped.wait(0.001):
            producer.memory = "32MiB"

    with Producer(settings, transactional_id="shop-1") as producer:
        thread = threading.Thread(target=replace)
        thread.start()
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            try:
                with producer.transaction():
                    producer.send("orders", b"anna", b"1")
                committed += 1
            except TransactionAbortedError:
                continue
        stopped.set()
        thread.join()
        with producer.transaction():
            last = producer.send("orders", b"anna", b"1")
        assert last.result(0).topic == "orders"


def test_wrong_credentials_fail_records_within_a_bounded_time(
    kafka: RealKafka, make_topic: MakeTopic
) -> None:
    topic = make_topic("orders")
    wrong = {**kafka.sasl_settings("admin"), "sasl.password": "wrong"}
    with Producer({**wrong, "socket.connection.setup.timeout.ms": 1000}) as producer:
        for _ in range(2):
            futures = [producer.send(topic, b"anna", b"1") for _ in range(100)]
            errors = [each.exception(PATIENCE_S) for each in futures]
            assert {type(each) for each in errors} == {LoginRefusedError}
            assert not any(each.refused for each in errors if each)
