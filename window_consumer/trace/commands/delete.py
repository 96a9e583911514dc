"""``window-consumer trace delete``: delete the records of a key from the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from attrs import frozen

from window_consumer.cli.options import json_option, pipeline_config
from window_consumer.cli.output import OK, explain, print_result
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import Mask
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import letters_of_key, load_pipeline, maintenance, session_for
from window_consumer.trace.lookup import Journeys
from window_consumer.trace.spark.config import TraceSection


@click.command("delete")
@pipeline_config
@click.option("--key", metavar="KEY", required=True, help="The key of the records.")
@click.option("--dry-run", is_flag=True, help="Only count; delete nothing.")
@click.option("--yes", is_flag=True, help="Really delete; without it nothing is deleted.")
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
@json_option
def delete_command(
    *, config: Path, key: str, dry_run: bool, yes: bool, master: str | None, as_json: bool
) -> int:
    """Permanently delete all steps and dead letters of a key's records from the tables.

    Also deletes the files that contained them. Kafka's topics keep the records until their own
    retention ends. Events that are not in the tables yet arrive with the next run: delete again
    after that.
    """
    plan = load_pipeline(config, master=master)
    try:
        found = _find(plan, key)
        if dry_run:
            fields = {"dry_run": True, "steps": found.steps, "dead_letters": found.dead_letters}
            print_result(fields, found.text, as_json=as_json)
            return OK
        if yes:
            print_result(*_delete(plan, key, found), as_json=as_json)
            return OK
    except BaseException as error:
        return explain(error, Mask(plan.secrets))
    raise UsageError(f"{found.text}: add --yes to delete them permanently")


@frozen
class _Found:
    """The rows of a key in the tables."""

    form: str | None
    """The key in the trace's form; None if the trace has no keys or does not exist."""
    letters: tuple[str, ...]
    """The key's forms in the table of dead letters."""
    text: str
    steps: int
    dead_letters: int


def _find(plan: PipelinePlan, key: str) -> _Found:
    """Search the existing tables; raise UsageError if none of them can contain the key."""
    dead_letters = letters_of_key()
    lines, form, records, steps = [], None, [], 0
    has_keys = plan.section(TraceSection).keys != "off"
    has_trace = dead_letters.is_there(plan, "trace") and has_keys
    if has_trace or not dead_letters.is_there(plan, "dead_letters"):
        journeys = Journeys(plan, indexed_only=True)
        form = journeys.key(key)
        records = journeys.records_of_key(form)
        steps = journeys.count_of_key(form)
        lines.append(f"{steps:,} steps with this key are in {journeys.path}")
    letters = dead_letters.find(plan, key, records)
    if letters is not None:
        lines.append(f"{letters.count:,} dead letters with this key are in {letters.path}")
    text = "\n".join(lines)
    if letters is None:
        return _Found(form, (), text, steps, 0)
    return _Found(form, letters.forms, text, steps, letters.count)


def _delete(plan: PipelinePlan, key: str, found: _Found) -> tuple[dict[str, Any], str]:
    """Delete the rows; return the deleted and remaining data, as fields and as text."""
    upkeep = maintenance()
    topic = plan.section(TraceSection).topic
    with session_for(plan) as spark:
        gone = upkeep.delete_key(spark, plan, key, found.form, found.letters)
    counts = {"steps": gone.steps, "dead_letters": gone.letters, "quarantined": gone.quarantined}
    return {"dry_run": False, **counts}, (
        f"deleted: {gone.steps:,} steps, {gone.letters:,} dead letters, {gone.quarantined:,}"
        f" quarantined records, and the files that contained them\nnot deleted: {topic}"
        " and the dead-letter topics keep their records until retention removes them (`dlq purge`"
        " does so earlier); the next run adds events that are not in the tables yet"
    )
