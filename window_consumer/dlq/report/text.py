"""The report on dead letters for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from window_consumer.dlq.report import formatting
from window_consumer.dlq.report.suggested_commands import (
    expires_again,
    redrive_of,
    show_of,
    why_none,
)
from window_consumer.dlq.spark.findings import DeadLetterFindings, FailureGroup, Share
from window_consumer.model.redaction import printable_line

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 60
_MOST_ROWS = 5
_WITHOUT_TERMINAL = 160
_SIDES = ("handler", "version", "host", "partition")


def print_findings(findings: DeadLetterFindings, workers_file: str) -> None:
    """Print the findings: a table of causes, then each cause with its redrive command."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WITHOUT_TERMINAL)
    for part in _parts(findings, workers_file):
        console.print(part, soft_wrap=isinstance(part, Text))


def _parts(findings: DeadLetterFindings, workers_file: str) -> Iterator[RenderableType]:
    yield from map(_text, headline(findings))
    if not findings.count:
        return
    yield ""
    yield _causes(findings)
    yield ""
    each = formatting.length(findings.period_ms)
    yield _text(f"by {each}: {bars(findings.periods, findings)}")
    yield _text(f"keys: {formatting.keys_in_words(findings.keys)}")
    yield _sides(findings.sides, findings.count)
    for number, cause in enumerate(findings.causes, 1):
        yield ""
        yield from _cause(number, cause, findings, workers_file)


def headline(findings: DeadLetterFindings) -> Iterator[str]:
    """Yield the lines that describe the report."""
    if findings.count:
        began, ended = formatting.moment(findings.first_ms), formatting.moment(findings.last_ms)
        counted = f"{findings.count:,} dead letters of {findings.distinct_causes:,} causes"
        yield f"{counted}, failed from {began} to {ended} UTC"
    else:
        yield "no dead letters"
    yield from _ways_of_all(findings)
    limits = []
    if findings.since_ms is not None:
        limits.append(f"since {formatting.moment(findings.since_ms)} UTC")
    if findings.topics:
        limits.append(f"of topics {', '.join(findings.topics)}")
    if findings.groups:
        limits.append(f"of groups {', '.join(findings.groups)}")
    if limits:
        yield f"only those {', '.join(limits)}"
    yield f"read from {findings.source}"
    if findings.unreadable:
        yield f"{findings.unreadable:,} more were written by a later version and cannot be read"
    if findings.others:
        rest = findings.distinct_causes - len(findings.causes)
        yield f"{findings.others:,} of {rest:,} less frequent causes are not listed"


def _ways_of_all(findings: DeadLetterFindings) -> Iterator[str]:
    put_back = formatting.put_back_in_words(findings.put_back, findings.count)
    if put_back is not None:
        yield put_back
    if findings.put_back_unknown is not None:
        yield f"the number that were put back is unknown: {findings.put_back_unknown}"
    again = formatting.again_in_words(findings.failed_again)
    if again is not None:
        yield f"{again}: the earlier dead letters of their records are counted, too"


def bars(periods: Mapping[int, int], findings: DeadLetterFindings) -> str:
    """Return a line of bars, one per period, over the time of all dead letters."""
    if not findings.periods:
        return formatting.UNKNOWN
    first, last = min(findings.periods), max(findings.periods)
    number = (last - first) // findings.period_ms + 1
    join = -(-number // _MOST_BARS)
    sums = [0] * -(-number // join)
    for begin, count in periods.items():
        sums[(begin - first) // findings.period_ms // join] += count
    most = max(sums) or 1
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if count else " " for count in sums)


def _causes(findings: DeadLetterFindings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    right = ("", "share", "count", "waiting")
    for name in (*right, "cause", "fingerprint", "reason", "began", "last", "state"):
        table.add_column(name, justify="right" if name in right else "left")
    for number, cause in enumerate(findings.causes, 1):
        state = formatting.state_of(cause, findings.asked_ms)
        table.add_row(
            str(number),
            formatting.percent(cause.count, findings.count),
            f"{cause.count:,}",
            formatting.waiting(cause),
            _text(formatting.name_of(cause)),
            _text(cause.fingerprint or "none"),
            _text(cause.reason or formatting.UNKNOWN),
            formatting.moment(cause.first_ms),
            formatting.moment(cause.last_ms),
            Text(state, style="bold red" if state == "going on" else ""),
        )
    return table


def _sides(sides: Mapping[str, tuple[Share, ...]], count: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for side in _SIDES:
        shares = sides.get(side, ())
        name_of = formatting.partition_name if side == "partition" else formatting.share_name
        rows = [
            f"{name_of(each)} {formatting.percent(each.count, count)}"
            for each in shares[:_MOST_ROWS]
        ]
        if len(shares) > _MOST_ROWS:
            rows.append("...")
        table.add_row(formatting.SIDE_NAMES[side].lower(), _text(", ".join(rows)))
    return table


def _cause(
    number: int, cause: FailureGroup, findings: DeadLetterFindings, workers_file: str
) -> Iterator[RenderableType]:
    title = f"{number}. {formatting.name_of(cause)}"
    if cause.error_message:
        title += f": {cause.error_message}"
    yield Text(printable_line(title), style="bold")
    yield _text(f"   {bars(cause.periods, findings)}")
    version = formatting.version_in_words(cause, findings)
    if version is not None:
        yield _text(f"   {version}")
    yield _text(f"   keys: {formatting.keys_in_words(cause.keys)}")
    for line in (
        formatting.put_back_in_words(cause.put_back, cause.count),
        formatting.again_in_words(cause.failed_again),
    ):
        if line is not None:
            yield _text(f"   {line}")
    yield Padding(_sides(cause.sides, cause.count), (0, 0, 0, 3))
    for example in cause.examples[:1]:
        yield _text(f"   latest: {show_of(example, workers_file)}")
    command = redrive_of(cause, findings, workers_file)
    if command is None:
        yield _text(f"   not put back: {why_none(cause)}")
    else:
        yield _text(f"   put back: {command}")
        if expires_again(cause):
            yield _text("   but they have already expired: raise or remove ttl first")


def _text(text: str) -> Text:
    """Return text without rich markup or terminal escapes."""
    return Text(printable_line(text))
