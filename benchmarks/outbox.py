"""The outbox: how fast a relay is, and how long a record takes."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import quantiles
from typing import Any, Final

from attrs import evolve, frozen
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from sqlalchemy.orm import Session

from benchmarks import children, usage
from benchmarks.outbox_place import OutboxPlace, place_with_outbox, until
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.relay import OutboxRelay, RelayRules
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.database.outbox.sender import (
    KafkaOutboxSender,
    OutboxSender,
    RelayTurn,
    RowsInFlight,
)
from window_consumer.database.outbox.setup import OutboxDatabase
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.batch_answers import Answer
from window_consumer.model.errors import RunError
from window_consumer.runtime.log import own_logger

BATCH: Final = 500
_END_S: Final = 120.0
_READ_S: Final = 30.0
_LOOK_S: Final = 0.02
_INSERTED_AT_ONCE: Final = 5_000
_FIRST: Final = 100
"""Rows before the measurement, of all lanes: each connects a client with its first one."""
_PER_S: Final = 100.0
"""Transactions of the latency's measurement: a busy web service."""

_OTHERS: Final[dict[str, dict[str, Any]]] = {"poll": {}, "notify": {"notify": True, "poll": "1m"}}
"""How a relay in another process learns of commits; its configuration."""


@contextmanager
def _relay(
    place: OutboxPlace, bootstrap: str, acked: dict[uuid.UUID, float] | None = None
) -> Iterator[OutboxRelay]:
    """Relay in a thread of this process; ``acked`` gets the times of acks."""
    database = OutboxDatabase.of(OutboxConfig(database=place.url))
    stop = threading.Event()
    sender = KafkaOutboxSender({"bootstrap.servers": bootstrap}, ClientLog(own_logger()), None)
    timed = sender if acked is None else _TimedSender(sender, acked)
    relay = OutboxRelay(database, timed, RelayRules.of(database.config), stop)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        relay.wake_up.set()
        thread.join()
        database.engine.dispose()


@frozen
class _TimedRows:
    """Records when their acks arrive."""

    rows: Sequence[OutboxRow]
    flight: RowsInFlight
    acked: dict[uuid.UUID, float]

    def answers(self, within_s: float) -> Sequence[Answer]:
        """See RowsInFlight."""
        answers = self.flight.answers(within_s)
        self.acked.update(dict.fromkeys((row.id for row in self.rows), time.perf_counter()))
        return answers


@frozen
class _TimedSender:
    """Records when the acks of a batch arrive."""

    sender: OutboxSender
    acked: dict[uuid.UUID, float]

    def begin(self, rows: Sequence[OutboxRow], timeout_s: float, turn: RelayTurn) -> RowsInFlight:
        """See OutboxSender."""
        return _TimedRows(rows, self.sender.begin(rows, timeout_s, turn), self.acked)


def relay_rate(topics: Topics, workload: Workload) -> Run:
    """Relay a full table, in turn with a loop written by hand that has the same statement."""
    topic = f"wc-bench-outbox-{uuid.uuid4().hex[:8]}"
    topics.make(topic)
    ours: list[float] = []
    theirs: list[float] = []
    used = usage.cpu_s()
    with place_with_outbox() as place:
        for _ in range(2):
            place.fill(topic, workload)
            began = time.perf_counter()
            with _relay(place, topics.bootstrap) as relay:
                until(lambda relay=relay: relay.figures().sent >= workload.topic.records)  # type: ignore[misc] # of a loop
            ours.append(time.perf_counter() - began)
            place.fill(topic, workload)
            began = time.perf_counter()
            _bare_loop(place, topics.bootstrap)
            theirs.append(time.perf_counter() - began)
        lost = place.count()
    written = _records_of(topics, topic, 4 * workload.topic.records)
    topics.delete(topic)
    return Run(
        workload.topic.records / min(ours),
        usage.cpu_s() - used,
        usage.max_rss_mb(),
        lost=lost,
        duplicates=written - 4 * workload.topic.records,
        ratios={"bare-loop": min(theirs) / min(ours)},
    )


def _records_of(topics: Topics, topic: str, most: int) -> int:
    """Count a topic's records; a commit takes an offset, too."""
    ends = topics.log_ends(topic)
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "wc-bench-reader"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    found = 0
    deadline = time.perf_counter() + _READ_S
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in ends])
        while messages := consumer.consume(10_000, 1.0 if found < most else 0.2):
            found += len(messages)
            if time.perf_counter() > deadline:
                break
    finally:
        consumer.close()
    return found


def _bare_loop(place: OutboxPlace, bootstrap: str) -> None:
    """Send and delete all rows as one would by hand, with the statement of the relay."""
    store = OutboxDatabase.of(OutboxConfig(database=place.url)).store
    statement = str(store.reading.selection.compile(place.engine))
    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", **settings})
    failed: list[object] = []

    def report(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    raw = place.engine.raw_connection()
    connection: Any = raw.driver_connection
    left = True
    while left:
        left = False
        for shard in range(place.outbox.shards):
            connection.execute("SET LOCAL synchronous_commit = off")
            bound = {"shard": shard, "batch": BATCH, "first": 0, "span": BATCH}
            rows = connection.execute(statement, bound).fetchall()
            for row in rows:
                row_id: list[tuple[str, str | bytes | None]] = [("wc-id", str(row[0]))]
                producer.produce(row[1], row[3], row[2], headers=row_id, on_delivery=report)
            producer.flush()
            ids = [row[0] for row in rows]
            connection.execute("DELETE FROM wc_outbox WHERE id = ANY(%s)", [ids])
            connection.commit()
            left = left or bool(rows)
    raw.close()
    if failed:
        raise RunError(f"the loop by hand lost {len(failed)} records: {failed[0]}")


def relay_latency(topics: Topics, workload: Workload) -> Run:
    """Measure rows with the relay in this process, and in another one.

    In this process the time runs from the commit to the ack, otherwise until the record is read.
    """
    run = _latency_here(topics, workload)
    notes = dict(run.notes)
    for name, config in _OTHERS.items():
        waits = _waits_of_other(topics, workload, config)
        percentiles = quantiles(waits, n=100)
        notes |= {f"{name}_p50_ms": percentiles[49], f"{name}_p99_ms": percentiles[98]}
    return evolve(run, notes=notes)


def _commit_first(place: OutboxPlace, topic: str) -> None:
    with place.engine.begin() as connection:
        for number in range(_FIRST):
            place.outbox.add(connection, topic, b"%d" % number, b"first")


def _commit_rows(
    place: OutboxPlace, topic: str, workload: Workload
) -> tuple[dict[uuid.UUID, float], float]:
    """Commit a row now and then; return the times, and the rows per second."""
    committed: dict[uuid.UUID, float] = {}
    began = time.perf_counter()
    for number in range(workload.topic.records):
        ideal = began + number / _PER_S
        time.sleep(max(0.0, ideal - time.perf_counter()))
        with Session(place.engine) as session:
            row_id = place.outbox.add(session, topic, b"%d" % (number % 100), b"x" * 100)
            session.commit()
        committed[row_id] = time.perf_counter()
    return committed, workload.topic.records / (time.perf_counter() - began)


def _waits_of_other(topics: Topics, workload: Workload, config: dict[str, Any]) -> list[float]:
    """Return the milliseconds from commits until the records of a relay elsewhere are read."""
    topic = f"wc-bench-outbox-{uuid.uuid4().hex[:8]}"
    topics.make(topic)
    found: dict[uuid.UUID, float] = {}
    stopped = threading.Event()
    reader = threading.Thread(target=_read_times, args=(topics, topic, found, stopped))
    with place_with_outbox(notify=bool(config.get("notify"))) as place:
        given = {"url": place.url, "bootstrap": topics.bootstrap, "outbox": config}
        relay = subprocess.Popen(children.command("outbox_relay", **given), cwd=children.CHECKOUT)
        reader.start()
        try:
            _commit_first(place, topic)
            until(lambda: len(found) == _FIRST)
            committed, _ = _commit_rows(place, topic, workload)
            until(lambda: len(found) == workload.topic.records + _FIRST)
        finally:
            stopped.set()
            reader.join()
            relay.terminate()
            relay.wait()
    topics.delete(topic)
    return [max(0.0, found[each] - at) * 1e3 for each, at in committed.items()]


def _read_times(
    topics: Topics, topic: str, found: dict[uuid.UUID, float], stopped: threading.Event
) -> None:
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "wc-bench-reader"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in topics.log_ends(topic)])
        while not stopped.is_set():
            if (message := consumer.poll(0.1)) is not None:
                row_id = dict(message.headers() or ())["wc-id"].decode()  # type: ignore[union-attr] # ours
                found.setdefault(uuid.UUID(row_id), time.perf_counter())
    finally:
        consumer.close()


def _latency_here(topics: Topics, workload: Workload) -> Run:
    topic = f"wc-bench-outbox-{uuid.uuid4().hex[:8]}"
    topics.make(topic)
    acked: dict[uuid.UUID, float] = {}
    with place_with_outbox() as place:
        with _relay(place, topics.bootstrap, acked) as relay:
            began = time.perf_counter()
            _commit_first(place, topic)
            until(lambda: relay.figures().sent == _FIRST)
            first_s = time.perf_counter() - began
            committed, per_s = _commit_rows(place, topic, workload)
            until(lambda: relay.figures().sent == workload.topic.records + _FIRST)
        lost = place.count()
    topics.delete(topic)
    waits = sorted(max(0.0, acked[each] - at) * 1e3 for each, at in committed.items())
    percentiles = quantiles(waits, n=100)
    return Run(
        per_s,
        lost=lost,
        notes={"p50_ms": percentiles[49], "p99_ms": percentiles[98], "first_ms": first_s * 1e3},
    )


RUNS: Final = {"outbox-relay": relay_rate, "outbox-latency": relay_latency}
"""By the work of the workload."""
