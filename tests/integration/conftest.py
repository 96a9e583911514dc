"""Applications on the shared real Kafka, run inside of the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeTopic
from tests.integration.members import LONG_MS, set_session
from tests.integration.shop import Shop
from window_consumer.testing.real_kafka import RealKafka

ShopOn = Callable[..., Shop]

PROTOCOLS = ("consumer", "classic")


def protocol_settings(protocol: str, *, may_die: bool = False) -> dict[str, Any]:
    """Return a consumer's settings: metadata is looked at often.

    Sessions of the classic protocol are short where members die, so that others soon take over;
    where none does, a machine that stands still for a while takes nobody's partitions.
    """
    settings: dict[str, Any] = {
        "group.protocol": protocol,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = 6000 if may_die else LONG_MS
        settings["heartbeat.interval.ms"] = 500
    return settings


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each group protocol in turn."""
    return str(request.param)


@pytest.fixture
def shop(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> ShopOn:
    """``shop(partitions, {"cleanup.policy": "compact"})``: an application on a new topic."""

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> Shop:
        topic = make_topic("orders", partitions, config)
        client = {"bootstrap.servers": kafka.bootstrap}
        made = Shop(client, topic, unique_name("shop"), tmp_path)
        set_session(kafka.bootstrap, made.group, LONG_MS)
        return made

    return make
