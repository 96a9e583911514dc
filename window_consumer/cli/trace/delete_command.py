"""``window-consumer trace delete``: forgets the records of a key."""

from __future__ import annotations

from pathlib import Path

import click

from window_consumer.app.journeys import Journeys
from window_consumer.cli.errors import OK, explain
from window_consumer.cli.pipeline.plans import plan_of
from window_consumer.cli.pipeline.run_command import config_option
from window_consumer.cli.pipeline.spark import session_for
from window_consumer.cli.pipeline.upkeep import maintenance
from window_consumer.config.pipeline import LoadedPipeline, load_pipeline
from window_consumer.model.errors import UsageError
from window_consumer.model.mask import Mask


@click.command("delete")
@config_option
@click.option("--key", metavar="KEY", required=True, help="The key of the records.")
@click.option("--dry-run", is_flag=True, help="Only count; delete nothing.")
@click.option("--yes", is_flag=True, help="Delete: without it nothing is.")
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
def delete_command(*, config: Path, key: str, dry_run: bool, yes: bool, master: str | None) -> int:
    """Delete all steps of the records with a key from the tables, and from their files, for good.

    The topic of events keeps them until its own retention, and what is not in the table yet
    comes in with the next run: delete again after that.
    """
    loaded = load_pipeline(config)
    try:
        journeys = Journeys(loaded, indexed_only=True)
        form = journeys.key(key)
        would = f"{journeys.count_of_key(form):,} steps with this key are in {journeys.path}"
        if dry_run:
            click.echo(would)
            return OK
        if yes:
            click.echo(_deleted(loaded, master, form))
            return OK
    except BaseException as error:
        return explain(error, Mask(loaded.secrets))
    raise UsageError(f"{would}: add --yes to delete them for good")


def _deleted(loaded: LoadedPipeline, master: str | None, form: str) -> str:
    """Delete them; return what was done, and what was not."""
    upkeep, plan = maintenance(), plan_of(loaded, master)
    with session_for(plan) as spark:
        steps, others = upkeep.forget(spark, plan, form)
    return (
        f"deleted: {steps:,} steps, {others:,} records of the quarantine, and the files that had"
        f" them\nwhat stays: {plan.trace_topic} in Kafka has its events until its retention takes"
        " them, and those that are not in the table yet come in with the next run"
    )
