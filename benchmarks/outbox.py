"""The outbox: how fast a relay is, and how long a record takes."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import quantiles
from typing import Any, Final

from attrs import frozen
from confluent_kafka import Message, Producer
from sqlalchemy.orm import Session

from benchmarks import usage
from benchmarks.outbox_place import OutboxPlace, place_with_outbox, until
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import Workload
from window_consumer.config import OutboxConfig
from window_consumer.database.outbox.relay import OutboxRelay
from window_consumer.database.outbox.sender import OutboxSender
from window_consumer.database.outbox.setup import OutboxDatabase
from window_consumer.database.outbox.table import OutboxRow
from window_consumer.database.wire import sender_of
from window_consumer.kafka.batch_sending import Answer
from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import RunError
from window_consumer.runtime.log import own_logger

BATCH: Final = 500
_END_S: Final = 120.0
_READ_S: Final = 30.0
_LOOK_S: Final = 0.02
_INSERTED_AT_ONCE: Final = 5_000
_PER_S: Final = 100.0
"""Transactions of the latency's measurement: a busy web service."""

_RELAYS: Final = 4
_WRITERS: Final = 2
_OWN_TOPIC: Final = "wc-bench-outbox-kills"


@contextmanager
def _relay(
    place: OutboxPlace, bootstrap: str, acked: dict[uuid.UUID, float] | None = None
) -> Iterator[OutboxRelay]:
    """Relay in a thread of this process; ``acked`` gets the times of acks."""
    database = OutboxDatabase.of(OutboxConfig(database=place.url, batch=BATCH))
    stop = threading.Event()
    sender = sender_of({"bootstrap.servers": bootstrap}, ClientLog(own_logger()), None)
    timed = sender if acked is None else _TimedSender(sender, acked)
    relay = OutboxRelay(database, timed, database.rules(), stop)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        relay.wake_up.set()
        thread.join()
        sender.close(5.0)
        database.engine.dispose()


@frozen
class _TimedSender:
    """Takes the time when the acks of a batch are there."""

    sender: OutboxSender
    acked: dict[uuid.UUID, float]

    def send(self, rows: Sequence[OutboxRow], timeout_s: float) -> Sequence[Answer]:
        """See OutboxSender."""
        answers = self.sender.send(rows, timeout_s)
        self.acked.update(dict.fromkeys((row.id for row in rows), time.perf_counter()))
        return answers

    def close(self, timeout_s: float) -> None:
        """See OutboxSender."""
        self.sender.close(timeout_s)


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
    written = sum(topics.log_ends(topic).values())
    topics.delete(topic)
    return Run(
        workload.topic.records / min(ours),
        usage.cpu_s() - used,
        usage.max_rss_mb(),
        lost=lost,
        duplicates=written - 4 * workload.topic.records,
        ratios={"bare-loop": min(theirs) / min(ours)},
    )


def _bare_loop(place: OutboxPlace, bootstrap: str) -> None:
    """Send and delete all rows as one would by hand, with the statement of the relay."""
    store = OutboxDatabase.of(OutboxConfig(database=place.url)).store
    statement = str(store.selection.compile(place.engine))
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
            bound = {"shard": shard, "batch": BATCH}
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
    """Commit a row now and then; take the time from the commit to the ack."""
    topic = f"wc-bench-outbox-{uuid.uuid4().hex[:8]}"
    topics.make(topic)
    acked: dict[uuid.UUID, float] = {}
    committed: dict[uuid.UUID, float] = {}
    with place_with_outbox() as place:
        with _relay(place, topics.bootstrap, acked) as relay:
            began = time.perf_counter()
            for number in range(workload.topic.records):
                ideal = began + number / _PER_S
                time.sleep(max(0.0, ideal - time.perf_counter()))
                with Session(place.engine) as session:
                    row_id = place.outbox.add(session, topic, b"%d" % (number % 100), b"x" * 100)
                    session.commit()
                committed[row_id] = time.perf_counter()
            seconds = time.perf_counter() - began
            until(lambda: relay.figures().sent >= workload.topic.records)
        lost = place.count()
    topics.delete(topic)
    waits = sorted(max(0.0, acked[each] - at) * 1e3 for each, at in committed.items())
    percentiles = quantiles(waits, n=100)
    return Run(
        workload.topic.records / seconds,
        lost=lost,
        notes={"p50_ms": percentiles[49], "p99_ms": percentiles[98]},
    )


RUNS: Final = {
    "outbox-relay": relay_rate,
    "outbox-latency": relay_latency,
}
"""By the work of the workload."""
