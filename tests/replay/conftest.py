"""One shop on each kind of broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import Commands, kafka_of
from tests.conftest import MakeTopic
from tests.replay.shop import ReplayShop
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka import RealKafka

PARTITIONS = 2


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> ReplayShop:
    """A shop on the embedded broker, without records."""
    create = partial(embedded.create_topic, partitions=PARTITIONS)
    shop = ReplayShop(kafka_of(embedded), "orders", "shop", commands, create)
    for name in (shop.source, shop.entry):
        create(name)
    shop.configure()
    return shop


@pytest.fixture
def kafka_shop(
    kafka: RealKafka, make_topic: MakeTopic, commands: Commands, unique_name: Callable[[str], str]
) -> ReplayShop:
    """A shop on Kafka, without records and without an entry topic."""
    where = {"bootstrap.servers": kafka.bootstrap}
    admin = AdminClient({**where})

    def create(name: str) -> None:
        topics.make(admin, NewTopic(name, PARTITIONS, 1))

    source = make_topic("orders", PARTITIONS)
    shop = ReplayShop(where, source, unique_name("shop"), commands, create)
    shop.configure()
    return shop
