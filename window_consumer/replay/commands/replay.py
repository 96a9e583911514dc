"""``window-consumer replay``: calls records again, for one group only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

import attrs
import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.cli.options import topics_named
from window_consumer.cli.output import FAILED, INTERRUPTED, OK, application_output, exits, explain
from window_consumer.cli.signals import Signals
from window_consumer.config import Mask
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.offset_ranges import Span
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.loading import load_app, load_without_handlers
from window_consumer.replay.commands.options import (
    WORKER,
    PointInTime,
    offsets_once,
    read_ids,
    read_offsets,
    read_rate,
    read_time,
)
from window_consumer.replay.conditions import parse_where
from window_consumer.replay.job import ReplayJob, ReplayRequest
from window_consumer.replay.once import UsesOnce, uses_once
from window_consumer.replay.ranges import Selection
from window_consumer.replay.setup import replay_jobs, worker_of

_SAY_S = 5.0
_IDS_NAMED = 10


@click.command("replay")
@common.config
@common.optional_application
@common.overrides
@WORKER
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=topics_named,
    help="Only this topic; may be repeated.",
)
@click.option(
    "--from",
    "begin",
    type=common.TextParam("time", read_time),
    metavar="TIME",
    help="From this time on: 2026-11-21T10:00 (UTC), or 1h (ago).",
)
@click.option(
    "--to",
    "end",
    type=common.TextParam("time", read_time),
    metavar="TIME",
    help="Up to this time, exclusive. [default: the present end]",
)
@click.option(
    "--from-offset",
    "offsets",
    type=common.TextParam("offsets", read_offsets),
    multiple=True,
    metavar="P:O",
    help="From offset O of partition P on; may be repeated. Other partitions are left out.",
)
@click.option(
    "--ids",
    type=common.TextParam("file", read_ids),
    metavar="FILE",
    help="Only these records: a file with an id in each line, such as orders/0/17 or the wc-id.",
)
@click.option(
    "--where",
    type=common.TextParam("expression", parse_where),
    metavar="EXPR",
    help="Only those that match a condition, such as \"key ~ 'de-*' and header('type') =="
    " 'paid'\".",
)
@click.option(
    "--rate",
    type=common.TextParam("rate", read_rate),
    metavar="N/s",
    help="As in 500/s. [default: no limit]",
)
@click.option("--dry-run", is_flag=True, help="Only count; write nothing.")
@click.option("--new-ids", is_flag=True, help="Give the copies new ids: once calls them again.")
@click.option("--restart", is_flag=True, help="Start over instead of resuming an interrupted run.")
@common.short_start_timeout
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@common.features
@exits(
    {FAILED: "something was left, or it failed", INTERRUPTED: "stopped: the same command resumes"}
)
def replay_command(**options: Any) -> int:
    """Call records of a worker's topics again, beside the live ones.

    They are copied into the group's own entry topic, so no other group sees them. Give --from,
    --from-offset or --ids. An interrupted run resumes where it stopped.
    """
    formatter = set_up("text", "warning")
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    request = _request(options)
    with application_output():
        app = load_app(options["application"]) if options["application"] else None
    loaded = load_without_handlers(
        options["config"], app, options["overrides"], options["features"]
    )
    formatter.mask = Mask(loaded.secrets)
    try:
        worker = worker_of(loaded, options["worker"])
        if not request.new_ids:
            _refuse_once(uses_once(loaded, worker, app), worker.name)
        jobs = replay_jobs(
            loaded,
            request,
            worker=worker.name,
            topics=options["topics"],
            oauth_token=None if app is None else app.token_function,
            timeout_s=options["start_timeout"],
        )
        return _run(jobs, options["features"], as_json=options["as_json"])
    except WindowConsumerError as error:
        return explain(error, Mask(loaded.secrets))


def _request(options: Mapping[str, Any]) -> ReplayRequest:
    """Return the request in the options; raise UsageError if they do not fit together."""
    begin, end = options["begin"], options["end"]
    offsets, ids = offsets_once(options["offsets"]), options["ids"]
    given = [begin is not None, bool(offsets), ids is not None]
    if sum(given) != 1:
        raise click.UsageError(
            "specify the records: --from TIME (and --to TIME), --from-offset P:O, or --ids FILE"
            + ("; these are mutually exclusive" if sum(given) else "")
        )
    if end is not None and ids is not None:
        raise click.UsageError("--to goes with --from and --from-offset, not with --ids")
    if begin is not None and end is not None and begin.ms >= end.ms:
        raise click.UsageError(
            f"--from {begin.text} is not before --to {end.text}: the range is empty"
        )
    selection = Selection(
        from_ms=None if begin is None else begin.ms,
        to_ms=None if end is None else end.ms,
        offsets=offsets,
        ids=ids or frozenset(),
    )
    written = [_text(begin), _text(end), sorted(offsets.items()), sorted(ids or ())]
    return ReplayRequest(
        selection=selection,
        name=json.dumps(written),
        where=options["where"],
        rate=options["rate"],
        dry_run=options["dry_run"],
        new_ids=options["new_ids"],
        restart=options["restart"],
    )


def _text(time: PointInTime | None) -> str:
    return "" if time is None else time.text


def _refuse_once(found: UsesOnce, worker: str) -> None:
    if found is UsesOnce.YES:
        raise UsageError(
            f"{worker} has handlers with once: the database knows the records, so no handler would"
            " be called for their copies; add --new-ids to handle them as new records"
        )
    if found is UsesOnce.UNKNOWN:
        click.echo(
            f"{worker}: handlers with once= would not be called for the copies: name the"
            " application (MODULE:APP) to have that checked, or add --new-ids",
            err=True,
        )


def _run(jobs: Sequence[ReplayJob], features: FeatureList, *, as_json: bool) -> int:
    signals = Signals.install()
    try:
        for job in jobs:
            job.claim()
        for job in jobs:
            if not signals.stop.is_set():
                begun = "resumes" if job.resumed else "begins"
                way = f"{begun} run {job.run}, progress in {job.group}"
                click.echo(f"{job.source.name}: {way}", err=True)
                job.replay(_telling(job, signals.stop.is_set), features)
    finally:
        click.echo(_as_json(jobs) if as_json else "\n".join(_as_text(each) for each in jobs))
    if not all(job.complete for job in jobs):
        click.echo("stopped; the same command resumes there", err=True)
        return INTERRUPTED
    left = any(job.counts.refused or job.missing_ids for job in jobs)
    return FAILED if left else OK


def _telling(job: ReplayJob, stop_asked: Callable[[], bool]) -> Callable[[], bool]:
    """Return ``stop_asked``, which prints the job's progress every few seconds."""
    said_at = monotonic()

    def asked() -> bool:
        nonlocal said_at
        if monotonic() - said_at >= _SAY_S:
            said_at = monotonic()
            click.echo(_summary(job), err=True)
        return stop_asked()

    return asked


def _as_json(jobs: Sequence[ReplayJob]) -> str:
    job = jobs[0]
    topics = [_topic_as_json(each) for each in jobs]
    totals = ("read", "replayed", "not_matching", "refused")
    return json.dumps(
        {
            "worker": job.worker.name,
            "group": job.worker.group,
            "dry_run": job.request.dry_run,
            "new_ids": job.request.new_ids,
            "complete": all(each.complete for each in jobs),
            "resumed": any(each.resumed for each in jobs),
            **{name: sum(topic[name] for topic in topics) for name in totals},
            "topics": topics,
        },
        indent=2,
    )


def _topic_as_json(job: ReplayJob) -> dict[str, Any]:
    return {
        "topic": job.source.name,
        "to": job.entry,
        "run": job.run,
        "progress_group": job.group,
        "resumed": job.resumed,
        "complete": job.complete,
        **attrs.asdict(job.counts),
        "missing_ids": job.missing_ids,
        "partitions": [
            {
                "partition": name.partition,
                "first": each.span.first,
                "end": each.span.end,
                "deleted": [[lost.first, lost.end] for lost in job.deleted.get(name.partition, ())],
            }
            for name, each in sorted(job.ranges.items())
        ],
    }


def _summary(job: ReplayJob) -> str:
    counts = job.counts
    verb = "would be replayed" if job.request.dry_run else "replayed"
    parts = [f"{counts.replayed:,} {verb}"]
    for number, what in (
        (counts.not_matching, "do not match"),
        (counts.refused, "left: too large"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    way = f"{job.source.name} -> {job.entry}"
    return f"{way}: {counts.read:,} read, {', '.join(parts)}"


def _as_text(job: ReplayJob) -> str:
    return "\n".join([_summary(job), *(f"  {line}" for line in _details(job))])


def _details(job: ReplayJob) -> Iterator[str]:
    for name, each in sorted(job.ranges.items()):
        yield f"{name}: {_offsets(each.span)}"
        for lost in job.deleted.get(name.partition, ()):
            of_range = "may have been in the range" if job.request.selection.from_ms else "are gone"
            yield f"{name}: retention has deleted {_offsets(lost)}: {of_range}"
    yield from job.counts.reasons
    for record_id in job.missing_ids[:_IDS_NAMED]:
        yield f"{record_id}: this record no longer exists"
    if len(job.missing_ids) > _IDS_NAMED:
        yield f"{len(job.missing_ids) - _IDS_NAMED} more ids were not found"


def _offsets(span: Span) -> str:
    return f"offsets {span.first} to {span.end - 1}" if span.count else "no offsets"
