"""Workers whose clients have lost the cluster for good, and go on with new ones."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack

import pytest
from attrs import define, field

from tests.integration.shop import DEADLINE_S
from tests.kafka.fenced_broker import FencedBroker
from tests.kafka.quick_watchdogs import UnreportedWatchdog, quick_watchdog
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
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.runtime.worker import Worker
from window_consumer.runtime.worker_setup import WorkerSetup

WORKERS = 3
"""At once: each of their clients loses its way in most cases, not in all."""
REFRESH_MS = 300
RECORDS = 100
FAILING = 20
"""Each record of this many fails, so that there are copies to write."""
LOG = ClientLog(logging.getLogger("window_consumer.client"))


@define(eq=False)
class Application:
    """One worker that reads by way of a broker that can be fenced."""

    bootstrap: str
    group: str
    make_watchdog: MakeClientWatchdog
    offsets: set[int] = field(factory=set)

    def handle(self, record: Record) -> None:
        self.offsets.add(record.offset)
        if record.offset % FAILING == 0:
            raise ValueError(record.offset)

    def until_committed(self, broker: EmbeddedBroker, end: int) -> None:
        plain = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        wait_until(
            lambda: committed_offsets(plain, self.group, "orders") == {0: end},
            DEADLINE_S,
            f"committed = {end}, {self.group}",
        )
        assert self.offsets == set(range(end))

    def worker(self) -> Worker:
        client = {
            "bootstrap.servers": self.bootstrap,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "log_level": 0,
        }
        cluster = Cluster(client, LOG, make_watchdog=self.make_watchdog)
        needs = ConsumerNeeds(self.group, "work", ordered=False, memory=64 * 2**20)
        source = KafkaSource(client, needs, cluster, LOG, self.make_watchdog)
        sink = KafkaSink(client, "work", LOG, make_watchdog=self.make_watchdog)
        setup = WorkerSetup(
            name="work",
            origin=CopyOrigin(self.group, "work"),
            engine=EngineRules(slots=4, retry=RetryRules(attempts=1), commit_interval_s=0.1),
            loop=LoopRules(topics=("orders",), stop_timeout_s=5),
            handler=self.handle,
            target_of=lambda _topic, _level: Target("orders.dlq", 1, 1),
            ask_topics=lambda: source.facts(["orders"], 5.0),
        )
        return Worker(setup, source, sink, None, lambda _worker, _phase: None)


@pytest.mark.parametrize("watchdog", [ClientWatchdog, UnreportedWatchdog])
def test_workers_continue_after_the_cluster_had_no_brokers(watchdog: type[ClientWatchdog]) -> None:
    """Most clients forget all brokers then, and some of them report no error."""
    with (
        EmbeddedBroker(topics={"orders": 1, "orders.dlq": 1}) as broker,
        FencedBroker(broker.client_settings()["bootstrap.servers"], "orders") as fenced,
        ExitStack() as running,
    ):
        make_watchdog = quick_watchdog(watchdog)
        applications = [
            Application(fenced.bootstrap, f"shop-{n}", make_watchdog) for n in range(WORKERS)
        ]
        broker.fill("orders", [NewRecord(b"%d" % n) for n in range(RECORDS)])
        for each in applications:
            worker = each.worker()
            worker.start()
            running.callback(stop, worker)
        for each in applications:
            each.until_committed(broker, RECORDS)
        fenced.is_fenced = True
        time.sleep(5 * REFRESH_MS / 1000)  # each client asks; what it reports is not certain
        assert fenced.answers >= WORKERS
        fenced.is_fenced = False
        broker.fill("orders", [NewRecord(b"%d" % n) for n in range(RECORDS, 2 * RECORDS)])
        for each in applications:
            each.until_committed(broker, 2 * RECORDS)


def stop(worker: Worker) -> None:
    worker.stop()
    worker.leave()
    assert worker.end(DEADLINE_S)
