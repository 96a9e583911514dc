"""``window-consumer trace search``: find steps of records by their fields."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from window_consumer.cli.options import DURATION, pipeline_config, time_param
from window_consumer.cli.output import FOUND, OK, exits
from window_consumer.spark.wire import load_pipeline
from window_consumer.trace.commands.index import (
    cluster_option,
    indexed_only_option,
    open_journeys,
    print_events,
    print_json,
    print_notes,
)
from window_consumer.trace.event import Step
from window_consumer.trace.query import TraceQuery, place_in


@click.command("search")
@pipeline_config
@click.option("--key", metavar="KEY", default=None, help="Records with this key.")
@click.option(
    "--at",
    metavar="TOPIC[/PARTITION[/OFFSET]]",
    default=None,
    help="Records of a topic, one of its partitions, or the one at an offset.",
)
@click.option(
    "--since", type=DURATION, metavar="DURATION", default=None, help="As long ago as this."
)
@click.option(
    "--from",
    "from_us",
    type=time_param(1_000_000),
    metavar="TIME",
    default=None,
    help="From this time on.",
)
@click.option(
    "--to",
    "to_us",
    type=time_param(1_000_000),
    metavar="TIME",
    default=None,
    help="Before this time.",
)
@click.option("--tag", metavar="TAG", default=None, help="Records with this tag.")
@click.option("--group", metavar="GROUP", default=None, help="Steps of this consumer group.")
@click.option(
    "--step",
    type=click.Choice([str(step) for step in Step]),
    default=None,
    help="Only these steps.",
)
@click.option("--status", metavar="STATUS", default=None, help="ok, retry, RETRIES_EXHAUSTED ...")
@click.option("--error", metavar="FINGERPRINT", default=None, help="Steps with this error.")
@cluster_option
@indexed_only_option
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The latest."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@exits({FOUND: "no step matches"})
def search_command(  # noqa: PLR0913 - an argument for each option
    *,
    config: Path,
    key: str | None,
    at: str | None,
    since: float | None,
    from_us: int | None,
    to_us: int | None,
    limit: int,
    as_json: bool,
    indexed_only: bool,
    **equal: Any,
) -> int:
    """Find steps of records by key, position, time, group, status or error."""
    plan = load_pipeline(config)
    if since is not None:
        if from_us is not None:
            raise click.UsageError("--since and --from are mutually exclusive")
        from_us = int((time.time() - since) * 1e6)
    if from_us is not None and to_us is not None and to_us <= from_us:
        begin = "--from" if since is None else "--since"
        raise click.UsageError(f"--to must be after {begin}: no step can match")
    try:
        place = {} if at is None else place_in(at)
    except ValueError as error:
        raise click.UsageError(f"--at {error}") from error
    journeys = open_journeys(plan, indexed_only=indexed_only)
    asked = TraceQuery(
        key=None if key is None else journeys.key(key),
        since_us=from_us,
        until_us=to_us,
        **place,
        **equal,
    )
    answer = journeys.find(asked, limit)
    print_notes(answer.notes, plan)
    if not answer.events:
        click.echo("no step matches", err=True)
        return FOUND
    if as_json:
        print_json(answer.events)
    else:
        print_events(answer.events)
    return OK
