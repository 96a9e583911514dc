"""Batches of trace events in a topic, and the pipeline's tables of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.pipeline.gates import DEADLINE_S
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline
from window_consumer.trace.event_batch import Column, OffsetColumn, encoded

NOW_US = int(time.time() * 1e6)
"""Tables have days: all events of a test are of one."""


def batch(sequence: int, count: int = 100, **more: Any) -> bytes:
    """Return ``count`` events of one partition that no other batch has."""
    places, ids = OffsetColumn(), Column()
    places.add_run(sequence * 1_000_000, count)
    ids.extend([f"{sequence}-{n}" for n in range(count)])
    common: dict[str, Any] = {
        "role": "consumer",
        "step": "processed",
        "topic": "orders",
        "partition": 0,
        "time_us": NOW_US,
        **more,
    }
    return encoded("fbf8c89ffe854571", sequence, count, common, {"offset": places, "root_id": ids})


def write(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    """Write values, in turn to all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 8_000_000})
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def configured(directory: Path, bootstrap: str, topic: str, **more: Any) -> Path:
    """Write a pipeline.yaml, and return its path."""
    file = directory / "pipeline.yaml"
    text = {
        "kafka": {"bootstrap.servers": bootstrap},
        "directory": "tables of a test",
        "trace": {"topic": topic},
        **more,
    }
    file.write_text(json.dumps(text))
    return file


def planned(file: Path) -> PipelinePlan:
    """Return the plan of a pipeline.yaml."""
    return load_pipeline(file)


def counted(plan: PipelinePlan, table: str = "trace") -> Mapping[str, int]:
    """Return how many rows a table has, and how many of them are distinct."""
    files = DeltaTable(plan.table(table)).to_pyarrow_dataset()
    what = "event_id" if table == "trace" else '("partition", "offset")'
    with duckdb.connect() as database:
        database.register("files", files)
        wanted = f"SELECT count(*), count(DISTINCT {what}) FROM files"  # noqa: S608 - names of this file
        ((rows, distinct),) = database.execute(wanted).fetchall()
    return {"rows": rows, "distinct": distinct}
