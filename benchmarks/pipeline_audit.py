"""Balances the counts of many records on Spark, with planted losses and duplicates."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from attrs import asdict
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from benchmarks import children
from benchmarks.results import Run
from window_consumer.audit.spark.findings import Rules
from window_consumer.audit.spark.report import Scope, counts, report
from window_consumer.audit.spark.schema import AUDIT_COUNTS
from window_consumer.audit.states import Finding
from window_consumer.spark import jars, session

PARTITIONS: Final = 4
MINUTES: Final = 1440
RECORDS_PER_COUNT: Final = 50
FAULTY_ONE_IN: Final = 12
"""One minute in this many has a lost record, a duplicate, or both."""

PLANTED: Final = (Finding.LOST, Finding.DUPLICATED, Finding.EXCHANGED)
_FIRST_MS: Final = 1_767_312_000_000
_MINUTE_MS: Final = 60_000
_MEMORY: Final = "2g"


def run(records: int, memory: str = _MEMORY) -> dict[str, Any]:
    """Balance the counts of a day with this many records; return a ``Run``.

    ``notes`` has the ``seconds`` from the table to the last bucket, without the session's start,
    how many planted buckets were ``missed``, and how many ``false`` ones were found.
    """
    brought = jars.ready(jars.default_directory())
    properties = {"spark.driver.memory": memory}
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "audit"))
        # In a separate process, to keep its memory out of the report's.
        answer = children.run("audit_table", path=path, records=records)
        planted = {int(minute): Finding(finding) for minute, finding in answer.items()}
        spark = session.start("balancing", "local[2]", brought, properties, short=True)
        try:
            return asdict(_balanced(spark, path, records, planted))
        finally:
            spark.stop()


def _balanced(spark: SparkSession, path: str, records: int, planted: dict[int, Finding]) -> Run:
    began = time.monotonic()
    rules = Rules(now_ms=_FIRST_MS + 2 * MINUTES * _MINUTE_MS, grace_ms=3_600_000)
    made = report(counts(spark, path, _FIRST_MS), rules, Scope(since_ms=_FIRST_MS))
    found = {(row.bucket_ms - _FIRST_MS) // _MINUTE_MS: row for row in made.findings.collect()}
    seconds = time.monotonic() - began
    odd = {minute: row.finding for minute, row in found.items() if row.finding != Finding.BALANCED}
    missed = sum(odd.get(minute) != finding for minute, finding in planted.items())
    notes = {"seconds": seconds, "missed": missed, "false": len(odd.keys() - planted.keys())}
    lost = sum(row.came for row in found.values()) - records
    return Run(records_per_s=records / seconds, lost=abs(lost), notes=notes)


def write(path: str, records: int) -> dict[int, Finding]:
    """Write the table of counts; return what was planted, by minute."""
    ids = np.random.default_rng(1).integers(0, 2**64, size=records, dtype=np.uint64)
    by_count = ids.reshape(-1, RECORDS_PER_COUNT)
    numbers = np.arange(len(by_count))
    minutes = numbers * MINUTES // len(by_count)
    xors, sums = np.bitwise_xor.reduce(by_count, axis=1), by_count.sum(axis=1, dtype=np.uint64)
    written = _table(numbers, minutes, xors, sums, np.full(len(numbers), RECORDS_PER_COUNT), "")
    xors, sums = xors.copy(), sums.copy()  # the table of what was written shares the others
    read_counts, planted = np.full(len(numbers), RECORDS_PER_COUNT), {}
    for minute in range(0, MINUTES - 1, FAULTY_ONE_IN):
        finding = PLANTED[minute // FAULTY_ONE_IN % len(PLANTED)]
        at = int(np.searchsorted(minutes, minute))
        missing, twice = by_count[at][0], by_count[at][1]
        planted[minute] = finding
        with np.errstate(over="ignore"):  # sums are of 64 bits
            if finding != Finding.DUPLICATED:
                read_counts[at] -= 1
                xors[at] ^= missing
                sums[at] -= missing
            if finding != Finding.LOST:
                read_counts[at] += 1
                xors[at] ^= twice
                sums[at] += twice
    read = _table(numbers, minutes, xors, sums, read_counts, "readers")
    both = pa.concat_tables([written, read])
    schema = to_arrow_schema(AUDIT_COUNTS, timezone="UTC")
    empty = {name: pa.nulls(len(both), schema.field(name).type) for name in schema.names}
    columns = {**empty, **dict(zip(both.column_names, both.columns, strict=True))}
    write_deltalake(path, pa.table(columns).cast(schema), partition_by=["day"])
    return planted


def _table(numbers: Any, minutes: Any, xors: Any, sums: Any, counted: Any, group: str) -> pa.Table:
    """Return the counts of a side: written without a group, else read by the group."""
    first = numbers // PARTITIONS * RECORDS_PER_COUNT
    rows, buckets = len(numbers), _FIRST_MS + minutes * _MINUTE_MS
    runs = [[[int(each), int(each) + RECORDS_PER_COUNT]] if group else [] for each in first]
    same: dict[str, Any] = {
        "client": "reader" if group else "writer",
        "incarnation": "1",
        "tier": "finished" if group else "produced",
        "app": "shop",
        "instance": "host:1",
        "group": group,
        "topic": "orders",
        "topic_hash": 0,
        "origin": "",
        "length_ms": _MINUTE_MS,
        "epoch_ms": 1 if group else 0,
        "lost": 0,
        "final": False,
        "day": datetime.fromtimestamp(_FIRST_MS / 1000, UTC).date(),
    }
    each = {
        "sequence": numbers,
        "partition": numbers % PARTITIONS,
        "bucket_ms": buckets,
        "count": counted,
        "id_xor": xors.view(np.int64),
        "id_sum": sums.view(np.int64),
        "offsets": pa.array(runs, pa.list_(pa.list_(pa.int64()))),
        "written_at": pa.array((buckets + _MINUTE_MS) * 1000, pa.timestamp("us", "UTC")),
    }
    return pa.table({**each, **{name: [value] * rows for name, value in same.items()}})
