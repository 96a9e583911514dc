"""What a task needs, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import evolve

from tests.backfill.shop import app
from tests.kernel import prepared
from window_consumer import App
from window_consumer.spark.backfill import planning
from window_consumer.spark.backfill.messages import COLUMNS
from window_consumer.spark.backfill.task import WorkerPlan

WORKERS = ("plain", "failing", "typed", "coroutine", "batches", "outage")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KINDS = (pa.int32(), pa.int64(), pa.binary(), pa.binary(), HEADERS, pa.int64(), pa.int32())


def configuration(bootstrap: str, topic: str, keys: str = "", worker: str = "") -> str:
    """Return a workers.yaml with all handlers of the shop; ``keys`` are those of one worker."""
    lines = ["kafka:", f"  bootstrap.servers: {bootstrap}", "workers:"]
    for name in WORKERS:
        more = f", {keys}" if name == worker and keys else ""
        lines.append(f"  {name}: {{topics: [{topic}]{more}}}")
    return "\n".join(lines)


def worker_plan(directory: Path, worker: str, keys: str = "") -> WorkerPlan:
    """Return the plan of a worker of the shop that never asks its cluster."""
    text = configuration("127.0.0.1:1", "orders", keys, worker)
    return plan_of(app, directory, worker, text)


def plan_of(app: App, directory: Path, worker: str, text: str) -> WorkerPlan:
    """Return the plan of a worker, by a configuration."""
    file = directory / "workers.yaml"
    file.write_text(text, "utf-8")
    plan = app.plan(file)
    planned = planning.without_levels(planning.worker_of(plan, "orders", worker), "orders", None)
    chosen = planning.ChosenHandler(plan, prepared(planned, "orders", 4), "orders")
    return planning.worker_plan(app, chosen)


def with_rate(plan: WorkerPlan, per_s: float) -> WorkerPlan:
    """Return the same plan with a limit."""
    return evolve(plan, rate_per_s=per_s)


def arrow(rows: Sequence[Sequence[Any]], size: int = 1000) -> Iterator[pa.RecordBatch]:
    """Yield rows (partition, offset, key, value, headers) as Spark hands them to a task."""
    for start in range(0, len(rows), size):
        part = [(*row, 1_700_000_000_000, 1) for row in rows[start : start + size]]
        values = zip(zip(*part, strict=True), KINDS, strict=True)
        columns = [pa.array(list(column), kind) for column, kind in values]
        yield pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))
