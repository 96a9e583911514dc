"""One shop on each kind of broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands import Commands, kafka_of
from tests.conftest import MakeTopic
from tests.replay.shop import ReplayShop
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka import RealKafka

PARTITIONS = 2


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> ReplayShop:
    """A shop on the embedded broker, without records."""
    shop = ReplayShop(kafka_of(embedded), "orders", "shop", commands)
    for name in (shop.source, shop.entry):
        embedded.create_topic(name, PARTITIONS)
    shop.configure()
    return shop


@pytest.fixture
def kafka_shop(
    kafka: RealKafka, make_topic: MakeTopic, commands: Commands, unique_name: Callable[[str], str]
) -> ReplayShop:
    """A shop on Kafka, without records and without an entry topic."""
    where = {"bootstrap.servers": kafka.bootstrap}
    shop = ReplayShop(where, make_topic("orders", PARTITIONS), unique_name("shop"), commands)
    shop.configure()
    return shop
