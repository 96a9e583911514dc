"""``window-consumer dlq purge``: delete old dead letters."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from window_consumer.cli.options import TextParam
from window_consumer.cli.output import OK
from window_consumer.dlq.commands.options import open_dead_letters, topic_options
from window_consumer.dlq.purge import Before, PurgePoint, cuts_of, purge
from window_consumer.dlq.reader import DeadLetterTopics
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.model.errors import UsageError


def _before(text: str) -> Before:
    return Before.parse(text, round(time.time() * 1000))


@click.command("purge")
@topic_options
@click.option(
    "--before",
    type=TextParam("time", _before),
    required=True,
    metavar="TIME|OFFSET",
    help="Delete dead letters written before: 2026-11-21T10:00 (UTC), 14d (ago), or an offset.",
)
@click.option("--partition", type=click.IntRange(0), default=None, help="Only in this partition.")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@click.option("--yes", is_flag=True, help="Really delete; without it nothing is deleted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def purge_command(
    *,
    before: Before,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Delete dead letters from the beginning of their topics, permanently.

    Everything before the first dead letter that is recent enough is deleted, resolved or not.
    """

    def action(_: DeadLetterSource, topics: DeadLetterTopics) -> int:
        cuts = cuts_of(topics.topics, before, partition)
        if cuts and not dry_run and not yes:
            would = "\n".join(f"  {_in_words(cut)}" for cut in cuts)
            raise UsageError(f"this would permanently delete:\n{would}\nadd --yes to do it")
        done = not dry_run
        if done:
            purge(cuts)
        click.echo(_as_json(cuts, done) if as_json else _as_text(cuts, before, done))
        return OK

    return open_dead_letters(options, action)


def _as_text(cuts: Sequence[PurgePoint], before: Before, done: bool) -> str:  # noqa: FBT001 - private
    if not cuts:
        return f"nothing is before {_limit(before)}"
    title = "deleted" if done else "would be deleted"
    return "\n".join([f"{title}:", *(f"  {_in_words(cut)}" for cut in cuts)])


def _in_words(cut: PurgePoint) -> str:
    first, last = cut.span.first, cut.span.end - 1
    which = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return f"{cut.name}: {which}; {cut.left} stay"


def _limit(before: Before) -> str:
    if before.time_ms is None:
        return f"offset {before.offset}"
    return datetime.fromtimestamp(before.time_ms / 1000, UTC).isoformat(timespec="seconds")


def _as_json(cuts: Sequence[PurgePoint], done: bool) -> str:  # noqa: FBT001 - private
    named = [cut.as_json() for cut in cuts]
    return json.dumps({"deleted": done, "partitions": named}, indent=2)
