"""``window-consumer backfill``: its options."""

from __future__ import annotations

from typing import Any

import click

from window_consumer.cli import options
from window_consumer.cli.logs import set_up
from window_consumer.cli.options import time_param, topics_named, workers_named
from window_consumer.cli.output import INTERRUPTED, OK, exits
from window_consumer.config.sections.rate import RATE_UNITS, parse_rate
from window_consumer.config.units import UnitError
from window_consumer.spark.commands.backfill import BackfillOptions, backfill

_CHUNK = 500_000


def _place(text: str) -> tuple[int, int]:
    """Read a partition and an offset."""
    partition, _, offset = text.partition("=")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise ValueError(f"{text!r} is not PARTITION=OFFSET, as in 0=1200")
    return int(partition), int(offset)


def _rate(text: str) -> float:
    """Read a rate as in the configuration, in records per second."""
    try:
        count, unit = parse_rate(text)
    except UnitError as error:
        raise ValueError(f"{text!r} {error}" + (f"; {error.hint}" if error.hint else "")) from None
    if not count:
        raise ValueError(f"{text!r} would read nothing")
    return float(count) / RATE_UNITS[unit]


@click.command("backfill")
@options.application
@options.config
@click.option(
    "--topic",
    required=True,
    metavar="TOPIC",
    shell_complete=topics_named,
    help="The topic to read.",
)
@click.option(
    "--worker",
    "-w",
    metavar="WORKER",
    shell_complete=workers_named,
    help="The worker whose handlers are called. [default: the one that reads the topic]",
)
@click.option(
    "--from",
    "from_ms",
    type=time_param(1000),
    metavar="TIME",
    help="The first record's time: 2026-01-31, 2026-01-31T12:00+01:00; UTC without a zone."
    " [default: the beginning]",
)
@click.option(
    "--to",
    "to_ms",
    type=time_param(1000),
    metavar="TIME",
    help="Where to end, exclusive. [default: the end at the first start]",
)
@click.option(
    "--from-offset",
    "from_offsets",
    type=options.TextParam("partition=offset", _place),
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="The first offset of a partition; may be repeated.",
)
@click.option(
    "--to-offset",
    "to_offsets",
    type=options.TextParam("partition=offset", _place),
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="The end of a partition, exclusive; may be repeated.",
)
@click.option(
    "--results",
    default="backfills",
    show_default=True,
    metavar="DIRECTORY",
    help="The tables of results: a directory, or a URL that Spark can write to.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Another name runs the same range again. [default: worker, topic and range]",
)
@click.option(
    "--chunk",
    type=click.IntRange(1),
    default=_CHUNK,
    show_default=True,
    metavar="RECORDS",
    help="Records recorded together: at most this many run twice if the process is killed.",
)
@click.option(
    "--pool",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Concurrent calls in each task. [default: the worker's concurrency]",
)
@click.option(
    "--rate",
    type=options.TextParam("rate", _rate),
    metavar="N/s",
    help="The most records read, over all tasks.",
)
@click.option("--master", metavar="MASTER", help="Where Spark runs. [default: local[*]]")
@click.option(
    "--spark",
    "spark",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Spark property, such as spark.driver.memory=4g; may be repeated.",
)
@click.option(
    "--py-files",
    multiple=True,
    metavar="FILE",
    help="A .py, .zip or .whl that executors need; may be repeated.",
)
@click.option(
    "--skip-lost", is_flag=True, help="Continue if retention removes records in the meantime."
)
@click.option(
    "--at-end",
    type=click.Choice(["leave", "fail"]),
    default="fail",
    show_default=True,
    help="What happens if more than 20 records in a row fail and nothing succeeds for"
    " breaker.max_hold (here 30s by default): they leave, or the chunk fails and names them.",
)
@click.option("--dry-run", is_flag=True, help="Only print counts, sizes and the expected time.")
@options.overrides
@click.option(
    "--start-timeout",
    type=options.DURATION,
    default=30.0,
    metavar="DURATION",
    help="Give up when no broker answers for this long (exit code 1). [default: 30s]",
)
@options.json_option
@exits({OK: "the range is done", INTERRUPTED: "stopped: the same command resumes"})
def backfill_command(**given: Any) -> int:
    """Run a worker's handlers over a bounded range of a topic, on Spark.

    Handler, order, local retries and dead letters are the same as with `run`; there is no group,
    and nothing is committed. Recorded records do not run again: the same command resumes.
    """
    set_up("text", "warning", "")
    return backfill(BackfillOptions(**given))
