"""The schema of the table of dead letters."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.spark.tables import Table

_TEXTS_OF_LETTERS: Final = (
    *("id", "original_topic", "group", "handler", "app_version", "host", "reason", "error_class"),
    *("error_message", "error_stack", "fingerprint", "level", "value_ref", "key", "value"),
)
_HEADER: Final = T.StructType(
    [T.StructField("name", T.StringType()), T.StructField("value", T.StringType())]
)
DEAD_LETTERS: Final = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("written_at", T.TimestampType()),
        T.StructField("failed_at", T.TimestampType()),
        T.StructField("first_failed_at", T.TimestampType()),
        T.StructField("sent_at", T.TimestampType()),
        T.StructField("written_by", T.StringType()),
        *(T.StructField(name, T.StringType()) for name in _TEXTS_OF_LETTERS),
        T.StructField("original_partition", T.LongType()),
        T.StructField("original_offset", T.LongType()),
        T.StructField("attempts", T.LongType()),
        T.StructField("redrives", T.LongType()),
        T.StructField("value_bytes", T.LongType()),
        T.StructField("headers", T.ArrayType(_HEADER)),
        T.StructField("day", T.DateType()),
    ]
)
"""The table of dead letters, one row each, with the fields of ``dlq.dead_letter.DeadLetter``.

``topic``, ``partition`` and ``offset`` are those of the dead letter, ``sent_at`` is the original
timestamp, ``key`` has the form that ``dlq.keys`` configures, ``headers`` are the record's own,
``value`` is null unless values are wanted, and ``day`` is the day of ``failed_at``.
"""

LETTERS: Final = Table(
    "dead_letters", DEAD_LETTERS, partitioned_by=("day",), sorted_by=("fingerprint", "failed_at")
)
