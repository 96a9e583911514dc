"""``window-consumer pipeline maintain``: keeps the tables small and fast."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from window_consumer.cli.options import json_option, pipeline_config
from window_consumer.cli.output import OK, explain, print_json
from window_consumer.model.redaction import Mask
from window_consumer.spark.wire import load_pipeline, maintenance, session_for


@click.command("maintain")
@pipeline_config
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
@json_option
def maintain_command(*, config: Path, master: str | None, as_json: bool) -> int:
    """Maintain the tables; run it about once a day.

    Merges small files, deletes days of the trace older than `trace.keep` and dead letters older
    than `dlq.keep`, and deletes files that no table has needed for a week. Jobs and queries may run
    at the same time.
    """
    plan = load_pipeline(config, master=master)
    tables: dict[str, dict[str, int]] = {}
    try:
        upkeep = maintenance()
        with session_for(plan) as spark:
            for kept in upkeep.maintain(spark, plan, datetime.now(UTC).date()):
                tables[kept.name] = {"compacted": kept.compacted, "deleted": kept.dropped}
                if not as_json:
                    click.echo(
                        f"{kept.name}: {kept.compacted} partitions compacted, {kept.dropped:,}"
                        " expired rows deleted"
                    )
        if as_json:
            print_json({"tables": tables})
    except BaseException as error:
        return explain(error, Mask(plan.secrets))
    return OK
