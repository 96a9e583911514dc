"""The group of docs/migration.md, which the page's worker takes over and gives back."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from attrs import define, field
from confluent_kafka import Producer

from tests.commands import DEADLINE_S
from tests.docs.pages import ROOT, blocks
from tests.waiting import wait_until

PAGE = ROOT / "docs/migration.md"
PARTITIONS = 2


class KilledError(Exception):
    """The loop's process ends here."""


@define
class Shop:
    """The shop that loop and handler call: it refuses some orders, and stops or ends the loop after
    one."""

    charged: list[int] = field(factory=list)
    refused: set[int] = field(factory=set)
    stopping: threading.Event = field(factory=threading.Event)
    awaited: set[int] = field(factory=set)
    deadly: int = -1

    def expect(self, *numbers: int) -> None:
        """Stop the loop once these are charged."""
        self.charged.clear()
        self.stopping.clear()
        self.awaited = set(numbers)

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

    bootstrap: str
    topic: str
    directory: Path
    shop: Shop
    names: dict[str, str]
    """The page's names and addresses, and this test's replacements."""
    sent: int = 0

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.sent, self.sent + count):
            value = json.dumps({"id": number})
            producer.produce(self.topic, value, f"{number}", partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        self.sent += count

    def run_worker(
        self, *expected: int, topics: Collection[str] = (), cell_records: int = 500
    ) -> None:
        """Run the page's worker until it has charged these, and stop it in good order."""
        self.shop.expect(*expected)
        file = self.config(topics, cell_records)
        with self.program("handlers.py").app.start(file, start_timeout=60):
            wait_until(self.shop.stopping.is_set, DEADLINE_S, f"{expected}")
        assert sorted(self.shop.charged) == sorted(expected)

    def config(self, topics: Collection[str] = (), cell_records: int = 500) -> Path:
        """Write the page's workers.yaml, with short retries, and return its path."""
        (block,) = blocks(PAGE, "yaml")
        config = yaml.safe_load(self.renamed(block.text))
        config["kafka"] = {"bootstrap.servers": self.bootstrap}
        retry = {"backoff": "1ms..5ms", "on_failure": "block"}
        config["workers"]["charge"] |= {"retry": retry, "window": {"cell_records": cell_records}}
        if topics:
            config["workers"]["charge"]["topics"] = [*topics]
        file = self.directory / "workers.yaml"
        file.write_text(json.dumps(config))
        return file

    def program(self, file: str) -> Any:
        """Run one of the page's programs as a module, and return it."""
        module = ModuleType(file.removesuffix(".py"))
        exec(self.text(file), module.__dict__)  # noqa: S102 - the page's own
        return module

    def text(self, file: str) -> str:
        """Return one of the page's programs, with the names of this test."""
        (text,) = [each.text for each in blocks(PAGE, "python") if each.file == file]
        return self.renamed(text)

    def renamed(self, text: str) -> str:
        for before, after in self.names.items():
            text = text.replace(before, after)
        return text


@define
class Foreign:
    """A program of another library: a process that appends its shop's calls to a file."""

    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]

    def run(self, *expected: int, refused: Collection[int] = ()) -> None:
        """Run it until it has charged these, and stop it with SIGTERM.

        It refuses what shall be refused each time, and has tried it as often as it is named.
        """
        file, log = self.directory / "calls", self.directory / "log"
        file.write_text("")
        environment = {"CALLS": str(file), "REFUSED": ",".join(map(str, refused))}
        with log.open("a") as output:
            running = subprocess.Popen(
                self.command,
                cwd=self.directory,
                env=os.environ | self.environment | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

        def calls(outcome: str) -> list[int]:
            lines = [line.split() for line in file.read_text().splitlines()]
            return [int(number) for said, number in lines if said == outcome]

        def tried() -> bool:
            assert running.poll() is None, log.read_text()[-3000:]
            awaited = Counter(refused) - Counter(calls("refused"))
            return not awaited and set(expected).issubset(calls("charged"))

        try:
            wait_until(tried, DEADLINE_S, f"{expected}; its log is {log}")
            running.terminate()
            running.wait(DEADLINE_S)
        finally:
            running.kill()
            running.wait()
        assert sorted(calls("charged")) == sorted(expected)
