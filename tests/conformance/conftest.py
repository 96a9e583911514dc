"""Stages for the suite. A test asks for the narrowest set on which it can be played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from tests.conformance.reader import Reader
from tests.conformance.stages import EmbeddedStage, FakeStage, KafkaStage, Stage
from window_consumer.testing.real_kafka import RealKafka

Name = Callable[[str], str]
Full: TypeAlias = FakeStage | KafkaStage
Quiet: TypeAlias = FakeStage | EmbeddedStage


def _made(request: pytest.FixtureRequest, unique_name: Name) -> Stage:
    kind, _, how = str(request.param).partition(" ")
    if kind == "fake":
        return FakeStage(unique_name, incremental=how != "eager")
    if kind == "embedded":
        return EmbeddedStage(unique_name)
    kafka: RealKafka = request.getfixturevalue("kafka")
    return KafkaStage(unique_name, kafka, how or "consumer")


def kinds(*names: str) -> list[Any]:
    """Return parameters for a stage fixture, marked where they need a real Kafka."""
    return [
        pytest.param(name, marks=[pytest.mark.kafka] if name.startswith("kafka") else [])
        for name in names
    ]


def _stages(*names: str) -> object:
    @pytest.fixture(params=kinds(*names))
    def stage(request: pytest.FixtureRequest, unique_name: Name) -> Iterator[Stage]:
        made = _made(request, unique_name)
        yield made
        made.close()

    return stage


stage = _stages("fake", "kafka", "embedded")
"""Wherever records can be read and written."""

full = _stages("fake", "kafka")
"""Where everything can happen to a topic that happens to topics."""

full_or_eager = _stages("fake", "fake eager", "kafka", "kafka range")
"""As ``full``, with both kinds of assignment."""

quiet = _stages("fake", "embedded")
"""Where the brokers can fall silent."""

BY_RANGE = ("fake", "fake eager", "kafka consumer", "kafka range")

sharing = _stages(*BY_RANGE, "kafka cooperative-sticky")
"""Every way in which a group shares partitions."""


@pytest.fixture
def group(unique_name: Name) -> str:
    return unique_name("group")


@pytest.fixture
def reader_on(group: str) -> Callable[[Stage], Reader]:
    """``reader_on(stage)``: a reader of the test's group."""
    return lambda stage: Reader(stage.source(group))
