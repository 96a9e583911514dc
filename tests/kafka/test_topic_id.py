"""Whether a cluster and a topic of events are those that were read before."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.conftest import MakeTopic
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster.topic_id import cluster_id, topic_id, topic_ids
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import BrokerUnavailableError, MissingTopicError
from window_consumer.testing.real_kafka import RealKafka

LOG = ClientLog(logging.getLogger("window_consumer.client"))
DEADLINE_S = 60.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_a_topic_that_was_made_anew_has_another_id(kafka: RealKafka, make_topic: MakeTopic) -> None:
    client = {"bootstrap.servers": kafka.bootstrap}
    name, admin = make_topic("events"), AdminClient({"bootstrap.servers": kafka.bootstrap})
    first = topic_id(name, client, LOG, DEADLINE_S)
    assert first is not None
    assert first == topics.identity(admin, name) == topic_id(name, client, LOG, DEADLINE_S)
    topics.make_anew(admin, NewTopic(name, 1, 1))
    assert topic_id(name, client, LOG, DEADLINE_S) == topics.identity(admin, name) != first


def test_topics_are_found_by_their_whole_names(kafka: RealKafka, make_topic: MakeTopic) -> None:
    client = {"bootstrap.servers": kafka.bootstrap}
    first, second = make_topic("letters"), make_topic("letters")
    found = topic_ids(f"{first}|{second}", client, LOG, DEADLINE_S)
    assert found == {name: topic_id(name, client, LOG, DEADLINE_S) for name in (first, second)}
    assert None not in found.values()
    assert topic_ids(first[:-1], client, LOG, DEADLINE_S) == {}


def test_a_cluster_has_an_id_of_its_own(kafka: RealKafka, embedded: EmbeddedBroker) -> None:
    places = [{"bootstrap.servers": each.bootstrap} for each in (kafka, kafka, embedded)]
    first, again, other = (cluster_id(client, LOG, DEADLINE_S) for client in places)
    assert first == again
    assert None not in {first, other}
    assert first != other


def test_a_topic_that_is_not_there_is_reported(kafka: RealKafka) -> None:
    with pytest.raises(MissingTopicError, match=f"{kafka.bootstrap} .* nowhere"):
        topic_id("nowhere", {"bootstrap.servers": kafka.bootstrap}, LOG)


def test_a_cluster_that_is_away_is_reported() -> None:
    with pytest.raises(BrokerUnavailableError, match=r"answered within 0\.5 s"):
        topic_id("events", NOWHERE, LOG, 0.5)
    with pytest.raises(BrokerUnavailableError, match=r"answered within 0\.5 s"):
        cluster_id(NOWHERE, LOG, 0.5)
