"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from window_consumer.cli.durations import Duration

application = click.argument("application", metavar="MODULE:APP")
config = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("workers.yaml"),
    show_default=True,
    help="The configuration file.",
)
only = click.option(
    "--only", multiple=True, metavar="WORKER", help="Only this worker; may be repeated."
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key, as in workers.charge.concurrency=8; may be repeated.",
)
start_timeout = click.option(
    "--start-timeout",
    type=Duration(),
    default=None,
    metavar="DURATION",
    help="Give up when no broker answers for so long (exit code 1). [default: never]",
)
