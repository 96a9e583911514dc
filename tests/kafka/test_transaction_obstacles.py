"""Clusters on which no transaction can ever begin, and what a start and a check say of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import Commands
from window_consumer.database import Outbox
from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.kafka.cluster.transactions import (
    find_obstacle,
    obstacle_of_new_topic,
    obstacle_of_topic,
)
from window_consumer.kafka.log_writer import TransactionalWriter
from window_consumer.kafka.writing.client import SendingClient
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.producer import Producer, TransactionAbortedError
from window_consumer.testing.real_kafka import RealKafka

FACTOR = "transaction.state.log.replication.factor"
MIN_ISR = "transaction.state.log.min.isr"

PLAIN = """
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop")
def charge(order):
    print("charged")
"""

EXACT = """
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop", delivery="exactly_once")
def charge(order):
    print("charged")
"""


@pytest.mark.parametrize(
    ("brokers", "settings", "named"),
    [
        (3, {FACTOR: "3", MIN_ISR: "2"}, None),
        (1, {FACTOR: "1", MIN_ISR: "1"}, None),
        (1, {}, None),  # we may not ask
        (2, {FACTOR: "3", MIN_ISR: "2"}, FACTOR),
        (1, {FACTOR: "1", MIN_ISR: "2"}, MIN_ISR),
    ],
)
def test_the_topic_of_transactions_needs_enough_brokers(
    brokers: int, settings: dict[str, str], named: str | None
) -> None:
    obstacle = obstacle_of_new_topic(brokers, settings)
    assert (obstacle is None) if named is None else (named in (obstacle or ""))


@pytest.mark.parametrize(
    ("code", "names_it"), [("_TIMED_OUT", True), ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False)]
)
def test_a_producer_that_gets_no_answer_names_the_topic_of_transactions(
    code: str, *, names_it: bool
) -> None:
    text = errors.text_of_no_transaction(KafkaError(getattr(KafkaError, code)))
    assert (FACTOR in text) is names_it


@pytest.mark.parametrize(("least", "is_sound"), [("1", True), ("2", False), (None, True)])
def test_the_topic_of_transactions_needs_as_many_replicas_as_must_be_in_sync(
    least: str | None, *, is_sound: bool
) -> None:
    settings = {} if least is None else {"min.insync.replicas": least}
    topic = Topic("__transaction_state", 50, 1, None, None)
    assert (obstacle_of_topic(topic, settings) is None) is is_sound


@pytest.mark.parametrize("user", ["admin", "alice"])
def test_a_sound_cluster_and_one_that_may_not_be_asked_have_no_obstacle(
    kafka: RealKafka, user: str
) -> None:
    log = ClientLog(logging.getLogger("tests"))
    cluster = Cluster({**kafka.sasl_settings(user), "log_level": 0}, log)
    assert find_obstacle(cluster) is None


@pytest.fixture(scope="module")
def one_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A cluster without the brokers that its topic of transactions needs."""
    with RealKafka.start(tmp_path_factory.mktemp("kafka"), {FACTOR: 3}) as kafka:
        topics.make(AdminClient({"bootstrap.servers": kafka.bootstrap}), NewTopic("orders", 1, 1))
        yield kafka


def test_exactly_once_is_refused_at_the_start_and_by_a_check(
    one_of_three: RealKafka, commands: Commands
) -> None:
    commands.application(EXACT)
    kafka = {"bootstrap.servers": one_of_three.bootstrap}
    commands.configure({"kafka": kafka, "workers": {"charge": {}}})
    for command in (("run",), ("check", "--connect")):
        done = commands.run(*command, "shop:app")
        assert done.code == 2
        assert "workers.charge.delivery" in done.said
        assert FACTOR in done.said


def test_the_relay_of_an_outbox_is_refused_likewise(
    one_of_three: RealKafka, commands: Commands
) -> None:
    commands.application(PLAIN)
    url, metadata = f"sqlite:///{commands.directory / 'shop.db'}", sa.MetaData()
    Outbox(metadata)
    engine = sa.create_engine(url)
    metadata.create_all(engine)
    engine.dispose()
    kafka = {"bootstrap.servers": one_of_three.bootstrap}
    commands.configure({"kafka": kafka, "workers": {"charge": {}}, "outbox": {"database": url}})
    for command in (("run", "shop:app"), ("check", "--connect", "shop:app"), ("outbox", "run")):
        done = commands.run(*command)
        assert done.code == 2
        assert "outbox.database" in done.said
        assert FACTOR in done.said


def test_the_transaction_of_a_producer_fails_within_its_time_with_the_cause(
    one_of_three: RealKafka,
) -> None:
    kafka = {"bootstrap.servers": one_of_three.bootstrap}
    with (
        Producer(kafka, transactional_id="shop", max_block="1s") as producer,
        pytest.raises(TransactionAbortedError, match=re.escape(FACTOR)),
        producer.transaction(),
    ):
        pass


class WithoutAnswer(SendingClient):
    """A producer whose brokers do not say where its transactions are kept."""

    def init_transactions(self, timeout: float = -1) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"not within {timeout} s"))


def test_a_redrive_in_transactions_that_cannot_begin_names_the_cause() -> None:
    kafka, log = {"bootstrap.servers": "127.0.0.1:1"}, ClientLog(logging.getLogger("tests"))
    with pytest.raises(BrokerUnavailableError, match=re.escape(FACTOR)):
        TransactionalWriter(kafka, "redrive", log, make_client=WithoutAnswer)
