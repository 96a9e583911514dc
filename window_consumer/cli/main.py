"""``window-consumer``: all commands by name, and ``schema``."""

from __future__ import annotations

import json
import sys
from typing import Final

import click

import window_consumer
from window_consumer.app.features import FEATURES
from window_consumer.cli import options
from window_consumer.cli.options import LazyGroup
from window_consumer.cli.output import guarded
from window_consumer.config import config_page, json_schema
from window_consumer.plan.feature_list import FeatureList

_COMMANDS = {
    "run": "window_consumer.cli.run_command:run_command",
    "check": "window_consumer.cli.check_command:check_command",
    "schema": "window_consumer.cli.main:schema_command",
    "broker": "window_consumer.cli.broker:broker_command",
    "completion": "window_consumer.cli.completion:completion_command",
}


def command_line(features: FeatureList) -> click.Group:
    """Return all commands, those of features included."""

    @click.group(
        cls=LazyGroup,
        lazy={**_COMMANDS, **features.commands},
        context_settings={"help_option_names": ["-h", "--help"], "obj": features},
    )
    @click.version_option(window_consumer.__version__, prog_name="window-consumer")
    def cli() -> None:
        """Consume Kafka with a sliding window."""

    return cli


cli: Final = command_line(FEATURES)


def main(arguments: list[str] | None = None, commands: click.Group = cli) -> None:
    """Run the command line and exit."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(
        guarded(
            lambda: int(commands.main(arguments, standalone_mode=False) or 0),
            as_json="--json" in given,
        )
    )


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the reference page docs/config.md instead.")
@options.features
def schema_command(*, markdown: bool, features: FeatureList) -> int:
    """Print a JSON Schema of the configuration file, for editors."""
    sections = features.sections
    page = config_page(sections).rstrip() if markdown else json_schema(sections)
    click.echo(page if markdown else json.dumps(page, indent=2))
    return 0
