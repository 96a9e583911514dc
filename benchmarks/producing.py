"""``Producer``: how fast ``send`` is, and what it loses when a broker ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any, cast

from attrs import asdict, define, evolve, field
from confluent_kafka import Consumer
from confluent_kafka import Producer as ClientProducer
from confluent_kafka import TopicPartition as ClientPartition

from benchmarks import children, usage
from benchmarks.cluster import Cluster, three_brokers
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer import Producer, SendFuture
from window_consumer.model.errors import RunError

_SETTINGS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "zstd",
    "linger.ms": 5,
    "message.timeout.ms": 0,
    "queue.buffering.max.messages": 131_072,
}
"""The settings of ``Producer``, for the loop written by hand."""

_END_S = 120.0


def send(bootstrap: str, topic: str, sender: str, records: int, size: int) -> Any:
    """Send records in a tight loop until the brokers have all; one of three senders."""
    value = b"x" * size
    used, began = usage.cpu_s(), time.perf_counter()
    if sender == "ours":
        _send(bootstrap, topic, value, records)
    else:
        _produce(bootstrap, topic, value, records, with_id=sender == "confluent")
    seconds = time.perf_counter() - began
    return asdict(Run(records / seconds, usage.cpu_s() - used, usage.max_rss_mb()))


def _send(bootstrap: str, topic: str, value: bytes, records: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for _ in range(records):
            producer.send(topic, value=value)
        if left := producer.flush(_END_S):
            raise RunError(f"{left} records were not acked")


def _produce(bootstrap: str, topic: str, value: bytes, records: int, *, with_id: bool) -> None:
    """Produce as confluent's guide does: with a callback, and a poll after each record."""
    producer = ClientProducer({"bootstrap.servers": bootstrap, **_SETTINGS})
    acked = 0

    def on_delivery(error: Any, _: Any) -> None:
        nonlocal acked
        if error is not None:
            raise RunError(str(error))
        acked += 1

    for number in range(records):
        headers: Any = [("wc-id", f"0123456789abcdef01-{number}")] if with_id else None
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(_END_S)
    if acked != records:
        raise RunError(f"{records - acked} records were not acked")


_turn = cycle((("ours", "confluent", "confluent-bare"), ("confluent-bare", "confluent", "ours")))


def run_send(topics: Topics, workload: Workload) -> Run:
    """Run the three senders one after the other, in alternating order."""
    spec = workload.topic
    rates: dict[str, dict[str, Any]] = {}
    for sender in next(_turn):
        topic = f"wc-bench-{sender}-{time.time_ns()}"
        topics.make(topic)
        rates[sender] = children.run(
            "producing",
            bootstrap=topics.bootstrap,
            topic=topic,
            sender=sender,
            records=spec.records,
            size=spec.value_bytes,
        )
        topics.delete(topic)
    ours = rates.pop("ours")
    per_s = ours["records_per_s"]
    return Run(
        per_s,
        ours["cpu_s"],
        ours["max_rss_mb"],
        ratios={sender: per_s / each["records_per_s"] for sender, each in rates.items()},
    )


# ---- a broker that ends

KEYS = 16
_LOAD_S = 4.0
_PER_S = 2_000


@define
class _Load:
    """Sends numbers, counted for each key, until it is stopped."""

    producer: Producer
    topic: str
    futures: list[SendFuture] = field(factory=list)
    stopped: threading.Event = field(factory=threading.Event)
    failed: list[BaseException] = field(factory=list)

    def run(self) -> None:
        """Send."""
        try:
            while not self.stopped.is_set():
                began = time.monotonic()
                for _ in range(_PER_S // 20):
                    count = len(self.futures)
                    value = str(count // KEYS)
                    self.futures.append(
                        self.producer.send(self.topic, f"key-{count % KEYS}", value)
                    )
                self.stopped.wait(max(0.0, began + 0.05 - time.monotonic()))
        except BaseException as error:
            self.failed.append(error)


def run_kills(_: Topics, workload: Workload) -> Run:
    """Kill, pause and restart one of three brokers, in turn, while records are sent.

    Partitions change their leaders each time, and once more when the broker is back.
    """
    topic = f"wc-bench-kills-{time.time_ns()}"
    with three_brokers() as cluster:
        cluster.make(topic, PARTITIONS)
        moved = 0
        with Producer({"bootstrap.servers": cluster.bootstrap}, max_block="120s") as producer:
            began = time.perf_counter()
            load = _Load(producer, topic)
            thread = threading.Thread(target=load.run, name="wc-bench-load")
            thread.start()
            trouble = cycle((_kill, _pause, _restart))
            for number in range(workload.kills):
                time.sleep(_LOAD_S)
                next(trouble)(cluster, topic, number % len(cluster.nodes))
                moved += cluster.move_leaders(topic)
            time.sleep(_LOAD_S)
            load.stopped.set()
            thread.join()
            left = producer.flush(_END_S)
            seconds = time.perf_counter() - began
        if load.failed:
            raise RunError(f"send raised {load.failed[0]!r}")
        if moved < workload.kills:
            raise RunError(f"only {moved} partitions had another leader: nothing was shown")
        run = _judge(load, left, _read(cluster.bootstrap, topic), seconds)
        return evolve(run, notes={**run.notes, "leaders_moved": float(moved)})


def _kill(cluster: Cluster, topic: str, place: int) -> None:
    cluster.nodes[place].kill()
    cluster.wait_led_by_others(topic, place)
    cluster.nodes[place].restart()


def _pause(cluster: Cluster, topic: str, place: int) -> None:
    cluster.nodes[place].pause()
    try:
        cluster.wait_led_by_others(topic, place)
    finally:
        cluster.nodes[place].resume()


def _restart(cluster: Cluster, topic: str, place: int) -> None:
    cluster.nodes[place].stop()
    cluster.wait_led_by_others(topic, place)
    cluster.nodes[place].restart()


Found = tuple[str, int, str]
"""A record's key, number and id."""


def _read(bootstrap: str, topic: str) -> list[Found]:
    """Read a topic to its end, in the order of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "wc-bench", "enable.auto.commit": False}
    )
    found: list[Found] = []
    try:
        for partition in range(PARTITIONS):
            place = ClientPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, 10)
            consumer.assign([place])
            offset = 0
            while offset < end:
                for each in consumer.consume(10_000, 0.5):
                    if each.error() is not None:
                        raise RunError(str(each.error()))
                    offset = int(each.offset() or 0) + 1
                    given = dict(cast("Any", each.headers()) or ())
                    key, number = str(each.key()), int(each.value() or b"")
                    found.append((key, number, str(given["wc-id"])))
    finally:
        consumer.close()
    return found


def _judge(load: _Load, left: int, found: list[Found], seconds: float) -> Run:
    """Count what was lost, what came twice with another id, and what came too late."""
    ids: dict[tuple[str, int], str] = {}
    last: dict[str, int] = {}
    twice = late = again = 0
    for key, number, record_id in found:
        if (key, number) in ids:
            again += 1
            twice += ids[key, number] != record_id
            continue
        ids[key, number] = record_id
        late += number < last.get(key, -1)
        last[key] = max(number, last.get(key, -1))
    sent = len(load.futures)
    failed = sum(each.exception(0) is not None for each in load.futures if each.done())
    return Run(
        sent / seconds,
        lost=sent - len(ids),
        duplicates=twice,
        order_violations=late,
        notes={
            "twice": float(twice),
            "again_with_the_same_id": float(again),
            "failed": float(failed),
            "without_answer": float(left),
            "sent": float(sent),
        },
    )


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {
    "producer": run_send,
    "producer-kills": run_kills,
}
