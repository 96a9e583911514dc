"""A delay service on the embedded broker."""

from __future__ import annotations

import pytest

from tests.commands import Commands, kafka_of
from tests.delay.service import DelayService
from window_consumer.kafka.embedded import EmbeddedBroker

PARTITIONS = 2


@pytest.fixture
def service(commands: Commands, embedded: EmbeddedBroker) -> DelayService:
    """A service with two short levels, which delivers to orders and reminders-*."""
    service = DelayService(kafka_of(embedded), commands)
    for name in (*service.topics, "orders", "reminders-mail"):
        embedded.create_topic(name, PARTITIONS)
    service.configure()
    return service
