"""How many of the counts the table holds, for reports that do not refresh it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from window_consumer.audit.commands.kafka_state import HeldRun
from window_consumer.audit.commands.printing import name_of
from window_consumer.audit.count import CountTier, decode
from window_consumer.cli.output import duration
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.offset_ranges import Span, united
from window_consumer.model.record import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DEADLINE_S: Final = 10.0

Place = tuple[str, str, int, Decimal]
"""Group, topic, partition, and the hash of the topic's id."""

MOST_UNREAD: Final = 50_000
"""The most records of counts that a report reads beyond its table; reading takes seconds."""


@frozen
class SeenOffsets:
    """The part of the counts that a report has seen."""

    reach_ms: int | None
    """When the first missing count arrived; None if the report has all."""
    now_ms: int
    broken: int
    """Unreadable records of counts."""
    quarantine: str
    """The table that holds them."""

    def print_unseen(self, problem: str | None) -> None:
        """Print on stderr what the report lacks, and which answers of Kafka are missing."""
        if problem is not None:
            text = "a loss in a partition's last bucket appears once a later one is counted"
            held = "and unfinished records may appear as lost"
            click.echo(
                f"Kafka did not report the offsets of all groups ({problem}): {text}, {held}",
                err=True,
            )
        if self.reach_ms is not None:
            click.echo(
                f"the table of counts ends at {name_of(self.reach_ms)},"
                f" {duration((self.now_ms - self.reach_ms) / 1000)} ago: nothing later is judged;"
                " `window-consumer pipeline run audit` reads the rest, as does a report without"
                " --no-refresh",
                err=True,
            )
        if self.broken:
            click.echo(
                f"{self.broken:,} records of counts are unreadable and in quarantine"
                f" ({self.quarantine}): the readable counts in them are left out; the rest may"
                " appear as lost",
                err=True,
            )

    def as_fields(self) -> dict[str, Any]:
        """Return these values for JSON."""
        reaches = None if self.reach_ms is None else name_of(self.reach_ms)
        return {"reaches": reaches, "quarantined": self.broken}


@frozen
class UnreadCounts:
    """The counts in the topic that a table lacks."""

    reach_ms: int | None
    """When the first of them arrived; None if there are none."""
    finished: tuple[HeldRun, ...] = ()
    """The records that they count as finished; these may have been open at the table's end."""
    is_complete: bool = True
    """Whether all of them were read."""
    is_known: bool = True
    """Whether the missing ones are known."""


_UNKNOWN: Final = UnreadCounts(None, is_complete=False, is_known=False)


def unread_counts(
    topic: str,
    read: Mapping[tuple[str, int], int] | None,
    client: Mapping[str, Any],
    log: ClientLog,
) -> UnreadCounts:
    """Return the counts beyond ``read``, the offsets in a table, which may be unknown."""
    if read is None:
        return _UNKNOWN
    try:
        with TopicReader(client, log, deadline_s=_DEADLINE_S) as reader:
            spans = {
                name: Span(max(span.first, read.get((topic, name.partition), 0)), span.end)
                for name, span in reader.spans(topic).items()
            }
            firsts = []
            for name, span in spans.items():
                for records in reader.read({name: span}):
                    firsts.append(records[0].timestamp()[1])
                    break
            reach = min(firsts, default=None)
            if sum(span.count for span in spans.values()) > MOST_UNREAD:
                return UnreadCounts(reach, is_complete=False)
            return _finished_in(chain.from_iterable(reader.read(spans)), reach)
    except WindowConsumerError:
        return _UNKNOWN  # the report also asks Kafka, and prints that it does not answer


def _finished_in(records: Iterable[Message], reach_ms: int | None) -> UnreadCounts:
    """Return the records that these counts report as finished."""
    found: defaultdict[tuple[str, str, int, int], list[tuple[int, int]]] = defaultdict(list)
    is_complete = True
    for record in records:
        try:
            counts = decode(record.value() or b"")
        except ValueError:  # it goes into quarantine
            is_complete = False
            continue
        for each in counts:
            if each.tier is not CountTier.GONE:
                place = (each.group, each.topic, each.partition, each.topic_hash)
                found[place] += each.offsets
    rows = (
        (group, topic, partition, Decimal(hashed), first, stop, False)
        for (group, topic, partition, hashed), ranges in found.items()
        for first, stop in united(ranges)
    )
    return UnreadCounts(reach_ms, tuple(rows), is_complete)


def clipped(runs: Iterable[HeldRun], ends: Mapping[Place, int]) -> Iterator[HeldRun]:
    """Yield the parts of runs below a table's last offsets: only these excuse its gaps."""
    for group, topic, partition, hashed, first, stop, anytime in runs:
        end = min(stop, ends.get((group, topic, partition, hashed), 0))
        if first < end:
            yield group, topic, partition, hashed, first, end, anytime


def ends_of(rows: DataFrame) -> dict[Place, int]:
    """Return one past the last counted offset of each place in a table's rows."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; optional

    ends = (
        rows.where(F.size("offsets") > 0)
        .groupBy("group", "topic", "partition", "topic_hash")
        .agg(F.max(F.expr("array_max(transform(offsets, each -> each[1]))")).alias("stop"))
    )
    return {tuple(row[:4]): row.stop for row in ends.collect()}


def last_ms(rows: DataFrame) -> int:
    """Return when the last count in a table's rows arrived."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; optional

    [last] = rows.agg(F.unix_millis(F.max("written_at")).alias("at")).collect()
    return int(last["at"] or 0)
