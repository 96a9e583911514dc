"""Redrives of dead letters: timed as a whole, and killed midway."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks import children, usage
from benchmarks.records import records
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, TopicSpec, Workload
from window_consumer.app.features import FEATURES
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, tune
from window_consumer.config import load
from window_consumer.dlq.redrive import RedriveCounts
from window_consumer.dlq.redrive_setup import RedriveJob, RedriveRequest, redrive_jobs
from window_consumer.model import headers as names
from window_consumer.model.errors import RunError
from window_consumer.plan.feature_list import FeatureList

_CHECK_S = 0.01
_END_S = 120.0
_READ_S = 30.0
_STACK = b"shop.py:12 in charge\n" * 40


def dead_letter_topic(group: str, topic: str) -> str:
    """Return the name of the dead-letter topic to fill."""
    return f"{group}.{topic}.dlq"


def entry_topic(group: str, topic: str) -> str:
    """Return the name of the topic that they go back to."""
    return f"{group}.{topic}.retry.now"


def fill(bootstrap: str, topic: str, group: str, spec: TopicSpec) -> dict[str, Any]:
    """Write dead letters as workers do, with all their headers."""
    begun = time.perf_counter()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number, (partition, key, value) in enumerate(records(spec)):
        ours = _headers(topic, group, partition, number)
        while True:
            try:
                producer.produce(
                    dead_letter_topic(group, topic), value, key, partition, headers=ours
                )
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(_END_S):
        raise RunError(f"{left} dead letters were not acked")
    return {"seconds": time.perf_counter() - begun}


def _headers(
    topic: str, group: str, partition: int, number: int
) -> list[tuple[str, str | bytes | None]]:
    return [
        ("tenant", b"eu"),
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (names.ID, b"%d" % number),
        (names.ORIGINAL_TOPIC, topic.encode()),
        (names.ORIGINAL_PARTITION, b"%d" % partition),
        (names.ORIGINAL_OFFSET, b"%d" % number),
        (names.ORIGINAL_TIMESTAMP, b"1700000000000"),
        (names.FORMAT, names.FORMAT_VERSION),
        (names.GROUP, group.encode()),
        (names.HANDLER, b"charge"),
        (names.APP_VERSION, b"7"),
        (names.REASON, b"RETRIES_EXHAUSTED"),
        (names.ERROR_CLASS, b"shop.InvalidOrder"),
        (names.ERROR_FINGERPRINT, b"0123456789abcdef"),
        (names.ATTEMPTS, b"3"),
        (names.FIRST_FAILURE, b"1700000000000"),
        (names.LAST_FAILURE, b"1700000001000"),
        (names.ERROR_MESSAGE, b"no card"),
        (names.ERROR_STACK, _STACK),
    ]


def run(bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Put all dead letters back as the command does; timed without the start."""
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    job = _job(bootstrap, topic, group)
    counts = RedriveCounts()
    used, began = usage.cpu_s(), time.perf_counter()
    job.run(counts, lambda: False, FeatureList().copy_writer)
    seconds = time.perf_counter() - began
    found = Run(counts.redriven / seconds, usage.cpu_s() - used, usage.max_rss_mb())
    return {**attrs.asdict(found), "progress_group": job.group}


def _job(bootstrap: str, topic: str, group: str) -> RedriveJob:
    worker = {"topics": [topic], "group": group}
    config = {"kafka": {"bootstrap.servers": bootstrap}, "workers": {"work": worker}}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "workers.yaml")
        file.write_text(json.dumps(config))
        (job,) = redrive_jobs(load(file, sections=FEATURES.sections), RedriveRequest())
    return job


def kill_on_the_way(part: str, topics: Topics, topic: str, group: str, workload: Workload) -> None:
    """Start a redrive or a replay, and kill it with SIGKILL each time that it has made progress."""
    command = children.command(part, bootstrap=topics.bootstrap, topic=topic, group=group)
    for kill in range(1, workload.kills + 1):
        goal = workload.topic.records * kill // (workload.kills + 1)
        process = subprocess.Popen(
            command, cwd=children.CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.perf_counter() + _END_S
        try:
            while _written(topics, entry_topic(group, topic)) < goal:
                if process.poll() is not None or time.perf_counter() > deadline:
                    raise RunError(f"it was over before kill {kill}: code {process.returncode}")
                time.sleep(_CHECK_S)
        finally:
            process.kill()
            process.wait()


def _written(topics: Topics, name: str) -> int:
    """Return how many records a topic holds; 0 while it does not exist yet."""
    try:
        return sum(topics.log_ends(name).values())
    except (KeyError, KafkaException):
        return 0


def judged(found: Run, topics: Topics, topic: str, group: str, spec: TopicSpec) -> Run:
    """Look every record up in the topic that it should be in."""
    name = entry_topic(group, topic)
    ends = topics.log_ends(name)
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "wc-bench-reader"})
    times: Counter[bytes] = Counter()
    try:
        consumer.assign([TopicPartition(name, each, 0) for each in range(PARTITIONS)])
        deadline = time.perf_counter() + _READ_S
        while times.total() < sum(ends.values()) and time.perf_counter() < deadline:
            for message in consumer.consume(10_000, 0.5):
                times[dict(message.headers() or ())[names.ID]] += 1  # type: ignore[index] # ours have one
    finally:
        consumer.close()
    lost = spec.records - len(times)
    return attrs.evolve(found, lost=lost, duplicates=times.total() - len(times))
