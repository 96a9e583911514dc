"""Reading with Spark's Kafka source, where records have to be dealt out by their keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from window_consumer.backfill.ranges import Spans
from window_consumer.config.kafka_properties import as_text
from window_consumer.pipeline import sources

_OF_CONNECTIONS: Final = ("bootstrap.servers", "client.id", "security.", "sasl.", "ssl.")
"""What matters to another client than librdkafka; the rest of its properties is its tuning."""


BATCH_RECORDS: Final = 10_000
"""Spark's own default."""

BATCH_BYTES: Final = 64 * 2**20
"""Of ten thousand records of a megabyte each a task would have to hold all."""


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
    """Return the records of these offsets, those of a key in one task, in their order.

    They have the columns of Spark's Kafka source. Raises UsageError for properties that Spark's
    client has no counterpart of.
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
    # Records without a key have no order to keep: they go anywhere. (The hash of null is a number.)
    anywhere = F.xxhash64("partition", "offset")
    lane = F.when(F.col("key").isNotNull(), F.xxhash64("key")).otherwise(anywhere)
    cores = session.sparkContext.defaultParallelism
    return records.repartition(cores, lane).sortWithinPartitions("partition", "offset")


def set_batches(session: SparkSession, rate_per_s: float | None) -> None:
    """Let tasks get their records by so many: what a limited task may take in a second at most."""
    records = BATCH_RECORDS if rate_per_s is None else max(1, min(BATCH_RECORDS, int(rate_per_s)))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(records))
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BATCH_BYTES))


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(each): offset for each, offset in offsets.items()}})
