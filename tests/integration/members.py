"""Several processes of one group, and the history that they leave."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests import fork_server
from tests.commands import Line, is_of, log_lines
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.events import (
    Event,
    Killed,
    LogEnd,
    OffsetCommitted,
    OutlivedLogged,
    Produced,
    from_line,
    in_order,
)

REPOSITORY = Path(__file__).parents[2]


@define
class Member:
    """One process of the group."""

    name: str
    process: fork_server.Forked
    journal: Path
    log: Path

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def lines_of(self, event: LogEvent, **fields: Any) -> list[Line]:
        """Return the log lines of an event that have these fields."""
        lines = log_lines(self.log.read_text(errors="replace"))
        return [each for each in lines if is_of(each, event, fields)]

    def has(self, event: LogEvent, **fields: Any) -> bool:
        """Return whether it has logged an event with these fields."""
        return bool(self.lines_of(event, **fields))

    def stop(self, timeout_s: float = 90) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> Killed:
        self.process.kill()
        self.process.wait(60)
        return Killed(self.name, time.monotonic())

    def events(self) -> Iterator[Event]:
        if self.journal.exists():
            yield from (from_line(line) for line in self.journal.read_text().splitlines())
        for event in (LogEvent.CALL_OUTLIVED, LogEvent.CALL_OUTLIVED_SOURCE):
            for line in self.lines_of(event):
                yield OutlivedLogged(line["topic"], line["partition"], line["offset"])


@define
class Members:
    """Starts members of one group and collects their calls."""

    bootstrap: str
    topic: str
    group: str
    directory: Path
    worker: Mapping[str, Any]
    work_s: float = 0.001
    members: list[Member] = field(factory=list)
    killed: list[Killed] = field(factory=list)

    def start(
        self, application: str = "tests.integration.member:app", *, instance: str = ""
    ) -> Member:
        """Start one; settings may contain ``${INSTANCE}``, which is its name if nothing else."""
        name = f"m{len(self.members)}"
        config = self.directory / "workers.yaml"
        config.write_text(
            json.dumps(
                {
                    "kafka": {"bootstrap.servers": self.bootstrap},
                    "workers": {
                        "work": {"topics": [self.topic], "group": self.group, **self.worker}
                    },
                }
            )
        )
        journal, log = self.directory / f"{name}.journal", self.directory / f"{name}.log"
        environment = {
            **os.environ,
            "MEMBER": name,
            "INSTANCE": instance or name,
            "JOURNAL": str(journal),
            "WORK_S": str(self.work_s),
        }
        with log.open("wb") as output:
            process = fork_server.start(
                [
                    *("run", application, "-c", str(config)),
                    *("--log-format", "json", "--start-timeout", "30s"),
                ],
                REPOSITORY,
                environment,
                output=output,
            )
        member = Member(name, process, journal, log)
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        self.killed.append(member.kill())

    def last_words(self, lines: int = 40) -> str:
        """Return the end of each member's log, for the message of a test that fails."""
        return "\n".join(
            f"--- {member.name}\n"
            + "\n".join(member.log.read_text(errors="replace").splitlines()[-lines:])
            for member in self.members
        )

    @property
    def alive(self) -> Sequence[Member]:
        return [member for member in self.members if member.process.poll() is None]

    def calls(self) -> int:
        """Count the calls that are over, from the size of the journals."""
        text = b"".join(
            member.journal.read_bytes() for member in self.members if member.journal.exists()
        )
        return text.count(b'"Ended"')

    def has_called_since(self, calls: int) -> bool:
        """Return whether work went on, or is all done: quick members are through before the end."""
        return self.calls() > calls or self.all_committed()

    def ends(self) -> dict[int, int]:
        return log_ends(self.bootstrap, self.topic)

    def committed(self) -> dict[int, int]:
        return committed_offsets({"bootstrap.servers": self.bootstrap}, self.group, self.topic)

    def all_committed(self) -> bool:
        """Return whether all is committed; not while the group's coordinator is nowhere."""
        try:
            return self.committed() == self.ends()
        except BrokerUnavailableError:
            return False

    def stop_all(self) -> list[int]:
        for member in self.alive:
            member.process.send_signal(signal.SIGTERM)
        return [member.process.wait(90) for member in self.members]

    def kill_all(self) -> None:
        for member in self.alive:
            member.process.kill()
            member.process.wait(60)

    def history(self, produced: Sequence[Produced]) -> list[Event]:
        now = time.monotonic()
        events: list[Event] = [*produced, *self.killed]
        for member in self.members:
            events.extend(member.events())
        for partition, offset in self.committed().items():
            events.append(OffsetCommitted(self.topic, partition, offset, now))
        for partition, offset in self.ends().items():
            events.append(LogEnd(self.topic, partition, offset))
        return list(in_order(events))


def produce(bootstrap: str, topic: str, count: int, keys: int) -> list[Produced]:
    """Write records with round-robin keys; return where each of them is."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    produced: list[Produced] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        key, value = message.key().decode(), message.value().decode()
        produced.append(Produced(topic, message.partition(), message.offset(), key, value))

    for number in range(count):
        producer.produce(topic, key=f"k{number % keys}", value=str(number), on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert len(produced) == count
    return produced


SHORT_MS, LONG_MS = 3_000, 45_000
"""Half of the usual time of the tests' Kafka, and as long as a client's own default."""


def set_session(bootstrap: str, group: str, timeout_ms: int) -> None:
    """Make a group of the consumer protocol remove a member that is silent for this long."""
    entry = ConfigEntry(
        "consumer.session.timeout.ms", str(timeout_ms), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(timeout=30)


def log_ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)[
                1
            ]
            for partition in partitions
        }
    finally:
        consumer.close()
