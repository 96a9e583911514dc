"""``window-consumer rewind``: moves a stopped group to other offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from window_consumer.cli import options as common
from window_consumer.cli.logs import set_up
from window_consumer.cli.options import topics_named
from window_consumer.cli.output import OK, application_output, explain
from window_consumer.config import Mask
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.record import TopicPartition
from window_consumer.plan.clients import Clients
from window_consumer.plan.loading import load_app, load_without_handlers
from window_consumer.replay.commands.options import WORKER, PointInTime, offsets_once, read_place
from window_consumer.replay.once import UsesOnce, uses_once
from window_consumer.replay.rewind import Between, OffsetMove, Rewind, RewindTarget
from window_consumer.replay.setup import sources_of, worker_of


@click.command("rewind")
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
    "--to",
    "places",
    type=common.TextParam("place", read_place),
    multiple=True,
    required=True,
    metavar="TIME|P:O,...",
    help="The first records of a time (2026-11-21T10:00 in UTC, or 1h ago), or offset O of"
    " partition P; may be repeated.",
)
@click.option(
    "--skip", is_flag=True, help="Also move forward: the skipped records are never called."
)
@click.option("--dry-run", is_flag=True, help="Only print the records in between; change nothing.")
@common.short_start_timeout
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@common.features
def rewind_command(**options: Any) -> int:
    """Move a worker's stopped group to another position.

    All records from there on are called again, in order, when the workers start. Topics of the
    ladder stay as they are.
    """
    formatter = set_up("text", "warning")
    target = _target(options["places"])
    with application_output():
        app = load_app(options["application"]) if options["application"] else None
    loaded = load_without_handlers(
        options["config"], app, options["overrides"], options["features"]
    )
    formatter.mask = Mask(loaded.secrets)
    try:
        worker = worker_of(loaded, options["worker"])
        _refuse_once(uses_once(loaded, worker, app), worker.name)
        token = None if app is None else app.token_function
        clients = Clients.connect(loaded, worker, token, options["start_timeout"])
        sources = sources_of(loaded, worker, clients, options["topics"])
        if len(sources) > 1 and target.offsets:
            names = ", ".join(each.name for each in sources)
            raise UsageError(f"--to P:O: {worker.name} reads {names}: choose one with --topic")
        rewind = Rewind(loaded, worker, clients, sources)
        rewind.plan(target, skip=options["skip"])
        measured = rewind.measured() if options["dry_run"] else {}
        if rewind.moves and not options["dry_run"]:
            rewind.commit()
        render = _as_json if options["as_json"] else _as_text
        click.echo(render(rewind, measured, dry_run=options["dry_run"]))
    except WindowConsumerError as error:
        return explain(error, Mask(loaded.secrets))
    return OK


def _target(places: Sequence[PointInTime | Mapping[int, int]]) -> RewindTarget:
    times = [each for each in places if isinstance(each, PointInTime)]
    offsets = [each for each in places if not isinstance(each, PointInTime)]
    if times and len(places) > 1:
        raise click.UsageError("--to takes one time, or offsets of partitions, not both")
    if times:
        return RewindTarget(time_ms=times[0].ms)
    return RewindTarget(offsets=offsets_once(offsets))


def _refuse_once(found: UsesOnce, worker: str) -> None:
    if found is UsesOnce.YES:
        raise UsageError(
            f"{worker} has handlers with once: the database knows the records, so no handler would"
            " be called again; use replay with --new-ids"
        )
    if found is UsesOnce.UNKNOWN:
        click.echo(
            f"{worker}: handlers with once= would not be called again: name the application"
            " (MODULE:APP) to have that checked",
            err=True,
        )


def _as_json(rewind: Rewind, measured: Mapping[TopicPartition, Between], *, dry_run: bool) -> str:
    def of(move: OffsetMove) -> dict[str, Any]:
        between = measured.get(move.name)
        return {
            "topic": move.name.topic,
            "partition": move.name.partition,
            "from": move.before,
            "to": move.to,
            "forward": move.is_forward,
            "deleted": None if move.deleted is None else [move.deleted.first, move.deleted.end],
            "records": None if between is None else between.records,
            "bytes": None if between is None else between.bytes,
            "first_time": None if between is None else _time(between.first_ms),
            "last_time": None if between is None else _time(between.last_ms),
        }

    totals = {
        "records": sum(each.records for each in measured.values()) if dry_run else None,
        "bytes": sum(each.bytes for each in measured.values()) if dry_run else None,
    }
    return json.dumps(
        {
            "worker": rewind.worker.name,
            "group": rewind.worker.group,
            "dry_run": dry_run,
            **totals,
            "partitions": [of(each) for each in rewind.moves],
        },
        indent=2,
    )


def _as_text(rewind: Rewind, measured: Mapping[TopicPartition, Between], *, dry_run: bool) -> str:
    if not rewind.moves:
        return f"{rewind.worker.group} is already there"
    verb = "would be moved" if dry_run else "was moved"
    lines = [f"{rewind.worker.group} {verb}:"]
    for move in rewind.moves:
        lines += [f"  {line}" for line in _lines(move, measured.get(move.name))]
    return "\n".join(lines)


def _lines(move: OffsetMove, between: Between | None) -> Iterator[str]:
    before = "no offset" if move.before is None else move.before
    line = f"{move.name}: from {before} to {move.to}"
    if between is not None:
        what = "skipped" if move.is_forward else "again"
        line += f": {between.records:,} records {what}, {between.bytes:,} bytes"
        if between.first_ms is not None:
            line += f", {_time(between.first_ms)} to {_time(between.last_ms)}"
    yield line
    if move.deleted is not None:
        yield f"{move.name}: retention has deleted the offsets before {move.deleted.end}"


def _time(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
