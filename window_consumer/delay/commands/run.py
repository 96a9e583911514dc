"""``window-consumer delay run``: the delay service alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from window_consumer.cli import options
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.cli.run import run_until_stopped
from window_consumer.delay.config import WORKER
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.planning import make_plan
from window_consumer.runtime.replica import number_of_this_copy


@click.command("run")
@options.config
@options.overrides
@options.start_timeout
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@options.features
def run_command(
    *,
    config: Path,
    overrides: tuple[str, ...],
    start_timeout: float | None,
    log_format: Any,
    features: FeatureList,
) -> int:
    """Deliver records until a signal stops the service; several processes may run.

    It needs no application. The workers of the file do not run; `window-consumer run` runs them
    and the delay service together, unless delay.run is false.
    """
    formatter = set_up(log_format, "info", number_of_this_copy())
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    plan = make_plan(
        config=config,
        handlers=None,
        only=[WORKER],
        overrides=overrides,
        for_cluster=True,
        features=features,
    )
    app = AppDefinition("delay", features=features)
    return run_until_stopped(app, plan, formatter, start_timeout)
