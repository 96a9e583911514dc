"""``window-consumer``: the commands, each in its module."""

from __future__ import annotations

import sys

import click

import window_consumer
from window_consumer.cli.errors import guarded
from window_consumer.cli.lazy import LazyGroup

_COMMANDS = {
    "run": "window_consumer.cli.run_command:run_command",
    "check": "window_consumer.cli.check_command:check_command",
    "schema": "window_consumer.cli.references:schema_command",
    "metrics": "window_consumer.cli.references:metrics_command",
    "top": "window_consumer.cli.top:top_command",
    "doctor": "window_consumer.cli.doctor:doctor_command",
    "skip": "window_consumer.cli.intervene:skip_command",
    "dead-letter": "window_consumer.cli.intervene:dead_letter_command",
    "broker": "window_consumer.cli.embedded:broker_command",
    "demo": "window_consumer.cli.demo:demo_command",
    "dlq": "window_consumer.cli.dlq:dlq_group",
    "topics": "window_consumer.cli.topics:topics_group",
    "backfill": "window_consumer.cli.backfill_command:backfill_command",
    "pipeline": "window_consumer.cli.pipeline:pipeline_group",
    "audit": "window_consumer.cli.audit:audit_group",
    "trace": "window_consumer.cli.trace:trace_group",
    "simulate": "window_consumer.cli.simulate:simulate_command",
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
