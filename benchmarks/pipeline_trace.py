"""The message trace: from its topic into the table, and queries on that."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

import cattrs
from attrs import evolve
from confluent_kafka import Producer

from benchmarks import children, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, Workload
from window_consumer.model.errors import RunError
from window_consumer.trace.event_batch import AnyColumn, Column, KeyColumn, OffsetColumn, encoded

BATCH = 2_000
"""Records of one batch, as in a slice of quick calls."""

STEPS = ("received", "processed")
KEYS = 100_000
_END_S = 120.0
_ASKED = 15
_MEMORY: Final = "3g"


def record_id(number: int) -> str:
    """Return an id as producers make them: ascending in time, 36 characters."""
    return f"01a202e9-{number >> 32 & 0xFFFF:04x}-7{number >> 20 & 0xFFF:03x}-8000-{number:012x}"


def key_of(number: int) -> str:
    """Return one of many keys."""
    return f"customer-{number * 7919 % KEYS}"


def fill(bootstrap: str, topic: str, begin: int, events: int) -> None:
    """Write events, two per record, in batches as workers write them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    now_us = int(time.time() * 1e6)
    for first in range(begin // 2, (begin + events) // 2, BATCH):
        for number, step in enumerate(STEPS):
            value = _batch(first, step, number, now_us)
            while True:
                try:
                    producer.produce(topic, value, partition=first // BATCH % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
    if left := producer.flush(_END_S):
        raise RunError(f"{left} batches of events were not acked")


def _batch(first: int, step: str, sequence: int, now_us: int) -> bytes:
    numbers = range(first, first + BATCH)
    ids, durations, places = Column(), Column(), OffsetColumn()
    ids.extend([record_id(number) for number in numbers])
    durations.extend([number * 31 % 9_000 for number in numbers])
    places.add_run(first, BATCH)
    common: dict[str, Any] = {
        "role": "consumer",
        "step": step,
        "topic": "orders",
        "partition": first // BATCH % PARTITIONS,
        "time_us": now_us + sequence * 1_000,
        "attempt": 1,
        "cluster": "kafka:9092",
        "group": "shop-charge",
        "client_id": "wc-charge",
        "host": "10.0.0.7",
        "app": "shop 7",
        "worker": "charge",
        "handler": "charge",
        "tags": "web,eu",
    }
    keys = KeyColumn('["' + '","'.join(map(key_of, numbers)) + '"]')
    columns: dict[str, AnyColumn] = {
        "record_id": ids,
        "duration_us": durations,
        "offset": places,
        "key": keys,
    }
    return encoded(f"{first:016x}", sequence, BATCH, common, columns)


def index(
    bootstrap: str, topic: str, directory: str, master: str = "local[*]", memory: str = _MEMORY
) -> dict[str, Any]:
    """Read the rest of the topic; timed without the start of Spark."""
    from window_consumer.spark import jars, jobs, session  # noqa: PLC0415 - an optional extra
    from window_consumer.spark.plan import PipelinePlan  # noqa: PLC0415 - as above
    from window_consumer.trace.spark.config import TraceSection  # noqa: PLC0415 - as above

    plan = PipelinePlan(
        kafka={"bootstrap.servers": bootstrap},
        directory=directory,
        features={TraceSection: TraceSection(topic=topic)},
    )
    properties = {"spark.driver.memory": memory}
    spark = session.start("bench", master, jars.ready(jars.default_directory()), properties)
    began = time.perf_counter()
    jobs.start(spark, plan, jobs.JOBS["trace"]).wait()
    seconds = time.perf_counter() - began
    spark.stop()
    return {"seconds": seconds, "cpu_s": usage.cpu_s(), "max_rss_mb": usage.max_rss_mb()}


def search(bootstrap: str, topic: str, directory: str, events: int) -> dict[str, Any]:
    """Query ids and keys, in this process and with the command; count the rows."""
    import duckdb  # noqa: PLC0415 - an optional extra

    from window_consumer.trace.query import TraceQuery  # noqa: PLC0415 - as above
    from window_consumer.trace.spark.search import Index  # noqa: PLC0415 - as above

    table = Index(f"{directory}/tables/trace")
    rng = random.Random(1)
    chosen = [rng.randrange(events // 2) for _ in range(_ASKED)]

    def has_id(number: int) -> bool:
        return len(table.journey(record_id(number))) == len(STEPS)

    def has_key(number: int) -> bool:
        return bool(table.find(TraceQuery(key=key_of(number)), 100))

    ids = [_timed(has_id, number) for number in chosen]
    keys = [_timed(has_key, number) for number in chosen]
    files = table._files(TraceQuery())  # noqa: SLF001 - the files behind the answers
    counts = duckdb.read_parquet(files).aggregate("count(*), count(DISTINCT event_id)")
    rows, distinct = counts.fetchall()[0]
    config = Path(directory, "pipeline.yaml")
    config.write_text(
        f"kafka: {{bootstrap.servers: '{bootstrap}'}}\ndirectory: .\ntrace: {{topic: {topic}}}\n"
    )
    show = [sys.executable, "-m", "window_consumer", "trace", "show", "-c", str(config)]

    def shows(number: int) -> bool:
        ended = subprocess.run([*show, record_id(number)], stdout=subprocess.DEVNULL, check=False)
        return ended.returncode == 0

    commands = [_timed(shows, number) for number in chosen[: _ASKED // 3]]
    return {
        "rows": rows,
        "distinct": distinct,
        "notes": {
            "search_id_ms": median(ids[1:]) * 1000,
            "search_key_ms": median(keys[1:]) * 1000,
            "command_s": median(commands),
        },
    }


def _timed(ask: Callable[[int], bool], number: int) -> float:
    began = time.perf_counter()
    if not ask(number):
        raise RunError("a question has found nothing")
    return time.perf_counter() - began


def run(topics: Topics, workload: Workload) -> Run:
    """Index the events, and as many again, then query them."""
    events = workload.topic.records
    topic = f"wc-bench-{uuid.uuid4().hex[:12]}"
    topics.make(topic)
    directory = tempfile.mkdtemp(prefix="wc-bench-")
    where = {"bootstrap": topics.bootstrap, "topic": topic}
    try:
        first: dict[str, Any] = {}
        for begin in (0, events):
            children.run("trace_events", begin=begin, events=events, **where)
            answer = children.run("trace_index", directory=directory, **where)
            first = first or answer
        said = children.run("trace_search", directory=directory, events=2 * events, **where)
        found = Run(events / first["seconds"], first["cpu_s"], first["max_rss_mb"])
        lost, again = 2 * events - said["distinct"], said["rows"] - said["distinct"]
        notes = cattrs.structure(said["notes"], dict[str, float])
        return evolve(found, lost=lost, duplicates=again, notes=notes)
    finally:
        topics.delete(topic)
        shutil.rmtree(directory, ignore_errors=True)


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"trace": run}
"""By the workload's ``work``."""
