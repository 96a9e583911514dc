"""``window-consumer``: the commands and their options."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

import window_consumer
from window_consumer.app import Plan
from window_consumer.app.loading import load_app
from window_consumer.cli import options
from window_consumer.cli.check import check
from window_consumer.cli.copies import number_of_this_copy, run_copies
from window_consumer.cli.demo import demo_command
from window_consumer.cli.dlq import dlq_group
from window_consumer.cli.durations import Duration
from window_consumer.cli.embedded import broker_command, run_embedded
from window_consumer.cli.errors import guarded
from window_consumer.cli.logs import set_up
from window_consumer.cli.run import run_until_stopped
from window_consumer.cli.simulate import simulate_command
from window_consumer.cli.topics import topics_group
from window_consumer.cli.tuning import GC_THRESHOLD, SWITCH_INTERVAL_S, tune
from window_consumer.config import config_page, json_schema
from window_consumer.model.errors import UsageError
from window_consumer.telemetry.reference import metrics_page

Command = Callable[..., Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(window_consumer.__version__, prog_name="window-consumer")
def cli() -> None:
    """Consume Kafka with a sliding window."""


@cli.command("run")
@options.application
@options.config
@options.only
@options.overrides
@options.start_timeout
@click.option("--embedded", is_flag=True, help="Start an embedded broker in this process.")
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Run so many copies of the whole process, and replace those that end.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    default="info",
    show_default=True,
)
@click.option(
    "--switch-interval",
    type=Duration(),
    default=SWITCH_INTERVAL_S,
    metavar="DURATION",
    help="How long a thread keeps the interpreter. [default: 5ms]",
)
@click.option(
    "--gc-threshold",
    type=click.IntRange(0),
    default=GC_THRESHOLD,
    show_default=True,
    help="New objects that start a garbage collection; 0 leaves Python's settings alone.",
)
def run_command(**given: Any) -> int:
    """Run the workers of a configuration until a signal comes.

    SIGTERM or Ctrl-C: drain, commit, leave the group; a second one: end at once. SIGUSR1: print
    the windows and where the running handlers stand.
    """
    formatter = set_up(given["log_format"], given["log_level"], number_of_this_copy())
    if given["processes"] and not number_of_this_copy():
        return _run_copies(given)
    tune(given["switch_interval"], given["gc_threshold"])
    app = load_app(given["application"])
    config, only, overrides = given["config"], given["only"], given["overrides"]
    if given["embedded"]:
        return run_embedded(app, config, only, overrides, formatter)
    plan = app.plan(config, only=only, overrides=overrides)
    return run_until_stopped(app, plan, formatter, given["start_timeout"])


def _run_copies(given: dict[str, Any]) -> int:
    if given["embedded"]:
        raise UsageError(
            "--embedded and --processes: each process would have a broker of its own; start one"
            " with window-consumer broker, and name it in the configuration"
        )
    app = load_app(given["application"])

    def make_plan() -> Plan:
        return app.plan(given["config"], only=given["only"], overrides=given["overrides"])

    return run_copies(given["processes"], make_plan)


@cli.command("check")
@options.application
@options.config
@options.only
@options.overrides
@options.start_timeout
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--connect", is_flag=True, help="Ask the cluster, too.")
def check_command(**given: Any) -> int:
    """Check a configuration without running it, and work out its bounds."""
    app = load_app(given["application"])
    plan = app.plan(given["config"], only=given["only"], overrides=given["overrides"])
    app.blueprints(plan)  # refuses what child processes could not import
    report = check(app, plan, connect=given["connect"], start_timeout=given["start_timeout"])
    click.echo(json.dumps(report.as_json(), indent=2) if given["as_json"] else report.as_text())
    return 0


@cli.command("schema")
@click.option("--markdown", is_flag=True, help="Print the reference page docs/config.md instead.")
def schema_command(*, markdown: bool) -> int:
    """Print a JSON Schema of the configuration file, for editors."""
    click.echo(config_page().rstrip() if markdown else json.dumps(json_schema(), indent=2))
    return 0


@cli.command("metrics")
def metrics_command() -> int:
    """Print the list of all metrics, in Markdown, which is the page docs/metrics.md."""
    click.echo(metrics_page().rstrip())
    return 0


cli.add_command(broker_command)
cli.add_command(demo_command)
cli.add_command(dlq_group)
cli.add_command(topics_group)
cli.add_command(simulate_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(guarded(lambda: int(cli.main(arguments, standalone_mode=False) or 0)))
