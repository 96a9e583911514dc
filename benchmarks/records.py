"""Writes records: a whole topic at full speed, or a stream at a steady rate."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

from benchmarks.workloads import PARTITIONS, SLOW_MARK, TopicSpec
from window_consumer.model.errors import RunError
from window_consumer.model.headers import ID

_SEED = 20_240
_FLUSH_S = 120.0
_TICK_S = 0.01


def records(spec: TopicSpec) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Yield partition, key and value of each record, the same ones every time.

    The partitions take turns. The keys are random, so a key's records may be close together, as in
    practice. Each key has one partition.
    """
    rng = random.Random(_SEED)
    per_partition = spec.keys // PARTITIONS
    slow: set[int] = set()
    if spec.slow_one_in:
        slow = set(rng.sample(range(spec.records), spec.records // spec.slow_one_in))
    plain = b"x" * spec.value_bytes
    marked = plain.replace(b"x" * len(SLOW_MARK), SLOW_MARK, 1)
    for number in range(spec.records):
        partition = number % PARTITIONS
        key = None
        if per_partition:
            key = b"%d" % (rng.randrange(per_partition) * PARTITIONS + partition)
        yield partition, key, marked if number in slow else plain


def write(bootstrap: str, topic: str, spec: TopicSpec, lasts_s: float = 0.0) -> dict[str, Any]:
    """Write a topic's records: evenly within ``lasts_s`` seconds, or at full speed."""
    writer = Writer(bootstrap, topic)
    begun = time.perf_counter()
    per_tick = max(1, round(spec.records * _TICK_S / lasts_s)) if lasts_s else 0
    for number, (partition, key, value) in enumerate(records(spec)):
        if per_tick and number % per_tick == 0:
            due = begun + lasts_s * number / spec.records
            writer.serve(max(0.0, due - time.perf_counter()))
        writer.write(partition, key, value, _id(number) if spec.ids else None)
    writer.finish()
    return {"seconds": time.perf_counter() - begun}


def _id(number: int) -> bytes:
    """Return a record's id, as long as a UUID's text."""
    return b"00000000-0000-7000-8000-%012x" % number


class Writer:
    """A producer that keeps the order and records failures."""

    def __init__(self, bootstrap: str, topic: str):
        self._topic = topic
        self._failed: Any = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
            }
        )

    def write(
        self, partition: int, key: bytes | None, value: bytes, record_id: bytes | None = None
    ) -> None:
        """Write a record; wait where the client's queue is full."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition=partition,
                    on_delivery=self._on_delivery,
                    headers=None if record_id is None else [(ID, record_id)],
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def serve(self, seconds: float) -> None:
        """Process the client's reports, then sleep."""
        self._producer.poll(0)
        if seconds:
            time.sleep(seconds)

    def finish(self) -> None:
        """Wait until everything is acked. Raises RunError if a record is not."""
        left = self._producer.flush(_FLUSH_S)
        if self._failed is not None or left:
            why = self._failed or f"{left} records were not acked within {_FLUSH_S:g} s"
            raise RunError(f"{self._topic} could not be filled: {why}")

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed = error
