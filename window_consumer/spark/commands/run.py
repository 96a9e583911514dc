"""``window-consumer pipeline run``: runs one job, or all of them, once or repeatedly."""

from __future__ import annotations

from pathlib import Path

import click

from window_consumer.cli.options import DURATION, pipeline_config
from window_consumer.cli.output import INTERRUPTED, OK, exits, explain
from window_consumer.model.redaction import Mask
from window_consumer.spark.commands.runner import runner_of
from window_consumer.spark.wire import FEATURES, load_pipeline


@click.command("run")
@click.argument("job", type=click.Choice([*FEATURES, "all"]))
@pipeline_config
@click.option("--once", is_flag=True, help="Read all available records, and exit. [default]")
@click.option(
    "--every",
    "every_s",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="Repeat this often: read all available records, and print a line.",
)
@click.option(
    "--restart", is_flag=True, help="Start at Kafka's first record, into the same tables."
)
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
@exits({INTERRUPTED: "stopped before everything was read"})
def run_command(
    *, job: str, config: Path, once: bool, every_s: float | None, restart: bool, master: str | None
) -> int:
    """Read a topic of events into its table, from where the last run ended.

    Every event is written to the table once, even if processes are killed. After Ctrl-C or SIGTERM
    a running batch has half a minute to finish; a second signal ends it at once.
    """
    if once and every_s is not None:
        raise click.UsageError("--once and --every are mutually exclusive")
    plan = load_pipeline(config, master=master)
    try:
        names = FEATURES if job == "all" else (job,)
        if not runner_of(plan).run(names, every_s, restart=restart):
            click.echo("stopped before the end; the next run continues from there", err=True)
            return INTERRUPTED
    except BaseException as error:
        return explain(error, Mask(plan.secrets))
    return OK
