"""Brokers and names for tests. A test that asks for ``kafka`` is marked with it by itself."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import Commands
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka import KafkaUnavailableError, RealKafka

MakeTopic = Callable[..., str]
ConsumerOf = Callable[..., AbstractContextManager[Consumer]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a real Kafka, and what runs alone for its or the clock's sake."""
    for item in items:
        if isinstance(item, pytest.Function) and "kafka" in item.fixturenames:
            item.add_marker(pytest.mark.kafka)
        starts_one = hasattr(getattr(item, "module", None), RealKafka.__name__)
        if starts_one or item.get_closest_marker("kafka") is not None:
            item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """The one real Kafka of a test run: leave it running, and use names of your own."""
    try:
        started = RealKafka.start(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have a real Kafka: {error}")
        pytest.skip(f"no real Kafka: {error}")
    with started:
        yield started


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    """An embedded broker of its own for each test, without topics."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """The command line in a directory of its own; what still runs at the end is killed."""
    with Commands(tmp_path) as commands:
        yield commands


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Names for topics and groups that no other test has."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make_topic(kafka: RealKafka, unique_name: Callable[[str], str]) -> MakeTopic:
    """``make_topic("orders", 4, {"cleanup.policy": "compact"})`` returns the new topic's name."""

    def make(prefix: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique_name(prefix)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics.make(admin, topic)
        return name

    return make


@pytest.fixture
def consumer_of() -> ConsumerOf:
    """``with consumer_of(settings, **more) as consumer``: the client's own, in group "tests"."""

    @contextmanager
    def consumer_of(settings: Mapping[str, Any], **more: Any) -> Iterator[Consumer]:
        group = {"group.id": "tests", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"log_level": 0, **group, **settings, **more})
        try:
            yield consumer
        finally:
            consumer.close()

    return consumer_of
