"""The shapes of what is read and of the tables, derived from the shapes in ``model``.

``VERSION`` goes up when a table's columns change; tables are only ever given further columns, so
that an older program reads what it knows, and a newer one fills in what is missing with null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints

import attrs
from pyspark.sql import types as T  # noqa: N812 - its usual name

from window_consumer.audit.count import AuditCount
from window_consumer.trace.event import (
    FIELDS,
    Field,
)

VERSION: Final = 1

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: later ones no calendar of the tables' readers knows."""

CORRUPT: Final = "_corrupt"
"""Where Spark puts the text of what is not of its schema."""

_KINDS: Final[dict[type, T.DataType]] = {
    str: T.StringType(),
    int: T.LongType(),
    float: T.DoubleType(),
}

CARRIED: Final[tuple[Field, ...]] = tuple(each for each in FIELDS if each.name != "event_id")
"""The fields of an event that a batch has; the id follows from the batch."""


def type_of(field: Field) -> T.DataType:
    """Return the type of a field of an event."""
    return _KINDS[field.kind]


def _column(field: Field) -> T.StructType:
    return T.StructType(
        [
            T.StructField("v", T.ArrayType(type_of(field))),
            T.StructField("n", T.ArrayType(T.LongType())),
            T.StructField("up", T.BooleanType()),
        ]
    )


TRACE_BATCH: Final = T.StructType(
    [
        T.StructField("format", T.LongType()),
        T.StructField("writer", T.StringType()),
        T.StructField("sequence", T.LongType()),
        T.StructField("count", T.LongType()),
        T.StructField("all", T.StructType([T.StructField(f.name, type_of(f)) for f in CARRIED])),
        T.StructField(
            "columns", T.StructType([T.StructField(f.name, _column(f)) for f in CARRIED])
        ),
        T.StructField(CORRUPT, T.StringType()),
    ]
)
"""A record of the trace topic, see docs/wire.md."""

TRACE_EVENTS: Final = T.StructType(
    [T.StructField(each.name, type_of(each)) for each in FIELDS]
    + [T.StructField("day", T.DateType()), T.StructField("bucket", T.IntegerType())]
)
"""The table of trace events: an event a row, where it stands (``day``, of its time, and
``bucket``, of its root's id) and the fields of ``TraceEvent``."""


def _type(kind: Any) -> T.DataType:
    """Return the type of a field of ``AuditCount``."""
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
"""Of 64 bits without a sign: more than Spark's long holds."""

AUDIT_COUNT: Final = T.StructType(
    [
        T.StructField(each.name, _UNSIGNED.get(each.name) or _type(_KINDS_OF_COUNT[each.name]))
        for each in attrs.fields(AuditCount)
    ]
)
"""A count, with the fields of ``AuditCount``. Latencies have their buckets as texts."""

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
"""The table of counts: a count a row, the ``day`` of its bucket, and when it came to Kafka."""

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
"""The table of dead letters: one a row, with the fields of ``model.dead_letter.DeadLetter``.

``topic``, ``partition`` and ``offset`` are its own, ``sent_at`` is the original timestamp, ``key``
is in the form that ``dlq.keys`` says, ``headers`` are the record's own, ``value`` is null unless
values are wanted, and ``day`` is that of ``failed_at``."""

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
