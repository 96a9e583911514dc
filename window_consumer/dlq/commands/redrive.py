"""``window-consumer dlq redrive``: put dead letters back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import attrs
import click
from attrs import define, field

from window_consumer.cli import options as common
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.cli.output import (
    FAILED,
    INTERRUPTED,
    OK,
    application_output,
    exits,
    explain,
    print_json,
)
from window_consumer.cli.signals import Signals
from window_consumer.config import Mask
from window_consumer.dlq.commands.options import WHERE
from window_consumer.dlq.redrive import RedriveCounts
from window_consumer.dlq.redrive_setup import RedriveJob, RedriveRequest, redrive_jobs
from window_consumer.kafka.cluster.groups import groups_reading
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.loading import load_app, load_without_handlers

_SAY_S = 5.0
_LEFT = (
    "the same command does not read dead letters again that were left: fix the reason, then"
    " select one by its id (see dlq show): --where \"id == 'orders/0/17'\" --restart"
)


@click.command("redrive")
@common.config
@common.optional_application
@common.overrides
@click.option(
    "--worker", "-w", "workers", multiple=True, help="Only this worker's; may be repeated."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only those of this topic, or of this dead-letter topic; may be repeated.",
)
@WHERE
@click.option(
    "--to-source", is_flag=True, help="Into the source topic, where all its groups see them."
)
@click.option(
    "--yes", is_flag=True, help="Proceed although other groups will see the records again."
)
@click.option("--dry-run", is_flag=True, help="Only count; write nothing.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Records per second. [default: no limit]",
)
@click.option(
    "--max-redrives",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="Leave records that were already put back N times.",
)
@click.option(
    "--transactional",
    is_flag=True,
    help="In transactions: nothing repeats for readers of committed data.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="Start over at the first dead letter; this puts back resolved ones again.",
)
@common.short_start_timeout
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@common.features
@exits(
    {FAILED: "something was left, or it failed", INTERRUPTED: "stopped: the same command resumes"}
)
def redrive_command(**options: Any) -> int:
    """Put dead letters back, into the group's own entry topic.

    No other group sees them again. An interrupted run resumes where it stopped. Nothing is deleted:
    dead letters that went back are marked as resolved.
    """
    formatter = set_up("text", "warning")
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    with application_output():
        app = load_app(options["application"]) if options["application"] else None
    request = RedriveRequest(
        to_source=options["to_source"],
        where=options["where"],
        max_redrives=options["max_redrives"],
        rate=options["rate"],
        dry_run=options["dry_run"],
        transactional=options["transactional"],
        restart=options["restart"],
    )
    loaded = load_without_handlers(
        options["config"], app, options["overrides"], options["features"]
    )
    formatter.mask = Mask(loaded.secrets)
    try:
        jobs = redrive_jobs(
            loaded,
            request,
            workers=options["workers"],
            topics=options["topics"],
            oauth_token=None if app is None else app.token_function,
            timeout_s=options["start_timeout"],
        )
        _warn_of_other_groups(jobs, agreed=options["yes"] or options["dry_run"])
        return _run(jobs, options["features"], as_json=options["as_json"])
    except WindowConsumerError as error:
        return explain(error, Mask(loaded.secrets))


def _warn_of_other_groups(jobs: Sequence[RedriveJob], *, agreed: bool) -> None:
    """List the other groups that read the source topics; raise UsageError without consent."""
    concerned = [job for job in jobs if job.request.to_source]
    if not concerned:
        return
    lines = []
    for job in concerned:
        others = [group for group in _groups_of(job) if group != job.target.group]
        consequence = (
            f"would be seen again by: {', '.join(others)}" if others else "has no other group"
        )
        lines.append(f"  {job.topics.source} {consequence}")
    text = "\n".join(lines)
    if not agreed:
        raise UsageError(f"--to-source: records in a source topic\n{text}\nadd --yes to do it")
    click.echo(f"--to-source: records in a source topic\n{text}", err=True)


def _groups_of(job: RedriveJob) -> list[str]:
    clients = job.clients
    return groups_reading(clients.admin, job.topics.source, clients.log, clients.oauth_token)


def _run(jobs: Sequence[RedriveJob], features: FeatureList, *, as_json: bool) -> int:
    signals = Signals.install()
    reports = [_Report(job) for job in jobs]
    try:
        for report in reports:
            if not signals.stop.is_set():
                report.run(signals.stop.is_set, features)
    finally:
        if as_json:
            print_json({"redrives": [each.as_json() for each in reports]})
        else:
            click.echo("\n".join(each.as_text() for each in reports) or "no dead letters")
    if not all(each.complete for each in reports):
        click.echo("stopped; the same command resumes there", err=True)
        return INTERRUPTED
    left = any(each.counts.unavailable or each.counts.refused for each in reports)
    if left:
        click.echo(_LEFT, err=True)
    return FAILED if left else OK


@define
class _Report:
    """The results of one job."""

    job: RedriveJob
    counts: RedriveCounts = field(factory=RedriveCounts)
    complete: bool = False
    _said_at: float = field(factory=monotonic)

    def run(self, stop_asked: Callable[[], bool], features: FeatureList) -> None:
        def asked() -> bool:
            if monotonic() - self._said_at >= _SAY_S:
                self._said_at = monotonic()
                click.echo(self.as_text(), err=True)
            return stop_asked()

        way = f"{self.job.topics.dead_letters.name}, progress in {self.job.group}"
        click.echo(f"{self.job.worker}: reads {way}", err=True)
        self.complete = self.job.run(self.counts, asked, features.copy_writer)

    def as_json(self) -> dict[str, Any]:
        return {**self.job.as_json(), "complete": self.complete, **attrs.asdict(self.counts)}

    def as_text(self) -> str:
        job, counts = self.job, self.counts
        verb = "would go back" if job.request.dry_run else "put back"
        parts = [f"{counts.redriven:,} {verb}"]
        for number, what in (
            (counts.not_matching, "do not match"),
            (counts.resolved_before, "were put back before"),
            (counts.guarded, f"left: already put back {job.request.max_redrives} times"),
            (counts.unavailable, "left: their values are gone"),
            (counts.refused, "left: too large"),
        ):
            if number:
                parts.append(f"{number:,} {what}")
        way = f"{job.worker}: {job.topics.dead_letters.name} -> {job.topics.to.topic}"
        first = f"{way}: {counts.read:,} read, {', '.join(parts)}"
        return "\n".join([first, *(f"  {reason}" for reason in counts.reasons)])
