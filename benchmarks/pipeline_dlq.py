"""The report on a million dead letters: the whole command, from the table and from Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks import children
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer.model import headers as names
from window_consumer.model.errors import RunError
from window_consumer.model.fault import fingerprint

CAUSES = ("shop.NoConnection", "shop.InvalidOrder", "ValueError", "TimeoutError", "KeyError")
KEYS = 100_000
_HOURS = 72
_END_S = 120.0
_DEADLINE_S = 1800.0
_STACK = b'  File "/srv/shop.py", line 12, in charge\n    charge(order)\n' * 16
_MEMORY: Final = "3g"


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Write dead letters as workers do: five causes over three days, stacks of 1 KB."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    now_ms = round(time.time() * 1000)
    for number in range(count):
        partition = number % PARTITIONS
        headers = _headers(number, partition, now_ms - number % (_HOURS * 3600) * 1000)
        key = b"customer-%d" % (number * 7919 % KEYS)
        while True:
            try:
                producer.produce(topic, b'{"amount": 0}', key, partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(_END_S):
        raise RunError(f"{left} dead letters were not acked")


def _headers(number: int, partition: int, failed_ms: int) -> list[tuple[str, str | bytes | None]]:
    cause = CAUSES[number % len(CAUSES)]
    return [
        ("tenant", b"eu"),
        (names.ID, b"orders/%d/%d" % (partition, number)),
        (names.ORIGINAL_TOPIC, b"orders"),
        (names.ORIGINAL_PARTITION, b"%d" % partition),
        (names.ORIGINAL_OFFSET, b"%d" % number),
        (names.ORIGINAL_TIMESTAMP, b"%d" % failed_ms),
        (names.FORMAT, names.FORMAT_VERSION),
        (names.GROUP, b"shop-charge"),
        (names.HANDLER, b"charge"),
        (names.APP_VERSION, b"1.%d" % (number % 3)),
        (names.HOST, b"pod-%d" % (number % 7)),
        (names.REASON, b"RETRIES_EXHAUSTED"),
        (names.ERROR_CLASS, cause.encode()),
        (names.ERROR_FINGERPRINT, fingerprint(cause, "").encode()),
        (names.ATTEMPTS, b"3"),
        (names.FIRST_FAILURE, b"%d" % (failed_ms - 500)),
        (names.LAST_FAILURE, b"%d" % failed_ms),
        (names.ERROR_MESSAGE, b"order %d" % number),
        (names.ERROR_STACK, _STACK),
    ]


def run(topics: Topics, workload: Workload) -> Run:
    """Fill a topic, report on it from Kafka, make the table, and report on that."""
    topic, count = f"wc-bench-{uuid.uuid4().hex[:12]}.dlq", workload.topic.records
    topics.make(topic)
    try:
        found = measured(topics.bootstrap, topic, count)
    finally:
        topics.delete(topic)
    notes = {name if name == "seconds" else f"{name}_seconds": s for name, s in found.items()}
    return Run(count / found["seconds"], notes=notes)


def measured(
    bootstrap: str, topic: str, count: int, *, from_kafka: bool = True, memory: str = _MEMORY
) -> dict[str, float]:
    """Fill a topic; return the seconds for the report from Kafka, the table, and its report.

    Raises RunError where a report is incomplete.
    """
    children.run("dead_letter_topic", bootstrap=bootstrap, topic=topic, count=count)
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "pipeline.yaml")
        section = {
            "kafka": {"bootstrap.servers": bootstrap},
            "directory": directory,
            "dlq": {"topics": [topic], "patterns": []},
            "spark": {"properties": {"spark.driver.memory": memory}},
        }
        config.write_text(json.dumps(section), "utf-8")
        if from_kafka:
            found["from_kafka"] = _report(config, count, "--from-kafka")
        found["table"], _ = _timed("pipeline", "run", "dlq", "-c", str(config))
        found["seconds"] = _report(config, count)
    return found


def _report(config: Path, count: int, *more: str) -> float:
    page = config.with_name("report.html")
    seconds, said = _timed("dlq", "report", "-c", str(config), "--json", "-o", str(page), *more)
    found: dict[str, Any] = json.loads(said)
    if len(found["causes"]) != len(CAUSES):
        raise RunError(f"{len(found['causes'])} causes were found, {len(CAUSES)} were planted")
    if found["count"] != count:
        raise RunError(f"the report is on {found['count']:,} dead letters, {count:,} were planted")
    return seconds


def _timed(*arguments: str) -> tuple[float, str]:
    """Return a command's duration, Spark's start included, and its output."""
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "window_consumer", *arguments],
        cwd=children.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE_S,
    )
    if ended.returncode:
        raise RunError(f"{' '.join(arguments)}: {ended.stderr[-2000:]}")
    return time.perf_counter() - began, ended.stdout
