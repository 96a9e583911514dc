"""How much of the counts the table holds, for reports that do not refresh it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from window_consumer.audit.commands.printing import name_of
from window_consumer.cli.output import duration
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import (
    Span,
    TopicReader,
)
from window_consumer.model.errors import WindowConsumerError
from window_consumer.spark.plan import PipelinePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEADLINE_S: Final = 10.0


@frozen
class SeenOffsets:
    """The part of the counts that a report has seen."""

    reach_ms: int | None
    """When the first count arrived that the report lacks; None where it has all."""
    now_ms: int
    broken: int
    """Unreadable records of counts."""
    quarantine: str
    """The table that holds them."""

    def print_unseen(self, problem: str | None) -> None:
        """Print on stderr what the report lacks, and what Kafka did not answer."""
        if problem is not None:
            text = "a loss in a partition's last bucket appears once a later one is counted"
            held = "and unfinished records may appear as lost"
            click.echo(
                f"Kafka did not report the offsets of all groups ({problem}): {text}, {held}",
                err=True,
            )
        if self.reach_ms is not None:
            click.echo(
                f"the table of counts reaches to {name_of(self.reach_ms)}, which is"
                f" {duration((self.now_ms - self.reach_ms) / 1000)} ago: nothing later is judged"
                "; `window-consumer pipeline run audit` reads the rest, and so does a report"
                " without --no-refresh",
                err=True,
            )
        if self.broken:
            click.echo(
                f"{self.broken:,} records of counts could not be read, and are in quarantine"
                f" ({self.quarantine}): what they count is uncounted",
                err=True,
            )

    def as_fields(self) -> dict[str, Any]:
        """Return these values for JSON."""
        reaches = None if self.reach_ms is None else name_of(self.reach_ms)
        return {"reaches": reaches, "quarantined": self.broken}


def reach_ms(
    spark: SparkSession,
    plan: PipelinePlan,
    rows: DataFrame,
    client: Mapping[str, Any],
    log: ClientLog,
) -> int | None:
    """Return when the first count arrived that the table lacks; None where it has all.

    ``rows`` are the table's rows. If Kafka does not answer, or the reader's progress is unknown,
    the result is when the table's last count arrived.
    """
    from window_consumer.spark import checkpoints  # noqa: PLC0415 - optional, and slow

    read = checkpoints.reached(spark, plan, "audit", plan.table("audit"))
    if read is not None:
        try:
            return _first_unread_ms(plan.audit_topic, read, client, log)
        except WindowConsumerError:
            pass  # the report asks Kafka as well, and prints that it does not answer
    return _last_ms(rows)


def _first_unread_ms(
    topic: str, read: Mapping[tuple[str, int], int], client: Mapping[str, Any], log: ClientLog
) -> int | None:
    found = []
    with TopicReader(client, log, deadline_s=_DEADLINE_S) as reader:
        for name, span in reader.spans(topic).items():
            first = max(span.first, read.get((topic, name.partition), 0))
            for records in reader.read({name: Span(first, span.end)}):
                found.append(records[0].timestamp()[1])
                break
    return min(found, default=None)


def _last_ms(rows: DataFrame) -> int:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; optional

    [last] = rows.agg(F.unix_millis(F.max("written_at")).alias("at")).collect()
    return int(last["at"] or 0)
