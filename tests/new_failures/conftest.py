"""A shop without a version."""

from __future__ import annotations

import pytest

from tests.commands import Commands
from tests.new_failures.shop import Shop
from window_consumer.kafka.embedded import EmbeddedBroker


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Shop:
    return Shop(commands, embedded)
