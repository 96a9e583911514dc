"""``window-consumer dlq report``: group dead letters by cause, time and owner."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from window_consumer.cli.options import DURATION, pipeline_config, topics_named
from window_consumer.cli.output import OK, explain
from window_consumer.dlq.redrive_state import PutBack, put_back
from window_consumer.dlq.report.page import environment, page
from window_consumer.dlq.report.suggested_commands import redrive_of
from window_consumer.dlq.report.text import print_findings
from window_consumer.dlq.spark.findings import DeadLetterFindings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import Mask
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from window_consumer.dlq.spark.ranges import DeadLetterRange
    from window_consumer.dlq.spark.summary import ReportRequest

_A_PAGE = b"<!DOCTYPE html>"


@click.command("report")
@pipeline_config
@click.option(
    "--since", "since_s", type=DURATION, metavar="DURATION", help="Only failures since then."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=topics_named,
    help="Only this topic, of the records or of the dead letters; may be repeated.",
)
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Only this one's; may be repeated."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write the page to this file; an earlier page is replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--from-kafka", is_flag=True, help="Read the topics, even if the pipeline has a table."
)
@click.option(
    "--workers",
    "workers_file",
    metavar="FILE",
    default="workers.yaml",
    show_default=True,
    help="The workers' configuration, for the commands that put dead letters back.",
)
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
def report_command(  # noqa: PLR0913 - an argument for each option
    *,
    config: Path,
    since_s: float | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    from_kafka: bool,
    workers_file: str,
    master: str | None,
) -> int:
    """Report the causes of dead letters, when they began, where they occur, and how to redrive.

    Answers from the table that `pipeline run dlq` keeps, or from the topics if there is no table.
    """
    plan = load_pipeline(config, master=master)
    mask = Mask(plan.secrets)
    asked_ms = round(time.time() * 1000)
    try:
        check_output(output)
        with session_for(plan, short=True) as session:
            from window_consumer.dlq.spark.summary import ReportRequest, findings  # noqa: PLC0415 - slow

            since_ms = None if since_s is None else asked_ms - round(since_s * 1000)
            wishes = ReportRequest(
                asked_ms=asked_ms, since_ms=since_ms, topics=topics, groups=groups
            )
            with _place(session, plan, wishes, from_kafka=from_kafka) as place:
                back = _put_back(plan, groups)
                runs = None if back.unknown else back.runs
                found = findings(place.letters, wishes, place.name, place.unreadable, runs)
                found = attrs.evolve(found, put_back_unknown=back.unknown)
        found = without_secrets(found, mask)
        if output is not None:
            write(page(found, workers_file), output)
        if as_json:
            click.echo(json.dumps(_as_json(found, workers_file), indent=2))
        else:
            print_findings(found, workers_file)
    except BaseException as error:
        return explain(error, mask)
    return OK


def _put_back(plan: PipelinePlan, groups: tuple[str, ...]) -> PutBack:
    log = ClientLog(logging.getLogger("window_consumer.client"), Mask(plan.secrets))
    return put_back(plan.kafka, log, groups)


@contextmanager
def _place(
    session: SparkSession, plan: PipelinePlan, wishes: ReportRequest, *, from_kafka: bool
) -> Iterator[DeadLetterRange]:
    from window_consumer.dlq.spark import ranges as dead_letter_places  # noqa: PLC0415 - optional

    place = None if from_kafka else dead_letter_places.table(session, plan, wishes)
    if place is not None:
        yield place
        return
    if not from_kafka:
        click.echo(
            "there is no table of dead letters yet (`window-consumer pipeline run dlq` keeps one):"
            " reading the topics",
            err=True,
        )
    with dead_letter_places.kafka(session, plan, wishes) as place:
        yield place


def without_secrets(found: DeadLetterFindings, mask: Mask) -> DeadLetterFindings:
    """Return the findings with all secrets of the configuration masked."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return mask(value)
        if isinstance(value, tuple):
            return tuple(map(clean, value))
        if isinstance(value, dict):
            return {key: clean(inner) for key, inner in value.items()}
        if attrs.has(type(value)):
            fields = {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
            return attrs.evolve(value, **{name: clean(inner) for name, inner in fields.items()})
        return value

    cleaned: DeadLetterFindings = clean(found)
    return cleaned


def _as_json(found: DeadLetterFindings, workers_file: str) -> dict[str, Any]:
    report = attrs.asdict(found)
    for cause, as_dict in zip(found.causes, report["causes"], strict=True):
        version = found.began_with(cause)
        as_dict["going_on"] = cause.is_on(found.asked_ms)
        as_dict["began_with"] = None if version is None else attrs.asdict(version)
        as_dict["keys"]["spread"] = cause.keys.spread
        as_dict["redrive"] = redrive_of(cause, found, workers_file)
    return report


def check_output(output: Path | None) -> None:
    """Raise UsageError early if the page cannot be written."""
    if output is None:
        return
    environment()
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: there is no directory {output.parent}")
    try:
        with output.open("rb") as file:
            is_page = file.read(len(_A_PAGE)) == _A_PAGE
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}: choose another file") from error
    if not is_page:
        raise UsageError(f"--output {output}: exists and is not such a page: choose another file")


def write(text: str, output: Path) -> None:
    """Replace a file atomically: readers see either the old or the new version."""
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(output)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UsageError(f"--output {output}: {error.strerror}: choose another file") from error
    click.echo(f"the page is {output}", err=True)
