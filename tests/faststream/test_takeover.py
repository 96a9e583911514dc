"""The service of docs/faststream.md: FastStream, a worker and FastStream again, in one group."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from attrs import define, field
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.conftest import ConsumerOf, MakeTopic
from tests.docs.pages import ROOT, blocks
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka import RealKafka

PAGE = ROOT / "docs" / "faststream.md"
FILES = {each.file: each.text for each in blocks(PAGE, "python")}
PROMPT = {"fetch.wait.max.ms": 10}
"""The embedded broker answers a fetch no earlier."""


@define
class Service:
    """The page's service on a cluster, and a consumer of its invoices."""

    bootstrap: str
    topics: Mapping[str, str]
    """The page's names, and those on this cluster."""
    directory: Path
    invoices: Consumer
    consumer_settings: Mapping[str, Any] = PROMPT
    received: list[Message] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.invoices.assign([TopicPartition(self.topics["invoices"], 0, 0)])

    def order(self, amount: int) -> None:
        value = json.dumps({"customer": "ann", "amount": amount})
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.topics["orders"], value, key="ann")
        assert producer.flush(60) == 0

    def wait_for(self, *totals: float) -> None:
        """Wait for so many invoices, and check all of them."""

        def are_there() -> bool:
            self.received += self.invoices.consume(10, 0.1)
            return len(self.received) >= len(totals)

        wait_until(are_there, why=f"{len(totals)} invoices")
        assert [json.loads(each.value() or b"")["total"] for each in self.received] == list(totals)

    def run_faststream(self, *totals: float) -> None:
        """Run the service until there are these invoices, and stop it in good order."""

        async def run(broker: Any) -> None:
            await broker.start()
            try:
                await asyncio.to_thread(self.wait_for, *totals)
            finally:
                await broker.stop()

        with self._modules("service") as service:
            asyncio.run(run(service.app.broker))

    def run_worker(self, *totals: float) -> Any:
        """Run the worker in the same way; return FastStream's broker."""
        (block,) = blocks(PAGE, "yaml")
        config = yaml.safe_load(block.text)
        kafka = {"bootstrap.servers": self.bootstrap, "consumer": dict(self.consumer_settings)}
        file = self.directory / "workers.yaml"
        file.write_text(json.dumps({**config, "kafka": kafka}))
        with self._modules("worker") as worker, worker.app.start(file, start_timeout=60):
            self.wait_for(*totals)
            return worker.broker

    @contextmanager
    def _modules(self, name: str) -> Iterator[Any]:
        """Yield a module of the page, as a new process has it."""
        names = {**self.topics, "shop": self.topics["orders"], "localhost:9092": self.bootstrap}
        with pytest.MonkeyPatch.context() as patch:
            for file in ("shop", name):
                text = FILES[f"{file}.py"]
                for before, after in names.items():
                    text = text.replace(f'"{before}"', f'"{after}"')
                text = text.replace("logger=None", f"logger=None, config={PROMPT}")
                module = ModuleType(file)
                patch.setitem(sys.modules, file, module)
                exec(text, module.__dict__)  # noqa: S102 - the page's own
            yield module


@pytest.fixture
def on_embedded(embedded: EmbeddedBroker, tmp_path: Path, consumer_of: ConsumerOf) -> Iterator[Any]:
    topics = {name: name for name in ("orders", "invoices")}
    for name in topics:
        embedded.create_topic(name, 1)
    # A group stays in the protocol of its first member, unlike in Kafka.
    settings = {**PROMPT, "group.protocol": "classic"}
    with consumer_of({"bootstrap.servers": embedded.bootstrap}, **PROMPT) as consumer:
        yield Service(embedded.bootstrap, topics, tmp_path, consumer, settings)


@pytest.fixture
def on_kafka(
    kafka: RealKafka, tmp_path: Path, consumer_of: ConsumerOf, make_topic: MakeTopic
) -> Iterator[Any]:
    topics = {name: make_topic(name) for name in ("orders", "invoices")}
    with consumer_of({"bootstrap.servers": kafka.bootstrap}) as consumer:
        yield Service(kafka.bootstrap, topics, tmp_path, consumer)


def test_a_worker_continues_where_faststream_has_stopped_with_the_same_messages(
    on_embedded: Service,
) -> None:
    on_embedded.order(10)
    on_embedded.run_faststream(12)
    on_embedded.order(10)
    broker = on_embedded.run_worker(12, 12)
    assert (broker._connection, broker.running) == (None, False)  # it has connected to nothing
    theirs, ours = on_embedded.received
    assert (theirs.key(), theirs.value()) == (ours.key(), ours.value())
    sent, produced = (dict(each.headers() or ()) for each in (theirs, ours))
    assert sent.pop("correlation_id") != produced.pop("correlation_id")  # drawn for each message
    assert sent == {name: value for name, value in produced.items() if name[:3] != "wc-"}


def test_a_group_moves_to_a_worker_and_back(on_kafka: Service) -> None:
    on_kafka.order(10)
    on_kafka.run_faststream(12)
    on_kafka.order(20)
    on_kafka.run_worker(12, 24)
    on_kafka.order(30)
    on_kafka.run_faststream(12, 24, 36)
