"""Dead letters as Spark's Kafka source gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from tests.cli.dead_letters import DLQ, headers_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Headers = Sequence[tuple[str, bytes | None]]

NOW = datetime(2026, 1, 10, 12, 30, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000

_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp,"
    " timestampType int, headers array<struct<key: string, value: binary>>"
)


@frozen(kw_only=True)
class Letter:
    """A record of a dead-letter topic."""

    headers: Headers | None = field(factory=lambda: ours(0))
    key: bytes | None = b"c1"
    value: bytes | None = b'{"amount": 0}'
    topic: str = DLQ
    partition: int = 0
    offset: int = 0
    time: datetime = NOW
    time_type: int = 0


def ours(offset: int, hours_ago: float = 1, **changed: str | None) -> Headers:
    """Return the headers of a dead letter that a worker of ours wrote."""
    failed_at = str(NOW_MS - round(hours_ago * HOUR_MS))
    return headers_of(offset, **{"failed_at": failed_at, **changed})


def records(spark: SparkSession, *letters: Letter) -> DataFrame:
    """Return them; offsets count up where they are not given."""
    rows = []
    for at, given in enumerate(letters):
        each = given if given.offset else evolve(given, offset=at)
        rows.append(
            (
                each.key,
                each.value,
                each.topic,
                each.partition,
                each.offset,
                each.time,
                each.time_type,
                None if each.headers is None else list(each.headers),
            )
        )
    return spark.createDataFrame(rows, _SCHEMA)
