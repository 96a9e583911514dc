"""Copies that are written with all their acks, in transactions that another one may fence off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

import pytest
from confluent_kafka import KafkaException, Producer

from tests.integration.members import wait_until
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.log_writer import TransactionalWriter
from window_consumer.model.errors import RunError
from window_consumer.model.protocols import Copy
from window_consumer.testing.real_kafka import RealKafka

pytestmark = pytest.mark.kafka

COPIES = 200
"""So many that some are on their way, and some wait, when the first of them is refused."""


@pytest.fixture
def fenced(
    kafka: RealKafka, make_topic: Callable[..., str], unique_name: Callable[[str], str]
) -> Callable[[], TransactionalWriter]:
    """Writers that were fenced off and have copies on their way."""
    topic, name = make_topic("copies", 2), unique_name("redrive")
    copies = [Copy(topic, None, b"%d" % n, b"value", [("wc-id", b"%d" % n)]) for n in range(COPIES)]
    log = ClientLog(logging.getLogger(__name__))

    def fenced() -> TransactionalWriter:
        first = TransactionalWriter({"bootstrap.servers": kafka.bootstrap}, name, log)
        first.send(copies)
        assert first.acks() == {}
        TransactionalWriter({"bootstrap.servers": kafka.bootstrap}, name, log)
        first.send(copies)
        return first

    return fenced


IS_TOLD = "is the same redrive running twice"


def test_a_writer_that_was_fenced_off_says_so_whichever_answer_comes_first(
    fenced: Callable[[], TransactionalWriter],
) -> None:
    for _ in range(5):
        with pytest.raises(RunError, match=IS_TOLD):
            fenced().acks()


class Forgetful:
    """A producer whose flush has lost what it was about to raise."""

    def __init__(self, producer: Producer) -> None:
        self.begin_transaction = producer.begin_transaction

    def has_given_up(self) -> bool:
        try:
            self.begin_transaction()
        except KafkaException as exception:
            return bool(exception.args[0].fatal())
        raise AssertionError("it has not begun")

    def flush(self, _timeout_s: float) -> NoReturn:
        raise SystemError("returned NULL without setting an exception")


def test_a_writer_that_was_fenced_off_says_so_where_the_client_has_lost_why(
    fenced: Callable[[], TransactionalWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = fenced()
    producer = Forgetful(writer._client.producer)
    monkeypatch.setattr(writer._client, "producer", producer)
    wait_until(producer.has_given_up, 30, "it was not fenced off")
    with pytest.raises(RunError, match=IS_TOLD):
        writer.acks()
