"""Fair shares with every form of handlers, with routes, and with a topic that is recreated."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import kafka_of
from tests.fair import in_children
from tests.fair.in_children import FIRST
from tests.fair.test_worker import TENANT, WAIT_S, in_windows
from tests.waiting import wait_until
from window_consumer import App, Record, Running
from window_consumer.engine.shares_snapshot import ShareSnapshot
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.testing.real_kafka import RealKafka

SLOTS = 2
BIG, SMALL = 400, 20
"""By arrival, the small tenant has the last calls. With shares it has half of the slots' time, and
is through far before the other one; how far is a matter of what the calls happened to take."""


class GatedShop:
    """A worker with two slots, which calls hold until the test opens the gate."""

    def __init__(self, kafka: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.kafka = kafka
        self.file = folder / "workers.yaml"
        self.calls = folder / "calls"
        self.gate = folder / "gate"
        for file, variable in ((self.calls, in_children.CALLS), (self.gate, in_children.GATE)):
            file.touch()
            monkeypatch.setenv(variable, str(file))

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()

    def start(self, app: App, **keys: Any) -> Running:
        worker = {"group": "g", "concurrency": SLOTS, "fair": {"by": TENANT}, **keys}
        content = {"kafka": self.kafka, "workers": {"charge": worker}}
        self.file.write_text(yaml.safe_dump(content))
        return app.start(self.file, start_timeout=WAIT_S)

    @contextmanager
    def started(self, app: App, **keys: Any) -> Iterator[Running]:
        """Start a worker whose slots are all held until the test calls ``free``."""
        with self.gate.open() as self._lock:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            with self.start(app, **keys) as running:
                wait_until(lambda: of_class(running, FIRST).slots == SLOTS, WAIT_S, "all are held")
                yield running

    def free(self) -> None:
        """Let the calls that hold the slots end."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def until_called(self, count: int) -> list[str]:
        """Return so many calls in their order."""
        wait_until(lambda: len(self.called()) == count, WAIT_S, f"{count} calls")
        return self.called()


@pytest.fixture
def shop(embedded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GatedShop:
    for topic in ("orders", "urgent"):
        embedded.create_topic(topic, 1)
    return GatedShop(kafka_of(embedded), tmp_path, monkeypatch)


def records_of(tenant: str, count: int) -> list[NewRecord]:
    headers = [("tenant", tenant.encode())]
    return [NewRecord(b"value", b"%s %d" % (tenant.encode(), at), headers) for at in range(count)]


def last_of(called: list[str], tenant: str) -> int:
    return max(at for at, each in enumerate(called) if each.endswith(f"/{tenant}"))


def of_class(running: Running, name: str) -> ShareSnapshot:
    """Return what is shown of a class."""
    worker = running.snapshots().get("charge")
    shares = None if worker is None else worker.shares
    found = [] if shares is None else [each for each in shares.largest if each.name == name]
    return found[0] if found else ShareSnapshot(name, 0, 0, 0, 0)


@pytest.mark.parametrize("form", ["coroutines", "processes"])
def test_coroutines_and_child_processes_have_classes(
    embedded: EmbeddedBroker, shop: GatedShop, form: str
) -> None:
    embedded.fill("orders", records_of(FIRST, SLOTS))
    app = in_children.with_coroutines() if form == "coroutines" else in_children.app
    keys = {"pool": form} if form == "processes" else {}
    retry = {"on_failure": "block"}
    with shop.started(app, topics=["orders"], ordering="key", retry=retry, **keys) as running:
        embedded.fill("orders", [*records_of("big", BIG), *records_of("small", SMALL)])
        wait_until(lambda: in_windows(running) == SLOTS + BIG + SMALL, WAIT_S, "all are there")
        shop.free()
        called = shop.until_called(BIG + SMALL)
    assert last_of(called, "small") < BIG
    assert Counter(called) == {"charge/orders/big": BIG, "charge/orders/small": SMALL}


def test_classes_reach_across_topics_and_the_handlers_of_a_worker(
    embedded: EmbeddedBroker, shop: GatedShop
) -> None:
    """Records of the small tenant are behind those of the big one in both topics."""
    embedded.fill("orders", records_of(FIRST, SLOTS))
    with shop.started(in_children.with_routes(), handler=["paid", "refunded"]) as running:
        for topic in ("orders", "urgent"):
            tenants = [*records_of("big", BIG // 2), *records_of("small", SMALL // 2)]
            embedded.fill(topic, tenants)
        wait_until(lambda: in_windows(running) == SLOTS + BIG + SMALL, WAIT_S, "all are there")
        shop.free()
        called = shop.until_called(BIG + SMALL)
    assert last_of(called, "small") < BIG
    assert Counter(called) == {
        "paid/orders/big": BIG // 2,
        "paid/urgent/big": BIG // 2,
        "refunded/orders/small": SMALL // 2,
        "refunded/urgent/small": SMALL // 2,
    }


def test_nothing_of_a_topic_that_was_recreated_is_left_in_classes(
    kafka: RealKafka,
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic("orders", 1)
    client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "fetch.wait.max.ms": 10}
    shop = GatedShop(client, tmp_path, monkeypatch)
    send(kafka, topic, FIRST, SLOTS)
    with shop.started(in_children.app, topics=[topic], group=topic) as running:
        send(kafka, topic, "old", 50)
        wait_until(lambda: of_class(running, "old").waiting == 50, WAIT_S, "the old ones wait")
        new = NewTopic(topic, num_partitions=1, replication_factor=1)
        topics.make_anew(AdminClient({"bootstrap.servers": kafka.bootstrap}), new)
        send(kafka, topic, "new", 30)
        wait_until(lambda: of_class(running, "new").waiting == 30, WAIT_S, "the new ones wait")
        assert of_class(running, "old").waiting == 0
        shop.free()
        called = shop.until_called(30)
        wait_until(lambda: of_class(running, "new").slots == 0, WAIT_S, "the slots are free")
        assert of_class(running, FIRST).slots == 0
    assert set(called) == {f"charge/{topic}/new"}


def send(kafka: RealKafka, topic: str, tenant: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(count):
        producer.produce(topic, b"value", headers=[("tenant", tenant.encode())])
    assert producer.flush(WAIT_S) == 0


class Permits:
    """Calls of two tenants that end as the test permits."""

    def __init__(self) -> None:
        self.left = {"a": Semaphore(0), "b": Semaphore(0)}
        self.running: dict[str, set[int]] = {"a": set(), "b": set()}
        self.peaks: list[int] = []
        """How many calls of a ran when one of them began."""
        self.ended: list[str] = []

    def call(self, record: Record) -> None:
        tenant = (record.header("tenant") or b"").decode()
        running = self.running[tenant]
        running.add(record.offset)
        if tenant == "a":
            self.peaks.append(len(running))
        self.left[tenant].acquire(timeout=WAIT_S)
        running.discard(record.offset)
        self.ended.append(tenant)

    def until(self, a: int, b: int, *, ended: int = 0) -> None:
        """Wait until so many calls run, after so many of a have ended."""

        def is_so() -> bool:
            sizes = len(self.running["a"]), len(self.running["b"])
            return sizes == (a, b) and self.ended.count("a") >= ended

        wait_until(is_so, WAIT_S, f"{a} of a and {b} of b run")


def test_a_percentage_bounds_a_class_only_while_another_one_waits(
    embedded: EmbeddedBroker, shop: GatedShop
) -> None:
    permits, app = Permits(), App("shop")
    app.handler("orders", name="charge")(permits.call)
    embedded.fill("orders", records_of("a", 60))
    with shop.start(app, concurrency=8, fair={"by": TENANT, "at_most": "25%"}) as running:
        permits.until(a=8, b=0)
        embedded.fill("orders", records_of("b", 10))
        wait_until(lambda: of_class(running, "b").waiting == 10, WAIT_S, "b waits")
        permits.left["a"].release(8)
        permits.until(a=2, b=2, ended=8)
        permits.peaks.clear()
        permits.left["a"].release(20)
        permits.until(a=2, b=2, ended=28)
        assert max(permits.peaks) == 2
        permits.left["b"].release(10)
        permits.until(a=8, b=0)
        permits.left["a"].release(32)
