"""The delay service of a test: its configuration, external senders, and results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from attrs import define, field
from confluent_kafka import Producer

from tests import reading
from tests.commands import DEADLINE_S, Command, Commands
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message

LEVELS = ("1s", "2s")


@define
class DelayService:
    """A service that delivers to ``orders`` and to topics that begin with ``reminders-``."""

    kafka: Mapping[str, Any]
    commands: Commands
    topic: str = "wc.delay"
    sections: Mapping[str, Any] = field(factory=dict)
    """Further ones of the configuration."""

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic, *(f"{self.topic}.{each}" for each in LEVELS), f"{self.topic}.dlq")

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka["bootstrap.servers"], "log_level": 0}

    def configure(self, workers: Mapping[str, Any] | None = None, **section: Any) -> None:
        delay = {"to": ["orders", "reminders-*"], "levels": list(LEVELS), "topic": self.topic}
        delay |= section
        more = {**self.sections} if workers is None else {**self.sections, "workers": workers}
        self.commands.configure({"kafka": self.kafka, "delay": delay, **more})

    def start(self) -> Command:
        """Run the service; return once it reads its topics."""
        running = self.commands.start("delay", "run", "--log-format", "json")
        running.wait_for_event(LogEvent.PARTITIONS_ASSIGNED)
        return running

    def send(self, *keys: str, to: str | None = "orders", **headers: str | int) -> None:
        """Write records as a client in any language does; ``_`` in names is a dash."""
        pairs: list[tuple[str, str | bytes | None]] = []
        if to is not None:
            pairs.append(("wc-deliver-to", to))
        pairs += [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        producer = Producer(self.client)
        for key in keys:
            producer.produce(self.topic, b"value", key.encode(), headers=pairs)
        assert producer.flush(DEADLINE_S) == 0

    def cancel(self, *ids: str, value: bytes | None = b"yes", **headers: int) -> None:
        """Write cancellations as a client in any language does, or take them back."""
        pairs: list[tuple[str, str | bytes | None]] = [
            (name.replace("_", "-"), str(value)) for name, value in headers.items()
        ]
        producer = Producer(self.client)
        for each in ids:
            producer.produce(f"{self.topic}.cancel", value, each.encode(), headers=pairs)
        assert producer.flush(DEADLINE_S) == 0

    def wait_for(self, topic: str, count: int) -> dict[str, Message]:
        """Return the records of a topic by key, once it holds ``count`` keys."""
        deadline = time.monotonic() + DEADLINE_S
        while len(found := self._by_key(topic)) < count:
            assert time.monotonic() < deadline, f"{topic} has {len(found)} records of {count}"
            time.sleep(0.05)
        assert len(found) == count
        return found

    def _by_key(self, topic: str) -> dict[str, Message]:
        return {each.key().decode(): each for each in reading.read_all(self.client, topic)}
