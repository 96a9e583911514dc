"""Calls of broadcast workers that hang: what becomes of their records, and what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broadcast.test_worker import WAIT_S, Replica, is_ready
from tests.commands import kafka_of
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import WorkerStoppedError

AT_ONCE: dict[str, Any] = {"stall": {"after": "100ms", "max_abandoned": 1}, "concurrency": 2}


@pytest.fixture
def hanging(embedded: EmbeddedBroker) -> Replica:
    """A process whose calls do not return."""
    embedded.create_topic("prices", 1)
    embedded.fill("prices", [NewRecord(b"1", b"bread")])
    replica = Replica("prices")
    replica.gate.clear()
    return replica


def test_a_record_whose_call_hangs_is_dropped_and_the_worker_ready_without_it(
    hanging: Replica, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    rules = {**AT_ONCE, "broadcast": {"from": "earliest", "when_spent": "drop"}}
    with hanging.start(tmp_path / "w.yaml", kafka_of(embedded), **rules) as running:
        wait_until(lambda: is_ready(running), WAIT_S, "it is ready")
        snapshot = running.snapshots()["fill"]
        (partition,) = snapshot.partitions
        assert (snapshot.counters.dropped, snapshot.abandoned) == (1, 1)
        assert (partition.lag.records or 0, partition.lag.seconds) == (0, 0.0)
        embedded.fill("prices", [NewRecord(b"2", b"bread")])
        hanging.gate.set()  # the record behind it in its lane waits for the call, not for ever
        wait_until(lambda: (0, 1) in hanging.handled, WAIT_S, "the next one is handled")


def test_a_call_that_hangs_stops_a_worker_that_must_not_miss_records(
    hanging: Replica, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    with (
        pytest.raises(WorkerStoppedError, match=r"\bbroadcast\.when_spent\b"),
        hanging.start(tmp_path / "w.yaml", kafka_of(embedded), **AT_ONCE) as running,
    ):
        wait_until(lambda: running.failure is not None, WAIT_S, "it stops")
