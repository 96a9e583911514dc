"""``window-consumer``: all commands by name, and ``schema``."""

from __future__ import annotations

import json
import sys

import click

import window_consumer
from window_consumer.admin import cli as admin
from window_consumer.cli.options import LazyGroup
from window_consumer.cli.output import guarded
from window_consumer.config import config_page, json_schema
from window_consumer.spark import cli as spark

_COMMANDS = {
    "run": "window_consumer.cli.run_command:run_command",
    "check": "window_consumer.cli.check_command:check_command",
    "schema": "window_consumer.cli.main:schema_command",
    "metrics": "window_consumer.metrics.cli:metrics_command",
    **admin.COMMANDS,
    "broker": "window_consumer.cli.broker:broker_command",
    "demo": "window_consumer.demo:demo_command",
    "dlq": "window_consumer.dlq.cli:dlq_group",
    "topics": "window_consumer.topics.cli:topics_group",
    **spark.COMMANDS,
    "audit": "window_consumer.audit.cli:audit_group",
    "once": "window_consumer.database.commands.once_group:once_group",
    "outbox": "window_consumer.database.cli:outbox_group",
    "trace": "window_consumer.trace.cli:trace_group",
    "simulate": "window_consumer.simulator.cli:simulate_command",
}


@click.group(
    cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(window_consumer.__version__, prog_name="window-consumer")
def cli() -> None:
    """Consume Kafka with a sliding window."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(guarded(lambda: int(cli.main(arguments, standalone_mode=False) or 0)))


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the reference page docs/config.md instead.")
def schema_command(*, markdown: bool) -> int:
    """Print a JSON Schema of the configuration file, for editors."""
    click.echo(config_page().rstrip() if markdown else json.dumps(json_schema(), indent=2))
    return 0
