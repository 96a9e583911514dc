"""The page on migration: a client of the page, a worker and the client again, in one group.

On a real Kafka: a group of the embedded broker takes no member of the clients' protocol later on.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from attrs import define, field
from confluent_kafka import Producer

from tests.commands import DEADLINE_S
from tests.conftest import MakeTopic
from tests.docs.pages import ROOT, blocks
from tests.waiting import wait_until
from window_consumer.testing.real_kafka import RealKafka

PAGE = ROOT / "docs/migration.md"
LOOPS = ["confluent_loop.py", "kafka_python_loop.py"]
PARTITIONS = 2

# kafka-python 3.0 reads its protocol's schemas as Python 3.11 does not like it.
pytestmark = pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated")


class KilledError(Exception):
    """The loop's process ends here."""


@define
class Shop:
    """What loop and handler call: it refuses some orders, and stops or ends the loop after one."""

    charged: list[int] = field(factory=list)
    refused: set[int] = field(factory=set)
    stopping: threading.Event = field(factory=threading.Event)
    awaited: set[int] = field(factory=set)
    deadly: int = -1

    def charge(self, order: dict[str, int]) -> None:
        number = order["id"]
        if number in self.refused:
            raise ConnectionError("refused")
        self.charged.append(number)
        if number == self.deadly:
            raise KilledError
        if self.awaited.issubset(self.charged):
            self.stopping.set()


@define
class Group:
    """The page's group; order N is in the partition N modulo 2."""

    loop: str
    bootstrap: str
    directory: Path
    shop: Shop
    names: dict[str, str]
    """The page's names of topic and group, and those of this test."""
    sent: int = 0

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.sent, self.sent + count):
            value = json.dumps({"id": number})
            producer.produce(
                self.names["orders"], value, f"{number}", partition=number % PARTITIONS
            )
        assert producer.flush(60) == 0
        self.sent += count

    def run_loop(self, *expected: int) -> None:
        """Run the page's loop until it has charged these, and nothing else before."""
        self._begin(*expected)
        in_vain = threading.Timer(DEADLINE_S, self.shop.stopping.set)
        in_vain.start()
        try:
            self._program(self.loop).main()
        finally:
            in_vain.cancel()
        assert sorted(self.shop.charged) == sorted(expected)

    def run_worker(self, *expected: int, cell_records: int = 500) -> None:
        """Run the page's worker until it has charged these, and stop it in good order."""
        self._begin(*expected)
        (block,) = blocks(PAGE, "yaml")
        config = yaml.safe_load(self._renamed(block.text))
        config["kafka"] = {"bootstrap.servers": self.bootstrap}
        retry = {"backoff": "1ms..5ms", "on_failure": "block"}
        config["workers"]["charge"] |= {"retry": retry, "window": {"cell_records": cell_records}}
        file = self.directory / "workers.yaml"
        file.write_text(json.dumps(config))
        with self._program("handlers.py").app.start(file, start_timeout=60):
            wait_until(self.shop.stopping.is_set, DEADLINE_S, f"{expected}")
        assert sorted(self.shop.charged) == sorted(expected)

    def _begin(self, *expected: int) -> None:
        self.shop.charged.clear()
        self.shop.stopping.clear()
        self.shop.awaited = set(expected)

    def _program(self, file: str) -> Any:
        (text,) = [each.text for each in blocks(PAGE, "python") if each.file == file]
        module = ModuleType(file.removesuffix(".py"))
        exec(self._renamed(text), module.__dict__)  # noqa: S102 - the page's own
        return module

    def _renamed(self, text: str) -> str:
        for before, after in self.names.items():
            text = text.replace(before, after)
        return text


@pytest.fixture(params=LOOPS)
def group(
    request: pytest.FixtureRequest,
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Group:
    names = {"shop-charge": unique_name("takeover"), "orders": make_topic("orders", PARTITIONS)}
    shop = Shop()
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    return Group(request.param, kafka.bootstrap, tmp_path, shop, names)


def test_a_worker_takes_over_and_gives_back_without_a_loss_or_a_repetition(group: Group) -> None:
    group.send(5)
    group.run_loop(0, 1, 2, 3, 4)
    group.send(5)
    group.run_worker(5, 6, 7, 8, 9)
    group.send(2)
    group.run_loop(10, 11)


def test_what_the_loop_had_handled_and_not_committed_runs_again(group: Group) -> None:
    group.send(4)
    group.shop.deadly = 2
    with pytest.raises(KilledError):
        group.run_loop(0, 1, 2, 3)
    committed = set(group.shop.charged) - {2}
    group.shop.deadly = -1
    group.run_worker(*({0, 1, 2, 3} - committed))


@pytest.mark.parametrize("cell_records", [1, 500])
def test_given_back_with_a_record_unfinished_its_cell_and_what_follows_run_again(
    group: Group, cell_records: int
) -> None:
    group.send(10)
    group.shop.refused = {6}
    group.run_worker(0, 1, 2, 3, 4, 5, 7, 8, 9, cell_records=cell_records)
    group.shop.refused = set()
    group.run_loop(*range(6 if cell_records == 1 else 0, 10, PARTITIONS))


def test_taken_over_again_only_the_unfinished_record_runs(group: Group) -> None:
    group.send(10)
    group.shop.refused = {4}
    group.run_worker(0, 1, 2, 3, 5, 6, 7, 8, 9)
    group.shop.refused = set()
    group.send(1)
    group.run_worker(4, 10)
