"""``window-consumer dlq list``: count dead letters by kind."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from window_consumer.config.units import format_duration
from window_consumer.dlq.commands.options import WHERE, open_dead_letters, topic_options
from window_consumer.dlq.conditions import holds
from window_consumer.dlq.counts import AGES, UNKNOWN, DeadLetterCounts
from window_consumer.dlq.reader import DeadLetterTopic, DeadLetterTopics
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.model.conditions.expressions import Expression
from window_consumer.model.redaction import printable_line

Row = tuple[int, str]


@click.command("list")
@topic_options
@WHERE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_command(*, where: Expression | None, as_json: bool, **options: Any) -> int:
    """Count dead letters by reason, error class, fingerprint, application version and age.

    A fingerprint identifies errors of one class from one place, whatever their messages say.
    """

    def action(source: DeadLetterSource, topics: DeadLetterTopics) -> int:
        now_ms = round(time.time() * 1000)
        found = [(topic, _counts(topic, where, now_ms)) for topic in topics.topics]
        if as_json:
            click.echo(source.mask(json.dumps(_as_json(found), indent=2)))
        else:
            click.echo(source.mask("\n".join(_as_text(found, now_ms))))
        return 0

    return open_dead_letters(options, action)


def _counts(topic: DeadLetterTopic, where: Expression | None, now_ms: int) -> DeadLetterCounts:
    resolved, unknown = topic.resolved_if_known()
    counts = DeadLetterCounts(unknown=unknown)
    for letter in topic.letters():
        if holds(where, letter, now_ms):
            counts.add(letter, now_ms, resolved=letter.position in resolved)
    return counts


def _as_json(found: list[tuple[DeadLetterTopic, DeadLetterCounts]]) -> dict[str, Any]:
    return {
        "topics": {
            topic.name: {"worker": topic.worker, "source": topic.source, **counts.as_json()}
            for topic, counts in found
        }
    }


def _as_text(found: list[tuple[DeadLetterTopic, DeadLetterCounts]], now_ms: int) -> Iterator[str]:
    if not found:
        yield "there is no dead-letter topic yet, or none that may be seen here (DESCRIBE)"
    for topic, counts in found:
        whose = "" if topic.worker is None else f" ({topic.worker}, from {topic.source})"
        yield f"{topic.name}{whose}: {_total(counts)}"
        if counts.open:
            yield from _tables(counts, now_ms)


def _total(counts: DeadLetterCounts) -> str:
    letters = "dead letter" if counts.total == 1 else "dead letters"
    if counts.unknown:
        why = f"reading which of them are resolved is not permitted: {counts.unknown}"
        return f"{counts.total} {letters}; {why}"
    return f"{counts.total} {letters}, {counts.open} open, {counts.resolved} resolved"


def _tables(counts: DeadLetterCounts, now_ms: int) -> Iterator[str]:
    yield from _table("reason", _rows(counts.reasons))
    yield from _table("error class", _rows(counts.classes))
    yield from _table(
        "fingerprint (the latest of each)",
        [
            (each.count, f"{name}  {each.error_class}  {each.latest}")
            for name, each in counts.by_fingerprint()
        ],
    )
    yield from _table("application version", _rows(counts.versions))
    ages = [*(name for name, _ in AGES), UNKNOWN]
    yield from _table("age", [(counts.ages[age], age) for age in ages if counts.ages[age]])
    if counts.oldest_ms is not None:
        old_s = max(0, now_ms - counts.oldest_ms) // 1000
        yield f"  the oldest failed {_roughly(old_s)} ago"


def _rows(counter: Counter[str]) -> list[Row]:
    return [(number, name) for name, number in counter.most_common()]


def _table(title: str, rows: list[Row]) -> Iterator[str]:
    yield f"  {title}"
    for number, name in rows:
        yield f"  {number:>8}  {printable_line(name)}"


def _roughly(seconds: int) -> str:
    """Format an age with one unit: nobody needs the seconds of days."""
    for size in (86_400, 3_600, 60):
        if seconds >= size:
            return format_duration(seconds // size * size)
    return format_duration(seconds)
