"""``window-consumer check``: its options."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from window_consumer.cli import options
from window_consumer.cli.check import check
from window_consumer.cli.output import application_output
from window_consumer.plan.child_spec import child_specs_of
from window_consumer.plan.loading import load_app_if_named

_WAIT_S: Final = 30.0
"""Short: a person or a deployment waits for the answer."""


@click.command("check")
@options.optional_application
@options.config
@options.only
@options.overrides
@click.option(
    "--start-timeout",
    type=options.DURATION,
    default=_WAIT_S,
    metavar="DURATION",
    help="Give up --connect when no broker, or no database, answers for this long (exit code 1)."
    " [default: 30s]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    default=1,
    metavar="N",
    help="Compute what run --processes N needs.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Expected records a second of each worker: estimates the size of the tables of once, and"
    " how long a lease may last.",
)
@click.option(
    "--connect", is_flag=True, help="Also ask the cluster, and the databases of once and outbox."
)
@options.features
def check_command(**given: Any) -> int:
    """Check a configuration without running it, and print its bounds."""
    with application_output():
        app = load_app_if_named(given["application"], given["config"], given["features"])
    only, overrides = given["only"], given["overrides"]
    plan = app.plan(given["config"], only=only, overrides=overrides, for_cluster=True)
    child_specs_of(app, plan)  # refuses applications that child processes could not import
    app.features.refuse(plan)
    report = check(
        app,
        plan,
        connect=given["connect"],
        start_timeout=given["start_timeout"],
        processes=given["processes"],
        rate=given["rate"],
    )
    click.echo(json.dumps(report.as_json(), indent=2) if given["as_json"] else report.as_text())
    return 0
