"""A wall clock that jumps by days changes nothing but the times that copies tell."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import perf_counter, sleep, time

import pytest

from tests.integration.shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer import Record
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.retry.copy_record import CopyOrigin, Target
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.kafka.settings import ConsumerNeeds
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.source import KafkaSource
from window_consumer.model.protocols import TopicFacts
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.runtime.worker import Worker
from window_consumer.runtime.worker_setup import WorkerSetup

DAY_S = 86_400
RECORDS = 200


class JumpingClock:
    """A steady clock beside a wall clock that jumps by days whenever it is asked."""

    def __init__(self) -> None:
        self._jumps = iter(range(1, 1_000_000))

    def now(self) -> float:
        return perf_counter()

    def sleep(self, seconds: float) -> None:
        sleep(seconds)

    def wall_ms(self) -> int:
        number = next(self._jumps)
        days = number if number % 2 else -number
        return round((time() + DAY_S * days) * 1000)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1, "shop.orders.dlq": 1}) as broker:
        yield broker


def worker_of(broker: EmbeddedBroker, calls: list[tuple[int, int]]) -> Worker:
    log = ClientLog(logging.getLogger("window_consumer.client"))
    client = broker.client_settings()
    cluster = Cluster({"bootstrap.servers": broker.bootstrap}, log)
    retry = RetryRules(attempts=2, backoff_min_s=0.1, backoff_max_s=0.1)

    def handle(record: Record) -> None:
        calls.append((record.offset, record.attempt))
        if record.offset % 20 == 0:
            raise ValueError(record.offset)

    setup = WorkerSetup(
        name="work",
        origin=CopyOrigin("shop", "work"),
        engine=EngineRules(slots=4, retry=retry, commit_interval_s=0.05),
        loop=LoopRules(topics=("orders",), stop_timeout_s=5),
        handler=handle,
        target_of=lambda _topic, _level: Target("shop.orders.dlq", 1, 1),
        ask_topics=lambda: {"orders": TopicFacts(1, None)},
        clock=JumpingClock(),
    )
    needs = ConsumerNeeds(group="shop", worker="work", ordered=False, memory=64 * 2**20)
    source = KafkaSource(client, needs, cluster, log)
    sink = KafkaSink({"bootstrap.servers": broker.bootstrap}, "work", log)
    return Worker(setup, source, sink, None, lambda _worker, _phase: None)


def test_a_wall_clock_that_jumps_by_days_changes_no_outcome(broker: EmbeddedBroker) -> None:
    calls: list[tuple[int, int]] = []
    worker = worker_of(broker, calls)
    worker.start()
    broker.fill("orders", [NewRecord(b"%d" % n) for n in range(RECORDS)])
    plain = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    wait_until(
        lambda: committed_offsets(plain, "shop", "orders") == {0: RECORDS},
        DEADLINE_S,
        "committed = end",
    )
    worker.stop()
    worker.leave()
    assert worker.end(DEADLINE_S)
    failing = range(0, RECORDS, 20)
    first = [(offset, 1) for offset in range(RECORDS)]
    assert sorted(calls) == sorted([*first, *((offset, 2) for offset in failing)])
    copies = [dict(copy.headers()) for copy in broker.read_all("shop.orders.dlq")]
    assert sorted(int(copy["wc-orig-offset"] or b"") for copy in copies) == list(failing)
    reported = {int(copy["wc-last-failure"] or b"") // 1000 // DAY_S for copy in copies}
    assert len(reported) > 1, "the clock did jump"
