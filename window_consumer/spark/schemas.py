"""What the shapes of all tables share; those of a feature are in its ``spark/schema``.

``VERSION`` goes up when a table's columns change; tables are only ever given further columns, so
that an older program reads what it knows, and a newer one fills in what is missing with null.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.former_paths import moved_name

VERSION: Final = 1

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: later ones no calendar of the tables' readers knows."""

CORRUPT: Final = "_corrupt"
"""Where Spark puts the text of what is not of its schema."""

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
"""What could not be read, and why; ``value`` is the record's, at most 1 MiB of it."""


def __getattr__(name: str) -> Any:
    return moved_name("spark.schemas", name)
