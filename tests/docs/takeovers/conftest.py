"""The group of a test, on a real Kafka.

A group of the embedded broker takes no member of the clients' protocol later on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeTopic
from tests.docs.takeovers.group import PARTITIONS, Group, Shop
from window_consumer.testing.real_kafka import RealKafka


@pytest.fixture
def group(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Group:
    topic = make_topic("orders", PARTITIONS)
    names = {
        "shop-charge": unique_name("takeover"),
        '"orders"': f'"{topic}"',
        "localhost:9092": kafka.bootstrap,
    }
    shop = Shop()
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    return Group(kafka.bootstrap, topic, tmp_path, shop, names)
