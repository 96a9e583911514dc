"""The schemas of the audit: a record of its topic, and the table of counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints

import attrs
from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.audit.count import AuditCount
from window_consumer.spark.tables import CORRUPT, Table


def _type(kind: Any) -> T.DataType:
    """Return the Spark type of a field of ``AuditCount``."""
    chosen = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is tuple:
        return T.ArrayType(_type(chosen[0]))
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        return T.MapType(T.StringType(), _type(chosen[1]))
    if chosen:
        return _type(chosen[0])
    if kind is bool:
        return T.BooleanType()
    return T.StringType() if issubclass(kind, str) else T.LongType()


_KINDS_OF_COUNT: Final = get_type_hints(AuditCount)
_UNSIGNED: Final = {"topic_hash": T.DecimalType(20, 0)}
"""Unsigned 64-bit fields, which do not fit into Spark's long."""

AUDIT_COUNT: Final = T.StructType(
    [
        T.StructField(each.name, _UNSIGNED.get(each.name) or _type(_KINDS_OF_COUNT[each.name]))
        for each in attrs.fields(AuditCount)
    ]
)
"""A count, with the fields of ``AuditCount``. Latency buckets are strings."""

AUDIT_RECORD: Final = T.StructType(
    [
        T.StructField("format", T.LongType()),
        T.StructField("counts", T.ArrayType(AUDIT_COUNT)),
        T.StructField(CORRUPT, T.StringType()),
    ]
)
"""A record of the audit topic."""

AUDIT_COUNTS: Final = T.StructType(
    [
        *AUDIT_COUNT,
        T.StructField("day", T.DateType()),
        T.StructField("written_at", T.TimestampType()),
    ]
)
"""The table of counts: one count per row, the ``day`` of its bucket, and its time in Kafka."""

AUDIT: Final = Table(
    "audit", AUDIT_COUNTS, partitioned_by=("day",), sorted_by=("topic", "bucket_ms")
)
