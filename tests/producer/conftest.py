"""A producer and its broker, for tests in which all is well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from window_consumer import Producer
from window_consumer.kafka.embedded import EmbeddedBroker


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic("orders", 2)
    return embedded


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        yield producer
