"""A feature that has to make something ready before a partition starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import yaml

from tests.commands import kafka_of
from window_consumer import App, Record
from window_consumer.app.features import FEATURES
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.record import TopicPartition
from window_consumer.plan.feature import AppStart, Feature
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.runtime.partitions.preparation import PartitionPreparation

WAIT_S = 60.0

happened: list[str] = []
begun, gate = Event(), Event()


class Gate:
    """Fails once, and is then ready when the gate is open."""

    subject = "the gate"

    def __init__(self, executor: ThreadPoolExecutor):
        self._executor = executor
        self._times = 0

    def begin(self, name: TopicPartition) -> Future[None]:
        happened.append(f"begin {name}")
        self._times += 1
        return self._executor.submit(self._fail if self._times == 1 else self._open)

    def remove(self, name: TopicPartition) -> None:
        """Nothing is kept."""

    def _fail(self) -> None:
        raise OSError("not yet")

    def _open(self) -> None:
        begun.set()
        assert gate.wait(WAIT_S)
        happened.append("open")


class RunningGate(RunningFeature):
    def __init__(self, executor: ThreadPoolExecutor):
        self._executor = executor

    def preparations_of(self, worker: PreparedWorker) -> Sequence[PartitionPreparation]:
        del worker
        return [Gate(self._executor)]


class GateFeature(Feature):
    name = "gate"

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        del start
        with ThreadPoolExecutor(1) as executor:
            yield RunningGate(executor)


def test_nothing_of_a_partition_is_called_before_it_is_ready(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    app = App("shop", features=FEATURES.plus(f"{__name__}:GateFeature"))
    called = Event()

    @app.handler("orders")
    def charge(_order: Record) -> None:
        happened.append("call")
        called.set()

    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"one", partition=0)
    file = tmp_path / "workers.yaml"
    workers = {"charge": {"group": "shop"}}
    file.write_text(yaml.safe_dump({"kafka": kafka_of(embedded), "workers": workers}))
    with app.start(file, start_timeout=WAIT_S):
        assert begun.wait(WAIT_S)
        gate.set()
        assert called.wait(WAIT_S)
    assert happened == ["begin orders[0]", "begin orders[0]", "open", "call"]
