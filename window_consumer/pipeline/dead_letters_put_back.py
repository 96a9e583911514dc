"""Which dead letters were put back: from what redrives remember of them to a column.

They remember runs of offsets. Offsets stand side by side as the bits of numbers here, so that a
million of them that were chosen one by one are some ten thousand rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - as above

Run = tuple[str, int, int, int]
"""A dead-letter topic, a partition, the first offset and the last one."""

MOST_OFFSETS: Final = 10_000_000
"""Of one run: what is longer was not written by a redrive, and does not count."""

_BITS: Final = 32
_SCHEMA: Final = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("block", T.LongType()),
        T.StructField("bits", T.LongType()),
    ]
)


def with_put_back(letters: DataFrame, runs: Iterable[Run] | None) -> DataFrame:
    """Return dead letters with ``put_back``: whether one of these runs has them, null for None.

    Takes any columns with ``topic``, ``partition`` and ``offset``, which are their own.
    """
    if runs is None:
        return letters.withColumn("put_back", F.lit(None).cast("boolean"))
    rows = [(*place, bits) for place, bits in _blocks(runs).items()]
    if not rows:
        return letters.withColumn("put_back", F.lit(False))
    blocks = letters.sparkSession.createDataFrame(rows, _SCHEMA)
    joined = letters.withColumn("block", F.floor(F.col("offset") / _BITS)).join(
        F.broadcast(blocks), ["topic", "partition", "block"], "left"
    )
    bit = F.expr(f"shiftright(bits, CAST(`offset` % {_BITS} AS INT)) & 1")
    return joined.select(*letters.columns, (F.coalesce(bit, F.lit(0)) == 1).alias("put_back"))


def _blocks(runs: Iterable[Run]) -> dict[tuple[str, int, int], int]:
    found: dict[tuple[str, int, int], int] = defaultdict(int)
    for topic, partition, first, last in runs:
        if last - first >= MOST_OFFSETS:
            continue
        for block in range(first // _BITS, last // _BITS + 1):
            begin = max(first - block * _BITS, 0)
            end = min(last - block * _BITS, _BITS - 1)
            found[topic, partition, block] |= (1 << end + 1) - (1 << begin)
    return found
