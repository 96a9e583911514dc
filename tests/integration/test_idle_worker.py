"""What a worker with nothing to do asks of its broker."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ConsumerOf
from tests.integration.shop import DEADLINE_S, Shop
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker

WATCHED_S = 11.0
"""Long enough for the topics to be looked at twice."""

PARTITIONS = 4


@pytest.mark.slow
def test_an_idle_worker_asks_at_most_twice_as_often_as_a_default_client(
    consumer_of: ConsumerOf, tmp_path: Path
) -> None:
    """Side by side, each with a broker of its own that counts, and with the client's defaults."""
    topics = {"orders": PARTITIONS}
    with (
        EmbeddedBroker(topics=topics) as ours,
        EmbeddedBroker(topics=topics) as theirs,
        consumer_of(
            {"bootstrap.servers": theirs.bootstrap}, **{"group.protocol": "consumer"}
        ) as it,
        Shop({"bootstrap.servers": ours.bootstrap}, "orders", "shop", tmp_path).running() as worker,
    ):
        it.subscribe(["orders"])
        deadline = time.monotonic() + DEADLINE_S
        while len(it.assignment()) < PARTITIONS or len(worker.snapshots()["work"].partitions) < 4:
            assert it.poll(0.1) is None
            assert time.monotonic() < deadline, "both have their partitions"
        ours.track_requests()
        theirs.track_requests()
        ends = time.monotonic() + WATCHED_S
        while time.monotonic() < ends:
            assert it.poll(0.1) is None
        asked, usual = ours.requests(), theirs.requests()
    assert usual[ApiKey.FETCH] > 0
    assert asked.total() <= 2 * usual.total(), said(asked, usual)
    assert asked[ApiKey.FETCH] <= 2 * usual[ApiKey.FETCH], said(asked, usual)


def said(asked: Counter[int], usual: Counter[int]) -> str:
    return f"asked {dict(asked)}, a default client {dict(usual)}"
