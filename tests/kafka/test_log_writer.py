"""Copies that are written with all their acks, in transactions that another one may fence off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.waiting import wait_until
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.log_writer import TransactionalWriter, WriterFencedError
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.model.protocols import Copy
from window_consumer.testing.real_kafka import RealKafka

pytestmark = pytest.mark.kafka

COPIES = 200
"""So many that some are on their way, and some wait, when the first of them is refused."""


class ForgetfulClient(SendingClient):
    """A producer whose flush loses the exception that it was about to raise."""

    forgets = False

    def is_fenced(self) -> bool:
        try:
            self.begin_transaction()
        except KafkaException as exception:
            return bool(exception.args[0].fatal())
        raise AssertionError("the producer began a transaction")

    def flush(self, timeout: float = -1) -> int:
        if self.forgets:
            raise SystemError("returned NULL without setting an exception")
        return super().flush(timeout)


MakeFenced = Callable[..., TransactionalWriter]


@pytest.fixture
def make_fenced(
    kafka: RealKafka, make_topic: Callable[..., str], unique_name: Callable[[str], str]
) -> MakeFenced:
    """Writers that were fenced off and have copies on their way."""
    topic, name = make_topic("copies", 2), unique_name("redrive")
    copies = [Copy(topic, None, b"%d" % n, b"value", [("wc-id", b"%d" % n)]) for n in range(COPIES)]
    log = ClientLog(logging.getLogger(__name__))

    def fenced(**more: Any) -> TransactionalWriter:
        first = TransactionalWriter({"bootstrap.servers": kafka.bootstrap}, name, log, **more)
        first.send(copies)
        assert first.acks() == {}
        TransactionalWriter({"bootstrap.servers": kafka.bootstrap}, name, log)
        first.send(copies)
        return first

    return fenced


def test_a_fenced_writer_says_so_whichever_answer_comes_first(make_fenced: MakeFenced) -> None:
    for _ in range(5):
        with pytest.raises(WriterFencedError):
            make_fenced().acks()


def test_a_fenced_writer_says_so_where_the_client_lost_the_reason(make_fenced: MakeFenced) -> None:
    producers: list[ForgetfulClient] = []

    def make_client(*settings: Any, **more: Any) -> ForgetfulClient:
        producers.append(ForgetfulClient(*settings, **more))
        return producers[-1]

    writer = make_fenced(make_client=make_client)
    (producer,) = producers
    producer.forgets = True
    wait_until(producer.is_fenced, 30, "it was not fenced off")
    with pytest.raises(WriterFencedError):
        writer.acks()
