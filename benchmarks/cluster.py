"""Three Kafka brokers, whose partitions change their leaders."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attrs import frozen
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_kafka_settings import free_addresses

NODES = 3
_HEAP = "384m"
_READY_S = 60.0
_CHECK_S = 0.2
_ANSWER_S = 10.0


@frozen
class Cluster:
    """The brokers, and a client for their metadata."""

    nodes: Sequence[RealKafka]
    admin: AdminClient

    @property
    def bootstrap(self) -> str:
        """The addresses of all."""
        return ",".join(node.bootstrap for node in self.nodes)

    def make(self, topic: str, partitions: int) -> None:
        """Create a topic with a replica on each broker; two of them must have a record."""
        config = {"min.insync.replicas": "2"}
        new = NewTopic(topic, partitions, NODES, config=config)
        self.admin.create_topics([new])[topic].result(_READY_S)
        self.wait_in_sync(topic)

    def leaders(self, topic: str) -> tuple[int, ...]:
        """Return the leader of each partition."""
        while True:
            with suppress(KafkaException):
                found = self.admin.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
                break
            time.sleep(_CHECK_S)
        return tuple(found[number].leader for number in sorted(found))

    def wait_in_sync(self, topic: str) -> None:
        """Return once each broker has all records of a topic."""
        deadline = time.monotonic() + _READY_S
        while not self._is_in_sync(topic):
            if time.monotonic() > deadline:
                raise RunError(f"{topic}: not all brokers are in sync within {_READY_S:g} s")
            time.sleep(_CHECK_S)

    def _is_in_sync(self, topic: str) -> bool:
        try:
            found = self.admin.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions
        except KafkaException:
            return False
        return bool(found) and all(len(each.isrs) == NODES for each in found.values())

    def wait_led_by_others(self, topic: str, place: int) -> None:
        """Return once no partition is led by a stopped node."""
        deadline = time.monotonic() + _READY_S
        while place + 1 in self.leaders(topic):
            if time.monotonic() > deadline:
                raise RunError(f"{topic}: broker {place + 1} leads after {_READY_S:g} s")
            time.sleep(_CHECK_S)

    def move_leaders(self, topic: str) -> int:
        """Restore sync and the preferred leaders; return how many partitions have moved."""
        self.wait_in_sync(topic)
        before = self.leaders(topic)
        self.admin.elect_leaders(ElectionType.PREFERRED, None).result(_READY_S)
        deadline = time.monotonic() + _READY_S
        while len(set(after := self.leaders(topic))) < NODES:
            if time.monotonic() > deadline:
                raise RunError(f"{topic}: leaders have not moved back within {_READY_S:g} s")
            time.sleep(_CHECK_S)
        return sum(one != other for one, other in zip(before, after, strict=True))


@contextmanager
def three_brokers() -> Iterator[Cluster]:
    """Start three nodes, each broker and controller; they end with the block."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wc-bench-")))
        addresses = _addresses()
        voters = ",".join(f"{number}@{each[2]}" for number, each in enumerate(addresses, 1))
        nodes = [
            RealKafka.formatted(
                directory / f"node-{number}",
                {**_SETTINGS, "node.id": number, "controller.quorum.voters": voters},
                each,
                heap=_HEAP,
                cluster_id=_CLUSTER,
            )
            for number, each in enumerate(addresses, 1)
        ]
        for node in nodes:
            stack.enter_context(node)
        # A node has started once it has found most of the others.
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(RealKafka.restart, nodes))
        bootstrap = ",".join(node.bootstrap for node in nodes)
        yield Cluster(nodes, AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}))


_CLUSTER = "KwindowConsumerBenchAA"
_SETTINGS: Mapping[str, str | int] = {
    "default.replication.factor": NODES,
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.election.timeout.ms": 1_000,
    "controller.quorum.fetch.timeout.ms": 2_000,
}


def _addresses() -> list[list[str]]:
    found = free_addresses(3 * NODES)
    return [found[3 * each : 3 * each + 3] for each in range(NODES)]
