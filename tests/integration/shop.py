"""An application that runs inside of the test, and everything that the test saw of it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import Factory, define, field, frozen
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests import reading, topics
from tests.integration.stalls import Stalls
from tests.logged import lines_of
from tests.waiting import wait_until
from window_consumer import App, Record
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.embedded import NewRecord
from window_consumer.kafka.errors import translate
from window_consumer.model import headers as names
from window_consumer.model.errors import BrokerUnavailableError, Fatal
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message
from window_consumer.runtime.running import Running
from window_consumer.testing.events import (
    DeadLettered,
    Ended,
    Event,
    LogEnd,
    OffsetCommitted,
    OutlivedLogged,
    Produced,
    Started,
    in_order,
)
from window_consumer.testing.guarantees import (
    CommittedReachesEnd,
    Guarantee,
    NothingLost,
    OneAtATimePerKey,
    OrderPerKey,
    check,
)

DEADLINE_S = 60.0
"""Far more than anything takes here, so that a busy machine breaks no test."""

Behaviour = Callable[[Record], object]


@frozen
class Call:
    """A record as a handler saw it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    attempt: int
    wall_ms: float = 0.0
    """When it began, milliseconds since 1970."""

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


_OUTLIVED = {LogEvent.CALL_OUTLIVED, LogEvent.CALL_OUTLIVED_SOURCE}


class LogLines(logging.Handler):
    """The messages that an application has logged so far."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, event: LogEvent) -> list[str]:
        """Return the texts of an event's lines."""
        return [each.getMessage() for each in lines_of(list(self.records), event)]

    def containing(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in list(self.records)]


@define(eq=False)
class Shop:
    """One worker, ``work``, of one application. ``behave`` is its handler's behaviour."""

    client: Mapping[str, Any]
    topic: str
    group: str
    directory: Path
    behave: Behaviour = field(default=lambda _: None)
    produced: list[Produced] = Factory(list)
    calls: list[Call] = Factory(list)
    """Every handler call, in the order of their beginning."""
    events: list[Event] = Factory(list)
    log: LogLines = Factory(LogLines)
    stalls: Stalls = Factory(Stalls)

    # ---- running

    @contextmanager
    def running(
        self, *, kafka: Mapping[str, Any] | None = None, **worker: Any
    ) -> Iterator[Running]:
        """Run the worker; leaving the block stops it and raises its failure, if any."""
        app = self._app()
        config = self.directory / f"{self.group}.yaml"
        config.write_text(json.dumps(self._config(kafka or {}, worker)))
        logger = logging.getLogger("window_consumer")
        level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self.log)
        try:
            with self.stalls.watched(), app.start(config, start_timeout=DEADLINE_S) as running:
                yield running
        finally:
            logger.removeHandler(self.log)
            logger.setLevel(level)

    def _app(self) -> App:
        app = App("tests", version="1")
        app.handler(name="work")(self._handle)
        return app

    def _config(self, kafka: Mapping[str, Any], worker: Mapping[str, Any]) -> Mapping[str, Any]:
        source = {} if "patterns" in worker else {"topics": [self.topic]}
        ours = {"group": self.group, "commit_interval": "100ms", "stop_timeout": "5s", **source}
        merged = {**ours, "kafka": dict(kafka), **worker}
        given = {key: value for key, value in merged.items() if value is not None}
        return {"kafka": dict(self.client), "workers": {"work": given}}

    def _handle(self, record: Record) -> object:
        with self.noted(record):
            return self.behave(record)

    @contextmanager
    def noted(self, record: Record) -> Iterator[None]:
        """Record that a call begins, and how it ends."""
        call = Call(
            record.topic,
            record.partition,
            record.offset,
            record.key,
            record.value,
            record.headers,
            record.attempt,
            time.time() * 1000,
        )
        key = None if call.key is None else call.key.decode("latin-1")
        thread = threading.current_thread().name
        place = (thread, call.topic, call.partition, call.offset, key)
        self.calls.append(call)
        self.events.append(Started(*place, time.monotonic(), call.attempt))
        try:
            yield
        except Fatal:
            self.events.append(Ended(*place, time.monotonic(), "spent", call.attempt))
            raise
        except BaseException:
            self.events.append(Ended(*place, time.monotonic(), "failed", call.attempt))
            raise
        self.events.append(Ended(*place, time.monotonic(), "done", call.attempt))

    # ---- writing

    def produce(self, values: Iterable[object], *, keys: int = 0, partition: int = -1) -> None:
        """Write values, with ``keys`` different keys in turn if it is not 0."""
        self.write(
            NewRecord(
                str(value).encode(),
                b"k%d" % (number % keys) if keys else None,
                (),
                None if partition < 0 else partition,
            )
            for number, value in enumerate(values)
        )

    def write(self, records: Iterable[NewRecord], topic: str | None = None) -> None:
        """Write records and remember where they are."""
        topic = topic or self.topic
        producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": self.client["bootstrap.servers"],
                "message.max.bytes": 100_000_000,
                # A new topic refuses some requests; retries must not reorder.
                "enable.idempotence": True,
            }
        )

        def on_delivery(error: Any, message: Any) -> None:
            assert error is None, error
            key = message.key()
            place = (topic, message.partition(), message.offset())
            text = None if key is None else key.decode("latin-1")
            self.produced.append(Produced(*place, text, f"{place}"))

        before, count = len(self.produced), 0
        for record in records:
            count += 1
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=-1 if record.partition is None else record.partition,
                on_delivery=on_delivery,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert len(self.produced) == before + count

    # ---- waiting

    def until(self, what: Callable[[], bool], why: str) -> None:
        def or_tell() -> str:
            return f"{why}; {len(self.calls)} calls; the log:\n" + "\n".join(self.log.lines[-30:])

        def so() -> bool:
            try:
                return what()
            except BrokerUnavailableError:
                return False  # a group's coordinator is not there before its first member is

        try:
            wait_until(so, DEADLINE_S, why)
        except AssertionError as error:
            raise AssertionError(or_tell()) from error

    def until_open(self, *offsets: int, partition: int = 0) -> None:
        """Wait until a commit, with its finished ranges, covers all records but these."""
        self.until(lambda: self.uncovered(partition) == list(offsets), f"{offsets} alone are open")

    def until_said(self, text: str, *, times: int = 1) -> None:
        self.until(lambda: len(self.log.containing(text)) >= times, f"the log says {text!r}")

    def until_logged(
        self, event: LogEvent, *, about: str = "", times: int = 1, **fields: Any
    ) -> None:
        """Wait for ``times`` lines of an event with these fields, and this datum in the text."""

        def found() -> bool:
            lines = lines_of(list(self.log.records), event, **fields)
            return sum(about in each.getMessage() for each in lines) >= times

        self.until(found, f"the log has {event} {about} {fields} {times} times")

    def until_called(self, calls: int) -> None:
        self.until(lambda: len(self.calls) >= calls, f"{calls} calls")

    def until_reading(self) -> None:
        self.until_logged(
            LogEvent.PARTITIONS_ASSIGNED, about=f": {self.topic}[", partitions=self._partitions()
        )

    def until_committed(self) -> None:
        """Wait until everything that is in the topic is committed."""
        self.until(lambda: self.committed() == self.ends(), f"committed = end, {self.topic}")

    def until_committed_at(self, offsets: Mapping[int, int]) -> None:
        """Wait until exactly these offsets are committed."""
        self.until(lambda: self.committed() == offsets, f"committed = {offsets}, {self.topic}")

    def _partitions(self) -> int:
        return len(reading.spans(self.plain, self.topic))

    # ---- looking

    @property
    def plain(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.client["bootstrap.servers"], "log_level": 0}

    @property
    def dlq(self) -> str:
        return f"{self.group}.{self.topic}.dlq"

    def ends(self) -> dict[int, int]:
        found = reading.spans(self.plain, self.topic)
        return {partition: span.end for partition, span in found.items()}

    def committed(self) -> dict[int, int]:
        return committed_offsets(self.plain, self.group, self.topic, timeout_s=30)

    def metadata(self, partition: int = 0) -> str | None:
        with self.outsider() as consumer:
            name = ClientPartition(self.topic, partition)
            try:
                return consumer.committed([name], timeout=30)[0].metadata
            except KafkaException as exception:
                raise translate(exception.args[0], f"offsets of {self.group}") from exception

    def uncovered(self, partition: int = 0) -> list[int]:
        """Return the offsets that would run again if the worker died now."""
        note = decode(self.metadata(partition))
        finished = note.finished if note else ()
        return [
            offset
            for offset in range(self.committed().get(partition, 0), self.ends()[partition])
            if not any(offset in each for each in finished)
        ]

    def commit_by_hand(self, offset: int, *, partition: int = 0, metadata: str = "") -> None:
        """Commit as an administrator does: from outside, while the group is empty."""
        name = ClientPartition(self.topic, partition, offset, metadata)
        with self.outsider() as consumer:
            wait_until(lambda: _commits(consumer, name), 30, "an empty group takes the commit")

    @contextmanager
    def outsider(self) -> Iterator[Consumer]:
        consumer = Consumer({**self.plain, "group.id": self.group, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()

    def dead_letters(self) -> list[Message]:
        return reading.read_all(self.plain, self.dlq)

    def places(self, since: int = 0) -> list[tuple[int, int]]:
        """Return partition and offset of each call, sorted, without the first ``since`` calls."""
        return sorted(call.place for call in self.calls[since:])

    # ---- the cluster

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        topics.make(AdminClient(self.plain), topic)

    def delete_topic(self, name: str) -> None:
        topics.delete(AdminClient(self.plain), name)

    def set_topic(self, topic: str, key: str, value: str) -> None:
        """Change one setting of a topic."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient(self.plain)
        admin.incremental_alter_configs([resource])[resource].result(timeout=30)

    # ---- judging

    def history(self, *, until_end: bool = True) -> list[Event]:
        """Return all that was seen, the committed offsets and ends of the logs included."""
        found: list[Event] = [*self.produced, *self.events]
        for record in list(self.log.records):
            fields = vars(record)
            if fields.get("event") in _OUTLIVED:
                place = fields["topic"], fields["partition"], fields["offset"]
                found.append(OutlivedLogged(*place))
        if until_end:
            now = time.monotonic()
            for partition, offset in self.committed().items():
                found.append(OffsetCommitted(self.topic, partition, offset, now))
            for partition, offset in self.ends().items():
                if offset:
                    found.append(LogEnd(self.topic, partition, offset))
        return list(in_order(found))

    def dead_lettered(self) -> list[DeadLettered]:
        found = []
        for message in self.dead_letters():
            fields = dict(message.headers() or ())
            place = (fields[names.ORIGINAL_PARTITION], fields[names.ORIGINAL_OFFSET])
            partition, offset = (int(each or b"") for each in place)
            topic = (fields[names.ORIGINAL_TOPIC] or b"").decode()
            found.append(DeadLettered(topic, partition, offset))
        return found

    def violations(self, *more: Guarantee, copies: bool = False) -> list[str]:
        """Check everything that must hold at the end, and ``more``."""
        always = (NothingLost(), OrderPerKey(), OneAtATimePerKey(), CommittedReachesEnd())
        events = [*(self.dead_lettered() if copies else ()), *self.history()]
        return check(events, *always, *more)


def fails_on(*values: bytes) -> Behaviour:
    """Fail for these values, each time; the others are done."""

    def behave(record: Record) -> None:
        if record.value in values:
            raise ValueError(record.value)

    return behave


def _commits(consumer: Consumer, name: ClientPartition) -> bool:
    """Return whether the broker takes a commit; it refuses while the group has members."""
    try:
        consumer.commit(offsets=[name], asynchronous=False)
    except KafkaException:
        return False
    return True
