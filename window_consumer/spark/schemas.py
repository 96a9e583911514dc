"""What the schemas of all tables share; a feature's own are in its ``spark/schema``.

``VERSION`` goes up when a table's columns change. Changes only add columns, so an older program
reads the columns it knows, and a newer one reads missing columns as null.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.former_paths import moved_name

VERSION: Final = 1

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest that all readers of the tables support."""

CORRUPT: Final = "_corrupt"
"""Where Spark puts text that does not fit its schema."""

QUARANTINE: Final = T.StructType(
    [
        T.StructField("subject", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("written_at", T.TimestampType()),
        T.StructField("value", T.BinaryType()),
    ]
)
"""What could not be read, and why; ``value`` has at most 1 MiB of the record's."""


def __getattr__(name: str) -> Any:
    return moved_name("spark.schemas", name)
