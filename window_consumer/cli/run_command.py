"""``window-consumer run``: its options, and how they choose what runs."""

from __future__ import annotations

from typing import Any

import click

from window_consumer.cli import options
from window_consumer.cli.broker import run_embedded
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.cli.options import DURATION
from window_consumer.cli.output import INTERRUPTED, OK, exits
from window_consumer.cli.replicas import run_copies
from window_consumer.cli.run import run_until_stopped
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.loading import load_app_if_named
from window_consumer.runtime.replica import number_of_this_copy


@click.command("run")
@options.optional_application
@options.config
@options.only
@options.overrides
@options.start_timeout
@options.features
@click.option("--embedded", is_flag=True, help="Start an embedded broker in this process.")
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Run N replicas of the whole process, and replace those that end.",
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
    type=DURATION,
    default=SWITCH_INTERVAL_S,
    metavar="DURATION",
    help="How long a thread keeps the interpreter. [default: 5ms]",
)
@click.option(
    "--gc-threshold",
    type=click.IntRange(0),
    default=GC_THRESHOLD,
    show_default=True,
    help="How many new objects trigger a garbage collection; 0 keeps Python's settings.",
)
@exits({OK: "stopped as asked", INTERRUPTED: "ended at once by a second signal"})
def run_command(**given: Any) -> int:
    """Run the workers of a configuration until a signal stops them.

    No application is needed if every worker's handler is in the configuration, such as http.

    SIGTERM or Ctrl-C: drain, commit, leave the group; a second one: end at once. SIGUSR1: print
    the windows and the stacks of running handlers.
    """
    formatter = set_up(given["log_format"], given["log_level"], number_of_this_copy())
    if given["processes"] and not number_of_this_copy():
        return _run_copies(given)
    tune(given["switch_interval"], given["gc_threshold"])
    app = load_app_if_named(given["application"], given["config"], given["features"])
    config, only, overrides = given["config"], given["only"], given["overrides"]
    if given["embedded"]:
        return run_embedded(app, config, only, overrides, formatter)
    plan = app.plan(config, only=only, overrides=overrides, for_cluster=True)
    return run_until_stopped(app, plan, formatter, given["start_timeout"])


def _run_copies(given: dict[str, Any]) -> int:
    if given["embedded"]:
        raise UsageError(
            "--embedded and --processes: each process would have its own broker; start one"
            " with window-consumer broker, and name it in the configuration"
        )
    app = load_app_if_named(given["application"], given["config"], given["features"])

    def make_plan() -> AppPlan:
        only, overrides = given["only"], given["overrides"]
        return app.plan(given["config"], only=only, overrides=overrides, for_cluster=True)

    return run_copies(given["processes"], make_plan, app)
