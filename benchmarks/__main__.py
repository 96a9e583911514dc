"""``python -m benchmarks``: runs workloads, lists them, prints reports as a table."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import evolve

from benchmarks import gate, machine, report
from benchmarks.breaker_scenes.running import narrowed
from benchmarks.broker import kafka_at
from benchmarks.peers.command import peers_command
from benchmarks.results import Measured, exit_code
from benchmarks.runs import measure
from benchmarks.topics import Topics
from benchmarks.turns import turns_command
from benchmarks.workloads import WORKLOADS, Workload
from window_consumer.cli.output import guarded
from window_consumer.config.problems import did_you_mean

Command = Callable[..., Any]

_MIN_RUNS = 3


def _options(command: Command) -> Command:
    for option in (
        click.option(
            "--strict", is_flag=True, help="End with exit code 1 when a floor is missed, too."
        ),
        click.option(
            "--runs",
            type=click.IntRange(_MIN_RUNS),
            help="How often each workload and each baseline runs. [default: 7 times the short"
            " ones, 3 times the others]",
        ),
        click.option(
            "--kafka", metavar="HOST:PORT", help="A Kafka to use. [default: one is started for it]"
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure the framework beside loops written by hand; see docs/benchmarks.md."""


@cli.command("list")
def list_command() -> int:
    """List the workloads."""
    width = max(map(len, WORKLOADS))
    for workload in WORKLOADS.values():
        floors = ", ".join(f"{floor.ratio} {floor}" for floor in workload.floors)
        click.echo(f"{workload.name:<{width}}  {workload.what}\n{'':<{width}}  {floors}")
    return 0


@cli.command("run")
@click.argument("name")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report into this file.",
)
@click.option(
    "--only",
    metavar="TEXT",
    default="",
    help="Of breaker-scenes: run the variants with this text in their name.",
)
@click.option("--ids", type=click.IntRange(1), help="Of once-large: how many ids the table holds.")
@_options
def run_command(  # noqa: PLR0913 - each option is one
    name: str,
    json_file: Path | None,
    kafka: str | None,
    runs: int | None,
    *,
    only: str,
    ids: int | None,
    strict: bool,
) -> int:
    """Run a workload beside its baselines.

    The exit code is 1 when a record was lost, out of order or not committed.
    """
    _known(name)
    if json_file is not None and not json_file.parent.is_dir():
        raise click.UsageError(f"--json {json_file}: there is no directory {json_file.parent}")
    workload = WORKLOADS[name]
    if only:
        if workload.work != "breaker-scenes":
            raise click.UsageError(f"--only: {name} has no scenes")
        workload = narrowed(workload, only)
    if ids is not None:
        if not workload.ids:
            raise click.UsageError(f"--ids: {name} has no table of ids")
        workload = evolve(workload, ids=ids)
    return _run([workload], kafka, runs, lambda _: json_file, strict=strict)


@cli.command("all")
@click.option(
    "--json",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the reports into this directory, one file for each workload.",
)
@_options
def all_command(
    directory: Path | None, kafka: str | None, runs: int | None, *, strict: bool
) -> int:
    """Run all workloads; takes about ten minutes."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)

    def file_of(workload: Workload) -> Path | None:
        return directory and directory / f"{workload.name}.json"

    return _run(list(WORKLOADS.values()), kafka, runs, file_of, strict=strict)


@cli.command("gate")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--short",
    is_flag=True,
    help="For CI, in a minute: a few ratios, few records, floors with a tolerance.",
)
@click.option("--kafka", metavar="HOST:PORT", help="A Kafka to use. [default: one is started]")
def gate_command(names: tuple[str, ...], kafka: str | None, *, short: bool) -> int:
    """Run all workloads with promised figures, or the named ones.

    Prints a table and the missed figures; the exit code is then 1. Takes about a quarter of an
    hour.
    """
    for name in names:
        _known(name)
    if short and names:
        raise click.UsageError("--short has a table of its own: it takes no names")
    workloads = gate.short_form() if short else gate.long_form(names)
    began = time.monotonic()
    with kafka_at(kafka, _say) as (bootstrap, _):
        topics = Topics(bootstrap)

        def run(workload: Workload) -> Measured:
            return measure(workload, topics, workload.runs, _say, checked=not short)

        verdicts = gate.judge(workloads, run, gate.CHANCES if short else 1)
    click.echo(gate.table(verdicts))
    _say(f"took {time.monotonic() - began:.0f} s")
    return int(any(each.problem for each in verdicts))


@cli.command("table")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def table_command(directory: Path) -> int:
    """Print the reports of a directory as a Markdown table."""
    click.echo(report.table(report.read_reports(directory)))
    return 0


cli.add_command(peers_command)
cli.add_command(turns_command)


def _known(name: str) -> None:
    if name not in WORKLOADS:
        hint = did_you_mean(name, WORKLOADS)
        raise click.UsageError(
            f"there is no workload {name!r}{'; ' if hint else ''}{hint}\nThere are:"
            f" {', '.join(WORKLOADS)}"
        )


def _run(
    workloads: Sequence[Workload],
    kafka: str | None,
    runs: int | None,
    file_of: Callable[[Workload], Path | None],
    *,
    strict: bool,
) -> int:
    began = time.monotonic()
    found: list[Measured] = []
    with kafka_at(kafka, _say) as (bootstrap, version):
        place = machine.describe(version)
        topics = Topics(bootstrap)
        for workload in workloads:
            measured = measure(workload, topics, runs or workload.runs, _say)
            found.append(measured)
            if file := file_of(workload):
                file.write_text(json.dumps(report.as_json(measured, place), indent=2) + "\n")
            click.echo(report.as_text(measured))
    _say(f"took {time.monotonic() - began:.0f} s")
    return exit_code(found, strict=strict)


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    sys.exit(guarded(lambda: int(cli.main(standalone_mode=False) or 0)))
