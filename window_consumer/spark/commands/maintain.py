"""``window-consumer pipeline maintain``: keeps the tables small and fast."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from window_consumer.cli.options import pipeline_config
from window_consumer.cli.output import (
    OK,
    explain,
)
from window_consumer.config.sections.pipeline import load_pipeline
from window_consumer.model.redaction import Mask
from window_consumer.spark.wire import maintenance, plan_of, session_for


@click.command("maintain")
@pipeline_config
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
def maintain_command(*, config: Path, master: str | None) -> int:
    """Tidy up the tables: once a day is a good measure.

    Small files become few large ones, days of the trace that are older than `trace.keep` and dead
    letters that are older than `dlq.keep` go, and files that no table has needed for a week are
    deleted. Jobs and questions may go on meanwhile.
    """
    loaded = load_pipeline(config)
    try:
        upkeep, plan = maintenance(), plan_of(loaded, master)
        with session_for(plan) as spark:
            for kept in upkeep.maintain(spark, plan, datetime.now(UTC).date()):
                click.echo(
                    f"{kept.name}: {kept.compacted} partitions compacted, {kept.dropped:,} expired"
                    " rows deleted"
                )
    except BaseException as error:
        return explain(error, Mask(loaded.secrets))
    return OK
