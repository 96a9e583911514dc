"""Runs the queries of a report on dead letters and assembles their results.

Redrives store runs of offsets. Here neighbouring offsets are packed into bitmaps, so that a million
single ones need about ten thousand rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from attrs import evolve, frozen
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as T  # noqa: N812 - as above

from window_consumer.dlq.spark import report
from window_consumer.dlq.spark.findings import (
    HOUR_MS,
    SIDES,
    DeadLetterFindings,
    Example,
    FailureGroup,
    KeySpread,
    Share,
)

Run = tuple[str, int, int, int]
"""A dead-letter topic, a partition, the first offset and the last one."""

MOST_OFFSETS: Final = 10_000_000
"""The longest plausible run: redrives write no longer ones, so those are ignored."""

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
    """Return dead letters with ``put_back``: whether a run contains them, null if runs is None.

    Takes any columns with the ``topic``, ``partition`` and ``offset`` of the dead letter.
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


MOST_PERIODS: Final = 170
"""Periods in a chart: a week of hours. A longer time span gets longer periods."""

_AT_ONCE: Final = 2
_LENGTHS_H: Final = (1, 2, 3, 6, 12, 24, 48, 24 * 7, 24 * 28, 24 * 365)
_NO_KEYS: Final = KeySpread(distinct=0, count=0, without=0, top=())


@frozen(kw_only=True)
class ReportRequest:
    """The selection of dead letters for a report."""

    asked_ms: int
    """Now, in milliseconds since 1970."""
    since_ms: int | None = None
    topics: tuple[str, ...] = ()
    """Source topics or dead-letter topics; empty for all."""
    groups: tuple[str, ...] = ()
    most_causes: int = report.MOST_CAUSES

    def of(self, letters: DataFrame) -> DataFrame:
        """Return the selected rows of ``schema.DEAD_LETTERS``."""
        if self.since_ms is not None:
            since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
            # The day prunes files, so that the rest need not be read.
            letters = letters.where(F.col("day") >= F.lit(since.date()))
            letters = letters.where(F.col("failed_at") >= F.timestamp_millis(F.lit(self.since_ms)))
        if self.topics:
            own, origin = F.col("topic").isin(*self.topics), F.col("original_topic")
            letters = letters.where(own | F.coalesce(origin.isin(*self.topics), F.lit(False)))
        if self.groups:
            letters = letters.where(F.col("group").isin(*self.groups))
        return letters


def findings(
    letters: DataFrame,
    wishes: ReportRequest,
    source: str,
    unreadable: int,
    put_back: Iterable[Run] | None = None,
) -> DeadLetterFindings:
    """Return the report on the dead letters that ``wishes`` selects from ``letters``.

    ``letters`` are ``schema.DEAD_LETTERS``. ``put_back`` are the runs that were put back, None if
    unknown.
    The queries read ``letters`` three times: persist them first if their source is slow.
    """
    named = report.with_cause(letters)
    facts = report.facts(with_put_back(named, put_back)).persist()
    try:
        found = _findings(named, facts, wishes, source, unreadable)
        return found if put_back is not None else _without_put_back(found)
    finally:
        facts.unpersist()


def _without_put_back(found: DeadLetterFindings) -> DeadLetterFindings:
    causes = tuple(evolve(cause, put_back=None) for cause in found.causes)
    return evolve(found, causes=causes, put_back=None)


def _findings(
    named: DataFrame, facts: DataFrame, wishes: ReportRequest, source: str, unreadable: int
) -> DeadLetterFindings:
    (whole,) = report.summary(report.causes(facts), wishes.most_causes).collect()
    top = sorted(whole["top"] or (), key=lambda row: (-row["count"], row["cause"]))
    chosen = [row["cause"] for row in top]
    hours = _hours_each(whole["first_ms"], whole["last_ms"])
    of_chosen = report.only(facts, chosen)
    latest = report.examples(report.near_ends(named, top))
    questions = (
        report.keys(report.only(named, chosen)),
        report.sides(of_chosen),
        report.periods(of_chosen, hours),
        latest.withColumn("failed_ms", F.unix_millis("failed_at")).drop(
            "failed_at", "first_failed_at", "sent_at", "written_at", "day"
        ),
    )
    # Half of a query's seconds is single-threaded planning: two queries share the cores.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="wc-findings") as pool:
        answers = list(pool.map(lambda question: question.collect(), questions))
    keys, sides = _keys(answers[0]), _sides(answers[1])
    periods, examples = _periods(answers[2]), _examples(answers[3])
    count = whole["count"] or 0
    return DeadLetterFindings(
        asked_ms=wishes.asked_ms,
        since_ms=wishes.since_ms,
        topics=wishes.topics,
        groups=wishes.groups,
        source=source,
        count=count,
        failed_again=whole["again"] or 0,
        put_back=whole["put_back"] or 0,
        first_ms=whole["first_ms"],
        last_ms=whole["last_ms"],
        unreadable=unreadable,
        distinct_causes=whole["distinct"],
        causes=tuple(
            _cause(
                row,
                sides[row["cause"]],
                _with_the_rest(keys.get(row["cause"], _NO_KEYS), row["count"]),
                periods[row["cause"]],
                examples[row["cause"]],
            )
            for row in top
        ),
        period_ms=hours * HOUR_MS,
        periods=periods[report.ALL],
        sides=sides[report.ALL],
        keys=_with_the_rest(keys.get(report.ALL, _NO_KEYS), count),
    )


def _hours_each(first_ms: int | None, last_ms: int | None) -> int:
    if first_ms is None or last_ms is None:
        return 1
    hours = (last_ms - first_ms) // HOUR_MS + 1
    return next((each for each in _LENGTHS_H if hours <= each * MOST_PERIODS), _LENGTHS_H[-1])


def _sides(rows: Iterable[Row]) -> Mapping[str, dict[str, tuple[Share, ...]]]:
    found: dict[str, dict[str, tuple[Share, ...]]] = defaultdict(lambda: dict.fromkeys(SIDES, ()))
    for row in sorted(rows, key=lambda row: (-row["count"], row["value"] or "")):
        share = Share(
            value=row["value"],
            of=row["of"],
            count=row["count"],
            first_ms=row["first_ms"],
            last_ms=row["last_ms"],
        )
        found[row["cause"]][row["side"]] += (share,)
    return found


def _periods(rows: Iterable[Row]) -> Mapping[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["begin_ms"]):
        found[row["cause"]][row["begin_ms"]] = row["count"]
    return found


def _keys(rows: Iterable[Row]) -> dict[str, KeySpread]:
    return {
        row["cause"]: KeySpread(
            distinct=row["distinct"],
            count=row["keyed"],
            without=0,
            top=tuple(
                (each["key"], each["count"])
                for each in sorted(row["top"], key=lambda each: (-each["count"], each["key"]))
            ),
        )
        for row in rows
    }


def _with_the_rest(keys: KeySpread, count: int) -> KeySpread:
    return KeySpread(
        distinct=keys.distinct, count=keys.count, without=count - keys.count, top=keys.top
    )


def _examples(rows: Iterable[Row]) -> Mapping[str, list[Example]]:
    found: dict[str, list[Example]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["failed_ms"] or 0, reverse=True):
        found[row["cause"]].append(
            Example(
                dead_letter=f"{row['topic']}/{row['partition']}/{row['offset']}",
                failed_ms=row["failed_ms"],
                version=row["app_version"],
                headers=tuple((each["name"], each["value"]) for each in row["headers"] or ()),
                **{name: row[name] for name in _AS_THEY_ARE},
            )
        )
    return found


_AS_THEY_ARE: Final = (
    *("id", "handler", "host", "attempts", "redrives", "key", "error_message", "error_stack"),
    *("value", "value_bytes"),
)


def _cause(
    row: Row,
    sides: Mapping[str, tuple[Share, ...]],
    keys: KeySpread,
    periods: Mapping[int, int],
    examples: Sequence[Example],
) -> FailureGroup:
    answers: dict[str, Any] = {name: row[name] for name in ("fingerprint", "error_class", "count")}
    return FailureGroup(
        **answers,
        failed_again=row["again"],
        put_back=row["put_back"],
        reason=next((each.value for each in sides["reason"]), None),
        error_message=next((each.error_message for each in examples), None),
        first_ms=row["first_ms"],
        last_ms=row["last_ms"],
        sides=sides,
        keys=keys,
        periods=periods,
        examples=tuple(examples),
    )
