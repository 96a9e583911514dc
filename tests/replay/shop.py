"""A worker's topics on some broker, and the command line beside them."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define
from confluent_kafka import Producer

from tests import reading
from tests.commands import DEADLINE_S, Command, Commands, Ended
from window_consumer.model.errors import MissingTopicError
from window_consumer.model.protocols import Headers
from window_consumer.model.record import Message

T0 = 1_790_000_000_000
"""The time of the first record, ms since 1970; each offset of a partition is a second later."""

TIME = "2026-09-21T14:13:{:02d}"
"""Seconds after 14:13:00, which is 20 s before T0."""


def at(second: int) -> str:
    """Return the time of the record ``second`` of a partition, as the command line takes it."""
    assert second < 40
    return TIME.format(20 + second)


@define
class ReplayShop:
    """One worker, ``charge``, that reads ``source``."""

    kafka: Mapping[str, Any]
    """The section ``kafka`` of its configuration."""
    source: str
    group: str
    commands: Commands
    create: Callable[[str], None]
    """Creates a topic."""

    @property
    def entry(self) -> str:
        return f"{self.group}.{self.source}.retry.now"

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka["bootstrap.servers"], "log_level": 0}

    def configure(self, **worker: Any) -> None:
        charge = {"topics": [self.source], "group": self.group, **worker}
        self.commands.configure({"kafka": self.kafka, "workers": {"charge": charge}})

    def with_another_topic(self) -> str:
        """Let the worker read a second topic, with an entry topic, and return its name."""
        another = f"{self.source}-2"
        for name in (another, f"{self.group}.{another}.retry.now"):
            self.create(name)
        self.configure(topics=[self.source, another])
        return another

    def produce(
        self,
        count: int,
        *,
        partition: int = 0,
        headers: Headers = (("user", b"\xff"), ("user", None)),
        begin: int = 0,
        value: Callable[[int], bytes | None] = lambda number: b"value %d" % number,
    ) -> None:
        """Write records whose times are a second apart; every third is a tombstone."""
        producer = Producer(self.client)
        for number in range(begin, begin + count):
            content = None if number % 3 == 2 else value(number)
            producer.produce(
                self.source,
                content,
                b"key %d" % number,
                partition,
                timestamp=T0 + number * 1000,
                headers=list(headers),
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    def start(self, *options: str) -> Command:
        return self.commands.start("replay", "--worker", "charge", *options)

    def run(self, *options: str) -> Ended:
        return self.start(*options).wait()

    def replay(self, *options: str) -> dict[str, Any]:
        ended = self.run("--json", *options)
        assert ended.code == 0, ended.said
        found: dict[str, Any] = ended.json
        return found

    def copies(self) -> list[Message]:
        """Return the records of the entry topic; none if it does not exist."""
        try:
            return reading.read_all(self.client, self.entry)
        except MissingTopicError:
            return []

    def replayed(self) -> list[tuple[int, int]]:
        """Return partition and offset of the records whose copies are in the entry topic."""
        return sorted(origin_of(each) for each in self.copies())

    def times(self) -> Counter[tuple[int, int]]:
        """Return how often each record was copied."""
        return Counter(self.replayed())

    def wait_for_copies(self, count: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with reading.reader_of(self.client) as reader:

            def written() -> int:
                try:
                    return sum(span.end for span in reader.spans(self.entry).values())
                except MissingTopicError:
                    return 0

            while written() < count:
                assert time.monotonic() < deadline, f"there are no {count} copies"

    def kill(self, command: Command) -> None:
        command.signal(signal.SIGKILL)
        command.process.wait(DEADLINE_S)


def origin_of(copy: Message) -> tuple[int, int]:
    fields = dict(copy.headers())
    return int(fields["wc-orig-partition"]), int(fields["wc-orig-offset"])


def offsets(partition: int, numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(partition, each) for each in numbers]
