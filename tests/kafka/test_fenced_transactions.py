"""Two processes that write transactions with one id: who gives way, and when."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from tests import reading
from tests.conftest import MakeTopic
from tests.kernel import client_log
from window_consumer.kafka.settings.transactions import transaction_settings
from window_consumer.kafka.writing.transactions import KafkaTransactions
from window_consumer.model.errors import NotCommittedError, WorkerStoppedError
from window_consumer.model.protocols import Commit, Copy
from window_consumer.model.record import TopicPartition
from window_consumer.testing.real_kafka import RealKafka


class Process:
    """A process of a worker, as Kafka sees it."""

    def __init__(self, kafka: RealKafka, topic: str, group: str) -> None:
        client = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
        settings = transaction_settings(client, "charge", f"{group}-charge-host-1")
        self.id = settings["transactional.id"]
        self._transactions = KafkaTransactions(settings, client_log())
        self._member = Consumer({**client, "group.id": group}).consumer_group_metadata()
        self._topic = topic
        self.answers: list[Exception | None] = []

    def begin(self, value: bytes) -> None:
        self._transactions.begin()
        self._transactions.write(Copy(self._topic, 0, None, value, (), None), self.answers.append)

    def commit(self) -> None:
        name = TopicPartition(self._topic, 0)
        self._transactions.commit([Commit(name, 1, "")], self._member, lambda: False)


def test_the_first_fencing_costs_a_transaction_and_the_second_in_a_row_the_worker(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> None:
    topic, group = make_topic("invoices"), unique_name("shop")
    first, second = (Process(kafka, topic, group) for _ in range(2))
    first.begin(b"1")
    second.begin(b"2")
    with pytest.raises(NotCommittedError):
        first.commit()
    first.begin(b"1 again")  # with a new client, which fences the other process
    first.commit()
    with pytest.raises(NotCommittedError):
        second.commit()
    second.begin(b"2 again")
    second.commit()
    first.begin(b"3")
    with pytest.raises(WorkerStoppedError, match=re.escape(f"transactional.id {second.id} ")):
        first.commit()
    second.begin(b"4")
    second.commit()
    written = reading.read_all({"bootstrap.servers": kafka.bootstrap}, topic)
    assert [each.value() for each in written] == [b"1 again", b"2 again", b"4"]
    assert [each is None for each in second.answers] == [False, True, True]
