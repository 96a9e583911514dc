"""Fair shares in a worker on the embedded broker."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from tests.commands import kafka_of
from tests.golden_texts import Golden
from tests.raw_records import BROKEN_NAME, write_raw
from tests.waiting import wait_until
from window_consumer import App, ConfigError, Record, Running
from window_consumer.engine.shares_snapshot import NONE
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord

WAIT_S = 30.0
TENANT = "header('tenant')"


def in_windows(running: Running) -> int:
    worker = running.snapshots().get("charge")
    return 0 if worker is None else sum(each.open for each in worker.partitions)


class FairShop:
    """A worker with two slots that share, and the classes of its calls in their order."""

    def __init__(self, broker: EmbeddedBroker, folder: Path):
        self.broker = broker
        self.file = folder / "workers.yaml"
        self.called: list[str] = []
        self.sent = 0

    def send(self, tenant: str, records: int, topic: str = "orders") -> None:
        headers = [("tenant", tenant.encode())]
        new = [NewRecord(b"%d" % at, b"%d" % at, headers) for at in range(records)]
        self.broker.fill(topic, new)
        self.sent += records

    def app(self, *topics: str, **keys: Any) -> App:
        app = App("shop")
        self.gate = Event()

        @app.handler(*topics)
        def charge(record: Record) -> None:
            self.gate.wait(WAIT_S)
            self.called.append(f"{record.topic} {(record.header('tenant') or b'').decode()}")
            time.sleep(0.002)

        worker = {"group": "g", "concurrency": 2, **keys}
        content = {"kafka": kafka_of(self.broker), "workers": {"charge": worker}}
        self.file.write_text(yaml.safe_dump(content))
        return app

    def run(self, *topics: str, **keys: Any) -> list[str]:
        """Let the first calls wait until all records are in windows; return all calls."""
        app = self.app(*topics, **keys)
        with app.start(self.file, start_timeout=WAIT_S) as running:
            wait_until(lambda: in_windows(running) == self.sent, WAIT_S, "all records are there")
            self.gate.set()
            wait_until(lambda: len(self.called) == self.sent, WAIT_S, "all calls")
        return self.called


@pytest.fixture
def shop(embedded: EmbeddedBroker, tmp_path: Path) -> FairShop:
    for topic in ("orders", "urgent"):
        embedded.create_topic(topic, 1)
    return FairShop(embedded, tmp_path)


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_a_small_tenant_is_not_behind_a_large_one(shop: FairShop, ordering: str) -> None:
    shop.send("big", 200)
    shop.send("small", 20)
    retry = {} if ordering == "unordered" else {"retry": {"on_failure": "block"}}
    called = shop.run("orders", fair={"by": TENANT}, ordering=ordering, **retry)
    last = max(at for at, each in enumerate(called) if each == "orders small")
    # Order comes first: a partition in order has no choice.
    assert last == 219 if ordering == "partition" else last < 60


def test_a_topic_with_a_higher_weight_runs_first(shop: FairShop) -> None:
    shop.send("", 100)
    shop.send("", 100, "urgent")
    fair = {"by": "topic", "order": "strict", "weights": {"urgent": 10}, "floor": "0%"}
    called = shop.run("orders", "urgent", fair=fair)
    assert sum(each.startswith("orders") for each in called[:100]) <= 2


@pytest.mark.parametrize(("at_most", "most"), [(2, 2), ("25%", 8)])
def test_a_number_bounds_a_class_that_is_alone_and_a_percentage_does_not(
    shop: FairShop, at_most: int | str, most: int
) -> None:
    shop.send("a", 40)
    app, gate = App("shop"), Event()
    running, peaks, done = set[int](), list[int](), list[int]()

    @app.handler("orders")
    def charge(record: Record) -> None:
        running.add(record.offset)
        peaks.append(len(running))
        if len(running) == most:
            gate.set()
        gate.wait(WAIT_S)
        time.sleep(0.002)
        running.discard(record.offset)
        done.append(record.offset)

    worker = {"group": "g", "concurrency": 8, "fair": {"by": TENANT, "at_most": at_most}}
    content = {"kafka": kafka_of(shop.broker), "workers": {"charge": worker}}
    shop.file.write_text(yaml.safe_dump(content))
    with app.start(shop.file, start_timeout=WAIT_S):
        wait_until(lambda: len(done) == 40, WAIT_S, "all calls")
    assert max(peaks) == most


def test_the_class_beyond_ten_thousand_joins_those_without_one(shop: FairShop) -> None:
    count = 10_001
    tenants = [b"t%d" % at for at in range(count)]
    shop.broker.fill("orders", [NewRecord(each, b"", [("tenant", each)]) for each in tenants])
    app, gate = App("shop"), Event()

    @app.handler("orders")
    def charge(_: Record) -> None:
        gate.wait(WAIT_S)

    worker = {"group": "g", "concurrency": 2, "fair": {"by": TENANT}}
    content = {"kafka": kafka_of(shop.broker), "workers": {"charge": worker}}
    shop.file.write_text(yaml.safe_dump(content))
    with app.start(shop.file, start_timeout=WAIT_S) as running:
        wait_until(lambda: in_windows(running) == count, WAIT_S, "all records are there")
        shares = running.snapshots()["charge"].shares
        assert shares is not None
        assert shares.overflow == 1
        gate.set()


def test_retries_in_levels_belong_to_the_class_of_their_record(shop: FairShop) -> None:
    shop.send("a", 30)
    app = App("shop")
    calls: list[int] = []

    @app.handler("orders")
    def charge(record: Record) -> None:
        calls.append(record.attempt)
        if record.attempt == 1:
            raise ValueError("not yet")

    worker = {
        "group": "g",
        "fair": {"by": TENANT, "at_most": 1},
        "retry": {"attempts": 1, "levels": ["100ms"]},
    }
    content = {"kafka": kafka_of(shop.broker), "workers": {"charge": worker}}
    shop.file.write_text(yaml.safe_dump(content))
    with app.start(shop.file, start_timeout=WAIT_S):
        wait_until(lambda: len(calls) == 60, WAIT_S, "all records are called twice")
    assert sorted(calls) == [1] * 30 + [2] * 30


def test_a_batch_handler_has_no_classes(shop: FairShop, golden: Golden) -> None:
    app = App("shop")

    @app.batch_handler("orders")
    def charge(records: list[Record]) -> None:
        """Do nothing."""

    worker = {"group": "g", "fair": {"by": "key"}}
    content = {"kafka": kafka_of(shop.broker), "workers": {"charge": worker}}
    shop.file.write_text(yaml.safe_dump(content))
    with golden.raises(ConfigError):
        app.plan(shop.file)


def test_whatever_a_header_holds_makes_a_class(shop: FairShop) -> None:
    long = b"x" * 1024
    tenants = [b"default", b"(none)", b"", b"\xff\xfe", long + b"1", long + b"2"]
    gate, app = Event(), App("shop")

    @app.handler("orders")
    def charge(_: Record) -> None:
        gate.wait(WAIT_S)

    shop.broker.fill("orders", [NewRecord(b"none", b"none")])
    shop.broker.fill("orders", [NewRecord(each, each, [("tenant", each)]) for each in tenants])
    write_raw(shop.broker.bootstrap, "orders", b"broken", headers=[(BROKEN_NAME, b"of somebody")])
    worker = {"group": "g", "concurrency": 1, "fair": {"by": TENANT, "weights": {"default": 2}}}
    content = {"kafka": kafka_of(shop.broker), "workers": {"charge": worker}}
    shop.file.write_text(yaml.safe_dump(content))
    with app.start(shop.file, start_timeout=WAIT_S) as running:
        wait_until(lambda: in_windows(running) == 8, WAIT_S, "all records are there")
        shares = running.snapshots()["charge"].shares
        assert shares is not None
        seen = {each.name: each.waiting + each.slots for each in shares.largest}
        gate.set()
        wait_until(lambda: in_windows(running) == 0, WAIT_S, "all are finished")
    assert seen.pop(NONE) == 2, "without a header, and with headers that nobody can read"
    assert len(seen) == len(tenants)
    assert set(seen.values()) == {1}
    assert {"default", '"(none)"', '""', "\\xff\\xfe"} < seen.keys()
    counters = running.counters["charge"]
    assert (counters.processed, counters.dead_lettered) == (7, 1)
