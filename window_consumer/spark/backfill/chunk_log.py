"""The log of backfills: the identity of each, and the outcomes of its records.

Both are Delta tables. One commit adds a chunk's rows: recorded records are done and do not run
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - as above

from window_consumer.engine.offsets import after
from window_consumer.model.errors import RunError, UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.spark.backfill.ranges import Spans
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import Table, is_conflict, last_batch

_KINDS: Final = {
    "string": T.StringType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "boolean": T.BooleanType(),
    "timestamp": T.TimestampType(),
}


def _schema(columns: str) -> T.StructType:
    pairs = (each.split() for each in columns.split(","))
    return T.StructType([T.StructField(name, _KINDS[kind]) for name, kind in pairs])


RESULTS: Final = Table(
    "results",
    _schema(
        "backfill string, chunk bigint, topic string, partition int, offset bigint, ok boolean,"
        " outcome string, reason string, error string, attempts int, duration_us bigint"
    ),
    partitioned_by=("backfill",),
)
"""One row per record, as ``job.handled`` returns it, with the ``chunk`` that recorded it."""

BACKFILLS: Final = Table(
    "backfills",
    _schema(
        "backfill string, worker string, group string, topic string, topic_id string,"
        " asked string, partition int, first_offset bigint, end_offset bigint,"
        " begun_at timestamp"
    ),
)
"""The identity of a backfill: one row per partition, written once, before anything runs."""


@frozen
class BackfillIdentity:
    """Worker, topic and range of a backfill. They must be the same for the same name."""

    name: str
    worker: str
    group: str
    topic: str
    topic_id: str | None
    asked: str
    """The range as the user gave it."""


@frozen
class DoneChunk:
    """The recorded part of a backfill."""

    ends: Mapping[int, int]
    """The recorded end of each partition, exclusive."""
    chunk: int
    """The last chunk's number, -1 if there is none."""
    records: int
    failed: int


class BackfillLedger:
    """The tables below one directory. Owner: the driver's main thread."""

    def __init__(self, session: SparkSession, directory: str):
        self._session = session
        layout = PipelinePlan(kafka={}, directory=directory)
        self.results = RESULTS.make(session, layout)
        self._backfills = BACKFILLS.make(session, layout)

    def begin(self, about: BackfillIdentity, spans: Spans) -> dict[int, Span]:
        """Record a backfill's identity; return its offsets, as of its first start.

        Raises UsageError if a backfill of this name has another identity.
        """
        rows = self._about(about.name)
        if not rows:
            try:
                self._write(about, spans)
            except Exception as error:
                if not is_conflict(error):
                    raise
                # Another driver has started the same backfill: its range applies.
            rows = self._about(about.name)
        first = rows[0]
        for column in ("worker", "group", "topic", "asked"):
            if first[column] != getattr(about, column):
                raise UsageError(
                    f"the backfill {about.name} in {self._backfills} was started with another"
                    f" {column}: {first[column]}, not {getattr(about, column)}; give this one"
                    " another name (--name)"
                )
        if first["topic_id"] and about.topic_id and first["topic_id"] != about.topic_id:
            raise UsageError(
                f"{about.topic} was deleted and recreated since the backfill {about.name} started:"
                " its offsets now refer to other records; give this one another name (--name)"
            )
        return {row["partition"]: Span(row["first_offset"], row["end_offset"]) for row in rows}

    def _about(self, name: str) -> list[Row]:
        found = self._session.read.format("delta").load(self._backfills)
        return found.where(F.col("backfill") == name).orderBy("partition").collect()

    def _write(self, about: BackfillIdentity, spans: Spans) -> None:
        fixed = (about.name, about.worker, about.group, about.topic, about.topic_id, about.asked)
        rows = [(*fixed, partition, span.first, span.end) for partition, span in spans.items()]
        schema = T.StructType(BACKFILLS.schema.fields[:-1])
        frame = self._session.createDataFrame(rows, schema)
        frame = frame.withColumn("begun_at", F.current_timestamp()).coalesce(1)
        BACKFILLS.append(frame, self._backfills, _writer(about.name), 0)

    def done(self, name: str) -> DoneChunk:
        """Return the recorded part, which need not run again."""
        # Read this before the rows: a chunk that another driver records in the meantime is then
        # rejected as a repeat. A chunk with only gaps in the log has no rows.
        last = last_batch(self._session, self.results, _writer(name))
        rows = (
            self._session.read.format("delta")
            .load(self.results)
            .where(F.col("backfill") == name)
            .groupBy("partition")
            .agg(
                F.max("offset").alias("last"),
                F.max("chunk").alias("chunk"),
                F.count("*").alias("records"),
                F.count(F.when(~F.col("ok"), 1)).alias("failed"),
            )
            .collect()
        )
        return DoneChunk(
            {row["partition"]: after(row["last"]) for row in rows},
            max([row["chunk"] for row in rows] + [-1 if last is None else last]),
            sum(row["records"] for row in rows),
            sum(row["failed"] for row in rows),
        )

    def record(self, rows: DataFrame, name: str, chunk: int) -> int:
        """Run a chunk and record the outcomes of its records, all or none.

        Returns how many records failed. Raises RunError if another driver has recorded the chunk.
        """
        seen = Observation()
        failed = F.count(F.when(~F.col("ok"), 1)).alias("failed")
        given = rows.observe(seen, failed).select(
            F.lit(name).alias("backfill"), F.lit(chunk).cast("bigint").alias("chunk"), "*"
        )
        conf = rows.sparkSession.conf
        conf.unset(_COMMITTED)
        try:
            RESULTS.append(given, self.results, _writer(name), chunk)
        except Exception as error:
            if is_conflict(error):
                raise RunError(
                    f"{_run_by_another(name, chunk)}, and its records have run twice"
                ) from error
            raise
        if conf.get(_COMMITTED, None) is None:
            # Delta silently skips a known batch; nothing ran or was counted.
            raise RunError(_run_by_another(name, chunk))
        return int(seen.get["failed"])


_COMMITTED: Final = "spark.databricks.delta.lastCommitVersionInSession"
"""Where Delta reports to a session the last table version that it wrote."""


def _run_by_another(name: str, chunk: int) -> str:
    return (
        f"another process runs the backfill {name}, too, and has recorded chunk {chunk}: stop one"
        " of them"
    )


def _writer(name: str) -> str:
    return f"window_consumer.spark.backfill.{name}"
