"""A delay service on the embedded broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands import Commands, kafka_of
from tests.delay.service import DelayService
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka import RealKafka

PARTITIONS = 2


@pytest.fixture
def service(commands: Commands, embedded: EmbeddedBroker) -> DelayService:
    """A service with two short levels, which delivers to orders and reminders-*."""
    service = DelayService(kafka_of(embedded), commands)
    for name in (*service.topics, "orders", "reminders-mail"):
        embedded.create_topic(name, PARTITIONS)
    service.configure()
    return service


@pytest.fixture
def on_kafka(
    kafka: RealKafka, commands: Commands, unique_name: Callable[[str], str]
) -> DelayService:
    """A service on a real broker, with its own topic and an admin address."""
    client = {"bootstrap.servers": kafka.bootstrap}
    sections = {"admin": {"listen": "127.0.0.1:0"}}
    return DelayService(client, commands, unique_name("shop.later"), sections)
