"""``window-consumer trace show``: the whole way of a record."""

from __future__ import annotations

from pathlib import Path

import click

from window_consumer.cli.errors import FOUND, OK
from window_consumer.cli.pipeline.run_command import config_option
from window_consumer.cli.trace.index import (
    cluster_option,
    console,
    indexed_only_option,
    open_journeys,
    print_json,
    say_notes,
)
from window_consumer.cli.trace.journey_text import in_seconds, trees
from window_consumer.config.pipeline import load_pipeline
from window_consumer.model.journey import Journey


@click.command("show")
@click.argument("record", metavar="ID")
@config_option
@cluster_option
@indexed_only_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def show_command(
    *, record: str, config: Path, cluster: str | None, indexed_only: bool, as_json: bool
) -> int:
    """Show all steps of a record: sent, received, each attempt, each level, and its end.

    ID is the record's `wc-id`, or where it was delivered first: orders/0/17. What is not in the
    table yet is looked up in Kafka.
    """
    loaded = load_pipeline(config)
    answer = open_journeys(loaded, indexed_only=indexed_only).of(record, cluster)
    say_notes(answer.notes, loaded)
    journey = Journey.of(answer.events)
    if journey is None:
        click.echo(f"no step of {record} is known", err=True)
        return FOUND
    if as_json:
        print_json(answer.events)
        return OK
    to = console()
    for tree in trees(journey):
        to.print(tree, soft_wrap=True)
    click.echo(f"{len(answer.events)} steps in {in_seconds(journey.lasted_us)}")
    if journey.has_skew:
        click.echo("clocks of hosts differ: some times are before what they follow from", err=True)
    return OK
