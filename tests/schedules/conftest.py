"""Schedules on the embedded broker."""

from __future__ import annotations

import pytest

from tests.commands import Commands, kafka_of
from tests.delay.service import DelayService
from window_consumer.kafka.embedded import EmbeddedBroker

SECONDLY = {
    "cron": "* * * * * *",
    "to": "reports",
    "key": "k",
    "value": "now",
    "headers": {"kind": "tick"},
    "missed": "all",
}


@pytest.fixture
def service(commands: Commands, embedded: EmbeddedBroker) -> DelayService:
    """A delay service with a schedule that ticks every second."""
    service = DelayService(kafka_of(embedded), commands)
    service.sections = {"schedules": {"secondly": SECONDLY}}
    for name in (*service.topics, "orders", "reports"):
        embedded.create_topic(name, 2)
    embedded.create_topic("wc.delay.schedules", 1)
    service.configure()
    return service
