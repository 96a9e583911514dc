"""The outbox: how fast a relay is, how long a record takes, and what kills cost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import sqlalchemy as sa
from attrs import frozen
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy.orm import Session

from benchmarks import children, usage
from benchmarks.records import records
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer.config import OutboxConfig
from window_consumer.database.outbox.relay import OutboxRelay
from window_consumer.database.outbox.sender import OutboxSender
from window_consumer.database.outbox.setup import OutboxDatabase
from window_consumer.database.outbox.table import Outbox, OutboxRow
from window_consumer.database.wire import sender_of
from window_consumer.kafka.batch_sending import Answer
from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import RunError
from window_consumer.model.produce import Produce
from window_consumer.runtime.log import own_logger
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_postgres import RealPostgres

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


@frozen
class _Place:
    """A database with an outbox."""

    url: str
    outbox: Outbox
    engine: sa.Engine

    def count(self) -> int:
        """Return how many rows there are."""
        with self.engine.connect() as connection:
            return int(connection.scalar(sa.select(sa.func.count(self.outbox.table.c.id))) or 0)

    def fill(self, topic: str, workload: Workload) -> None:
        """Add the workload's records."""
        wanted = [Produce(topic, key, value) for _, key, value in records(workload.topic)]
        with self.engine.begin() as connection:
            for first in range(0, len(wanted), _INSERTED_AT_ONCE):
                part = wanted[first : first + _INSERTED_AT_ONCE]
                self.outbox.insert(connection, self.outbox.rows(part))
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE wc_outbox")


@contextmanager
def _place() -> Iterator[_Place]:
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as directory,
        RealPostgres.start(Path(directory)) as postgres,
    ):
        metadata = sa.MetaData()
        outbox = Outbox(metadata)
        url = postgres.create_database("shop")
        engine = sa.create_engine(url)
        metadata.create_all(engine)
        yield _Place(url, outbox, engine)
        engine.dispose()


@contextmanager
def _relay(
    place: _Place, bootstrap: str, acked: dict[uuid.UUID, float] | None = None
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
    with _place() as place:
        for _ in range(2):
            place.fill(topic, workload)
            began = time.perf_counter()
            with _relay(place, topics.bootstrap) as relay:
                _until(lambda relay=relay: relay.figures().sent >= workload.topic.records)  # type: ignore[misc] # of a loop
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


def _bare_loop(place: _Place, bootstrap: str) -> None:
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
    with _place() as place:
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
            _until(lambda: relay.figures().sent >= workload.topic.records)
        lost = place.count()
    topics.delete(topic)
    waits = sorted(max(0.0, acked[each] - at) * 1e3 for each, at in committed.items())
    percentiles = quantiles(waits, n=100)
    return Run(
        workload.topic.records / seconds,
        lost=lost,
        notes={"p50_ms": percentiles[49], "p99_ms": percentiles[98]},
    )


def relay_kills(_topics: Topics, workload: Workload) -> Run:
    """Write rows while relays are killed with -9, one after the other, and the broker restarts."""
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as directory,
        RealKafka.start(Path(directory)) as kafka,
        _place() as place,
    ):
        topics = Topics(kafka.bootstrap)
        topics.make(_OWN_TOPIC)
        AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10)
        began = time.perf_counter()
        written = _write_while_killing(place, kafka, workload)
        _until(lambda: place.count() == 0)
        for relay in written.relays:
            relay.send_signal(signal.SIGTERM)
            relay.wait(_END_S)
        seconds = time.perf_counter() - began
        return _judged(_read(kafka.bootstrap), written.ids, len(written.ids) / seconds)


@frozen
class _Written:
    """What was written, and the relays that run in the end."""

    ids: dict[str, tuple[bytes, int]]
    """Key and number of each committed row, by its id."""
    relays: list[subprocess.Popen[bytes]]


def _write_while_killing(place: _Place, kafka: RealKafka, workload: Workload) -> _Written:
    command = children.command("outbox_relay", url=place.url, bootstrap=kafka.bootstrap)
    relays = [subprocess.Popen(command, cwd=children.CHECKOUT) for _ in range(_RELAYS)]
    ids: dict[str, tuple[bytes, int]] = {}
    each = workload.topic.records // _WRITERS

    def write(writer: int) -> None:
        # A writer has keys of its own: the order of its commits is that of the key.
        drawn = random.Random(writer)
        for number in range(each):
            key = b"%d-%d" % (writer, drawn.randrange(50))
            with place.engine.begin() as connection:
                row_id = place.outbox.add(connection, _OWN_TOPIC, key, b"%d" % number)
            ids[str(row_id)] = (key, number)
            time.sleep(0.001)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    for writer in writers:
        writer.start()
    for kill in range(workload.kills):
        goal = workload.topic.records * (kill + 1) // (workload.kills + 2)
        _until(lambda goal=goal: len(ids) >= goal)  # type: ignore[misc] # of a loop
        victim = kill % _RELAYS
        relays[victim].kill()
        relays[victim].wait()
        relays[victim] = subprocess.Popen(command, cwd=children.CHECKOUT)
        if kill == workload.kills // 2:
            kafka.restart()
    for writer in writers:
        writer.join()
    return _Written(ids, relays)


def _read(bootstrap: str) -> list[tuple[str, bytes, int]]:
    """Return id, key and number of all records, each partition in its order."""
    ends = Topics(bootstrap).log_ends(_OWN_TOPIC)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "wc-bench-reader"})
    found: list[tuple[str, bytes, int]] = []
    try:
        consumer.assign([TopicPartition(_OWN_TOPIC, each, 0) for each in range(PARTITIONS)])
        deadline = time.perf_counter() + _READ_S
        while len(found) < sum(ends.values()) and time.perf_counter() < deadline:
            for message in consumer.consume(10_000, 0.5):
                row_id = dict(message.headers() or ())["wc-id"].decode()  # type: ignore[union-attr] # ours
                found.append((row_id, message.key() or b"", int(message.value() or b"")))
    finally:
        consumer.close()
    return found


def _judged(
    found: list[tuple[str, bytes, int]], ids: dict[str, tuple[bytes, int]], rate: float
) -> Run:
    if strangers := {row_id for row_id, _, _ in found} - ids.keys():
        raise RunError(f"{len(strangers)} records have ids that no row has")
    times = Counter(row_id for row_id, _, _ in found)
    firsts: defaultdict[bytes, list[int]] = defaultdict(list)
    seen: set[str] = set()
    for row_id, key, number in found:
        if ids[row_id] != (key, number):
            raise RunError(f"record {row_id} is not what was committed")
        if row_id not in seen:
            seen.add(row_id)
            firsts[key].append(number)
    violations = sum(
        later < earlier for numbers in firsts.values() for earlier, later in pairwise(numbers)
    )
    return Run(
        rate,
        lost=len(ids.keys() - times.keys()),
        order_violations=violations,
        notes={"twice": float(sum(count - 1 for count in times.values()))},
    )


def run_relay(url: str, bootstrap: str) -> dict[str, Any]:
    """Relay until SIGTERM, as `window-consumer outbox run` does: a child process."""
    from window_consumer.cli.main import main  # noqa: PLC0415 - a process of its own

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "workers.yaml")
        config = {"kafka": {"bootstrap.servers": bootstrap}, "outbox": {"database": url}}
        file.write_text(json.dumps(config))
        main(["outbox", "run", "-c", str(file)])
    return {}


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _END_S
    while not holds():
        if time.perf_counter() > deadline:
            sys.exit("error: the outbox was not emptied in time")
        time.sleep(_LOOK_S)


RUNS: Final = {
    "outbox-relay": relay_rate,
    "outbox-latency": relay_latency,
    "outbox-kills": relay_kills,
}
"""By the work of the workload."""
