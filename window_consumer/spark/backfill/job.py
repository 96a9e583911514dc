"""The job of a backfill: Kafka records in, outcomes out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.config.sections.kafka_properties import as_text
from window_consumer.spark import sources
from window_consumer.spark.backfill.ranges import Spans
from window_consumer.spark.backfill.results import COLUMNS, FINE
from window_consumer.spark.backfill.shares import Share, ShareTask
from window_consumer.spark.backfill.task import BackfillTask, WorkerPlan

_CREATE_TIME: Final = 1
"""Spark's timestamp type 0 is 1 in the client."""


def handled(records: DataFrame, plan: WorkerPlan) -> DataFrame:
    """Call the worker's handler for each record; return the outcomes, one row per record.

    ``records`` have the columns of Spark's Kafka source (``partition``, ``offset``, ``key``,
    ``value``, ``headers``, ``timestamp``, ``timestampType``), all of ``plan.topic``. Within a task
    each comes once, in offset order; order by key holds among the records of a task. The result has
    ``topic string, partition int, offset bigint, ok boolean, outcome string, reason string, error
    string, attempts int, duration_us bigint``. ``outcome`` is done, skipped, filtered,
    dead_lettered, expired or dropped. ``reason`` and ``error`` are those of the dead letter.
    ``duration_us`` is the sum over all calls.

    Nothing is called before an action; each action calls the handlers again.
    """
    ready = records.select(
        "partition",
        "offset",
        "key",
        "value",
        "headers",
        F.unix_millis("timestamp").alias("time_ms"),
        (F.col("timestampType") + _CREATE_TIME).alias("time_kind"),
    )
    return _outcomes(ready.mapInArrow(BackfillTask.of(plan), COLUMNS), plan)


def read_and_handled(
    session: SparkSession,
    plan: WorkerPlan,
    consumer: Mapping[str, Any],
    shares: Sequence[Share],
    *,
    skip_lost: bool = False,
) -> DataFrame:
    """Read these shares of ``plan.topic``, one task each, and call the worker's handler.

    ``consumer`` has the user's Kafka consumer properties. Returns the same as ``handled``. A task
    raises RecordsGoneError if the log no longer has its records, unless ``skip_lost``.
    """
    numbers = session.range(0, len(shares), 1, len(shares))
    task = ShareTask.of(plan, consumer, shares, skip_lost=skip_lost)
    return _outcomes(numbers.mapInArrow(task, COLUMNS), plan)


def _outcomes(found: DataFrame, plan: WorkerPlan) -> DataFrame:
    return found.select(
        F.lit(plan.topic).alias("topic"),
        "partition",
        "offset",
        F.col("outcome").isin(*FINE).alias("ok"),
        "outcome",
        "reason",
        "error",
        "attempts",
        "duration_us",
    )


_OF_CONNECTIONS: Final = ("bootstrap.servers", "client.id", "security.", "sasl.", "ssl.")
"""Properties that other clients share; the rest only tunes librdkafka."""


BATCH_RECORDS: Final = 10_000
"""Spark's own default."""

BATCH_BYTES: Final = 64 * 2**20
"""Without this limit a task would hold ten thousand records of a megabyte."""


def kafka_of(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties with which Spark's client reaches the same cluster."""
    return {
        key: as_text(value) for key, value in properties.items() if key.startswith(_OF_CONNECTIONS)
    }


def by_keys(
    session: SparkSession,
    kafka: Mapping[str, Any],
    topic: str,
    spans: Spans,
    *,
    skip_lost: bool = False,
) -> DataFrame:
    """Return the records of these offsets, in order, with all records of a key in one task.

    They have the columns of Spark's Kafka source. Raises UsageError for properties without a
    counterpart in Spark's client.
    """
    options = sources.options(kafka_of(kafka), topic)
    del options["subscribe"]
    given = {
        **options,
        "assign": json.dumps({topic: sorted(spans)}),
        "startingOffsets": _offsets(topic, {each: span.first for each, span in spans.items()}),
        "endingOffsets": _offsets(topic, {each: span.end for each, span in spans.items()}),
        "failOnDataLoss": str(not skip_lost).lower(),
    }
    records = session.read.format("kafka").options(**given).load()
    # Records without a key have no order, so spread them. (Spark hashes null to one number.)
    anywhere = F.xxhash64("partition", "offset")
    lane = F.when(F.col("key").isNotNull(), F.xxhash64("key")).otherwise(anywhere)
    cores = session.sparkContext.defaultParallelism
    return records.repartition(cores, lane).sortWithinPartitions("partition", "offset")


def set_batches(session: SparkSession, rate_per_s: float | None) -> None:
    """Limit the records per Arrow batch to what a rate-limited task may take in a second."""
    records = BATCH_RECORDS if rate_per_s is None else max(1, min(BATCH_RECORDS, int(rate_per_s)))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(records))
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BATCH_BYTES))


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(each): offset for each, offset in offsets.items()}})
