"""The report as an HTML page: the values for its templates, and their escaping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from window_consumer.dlq.report import charts, formatting, suggested_commands
from window_consumer.dlq.report.text import headline
from window_consumer.dlq.spark.findings import DeadLetterFindings, Example, Share
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import printable, printable_line

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def page(findings: DeadLetterFindings, workers_file: str) -> str:
    """Return the page. ``workers_file`` appears in the redrive commands.

    Raises UsageError if Jinja2 is missing.
    """
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            findings=findings,
            workers_file=workers_file,
            headline=headline(findings),
            figures=_figures(findings),
            parts=_parts(findings),
            chart=_chart(findings),
            versions=_versions(findings),
        )
    )


@cache
def environment() -> Environment:
    """Return the environment of the templates; raise UsageError if Jinja2 is missing.

    All output is escaped, whatever its origin, and invisible characters are written out.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - optional
        from markupsafe import Markup, escape  # noqa: PLC0415 - comes with it
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--output: there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error

    def visible(value: Any) -> str | Markup:
        return value if isinstance(value, Markup) else printable_line(str(value))

    def breakable(name: str) -> Markup:
        """Let a dotted name wrap after dots only."""
        return Markup(".<wbr>").join(printable_line(name).split("."))

    made = Environment(
        loader=PackageLoader(__package__ or "", ""),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        charts=charts, commands=suggested_commands, formatting=formatting, said_by=_reason_text
    )
    made.filters.update(
        breakable=breakable,
        one="{:.1f}".format,
        stack=lambda text: escape(printable(text.rstrip())),
        thousands="{:,}".format,
        two="{:.2f}".format,
    )
    return made


def _figures(findings: DeadLetterFindings) -> Iterator[tuple[str, str, str]]:
    """Yield the figures at the top: name, figure and explanation."""
    if not findings.count:
        return
    most = formatting.name_of(findings.causes[0])
    yield "Dead letters", f"{findings.count:,}", f"last {formatting.moment(findings.last_ms)}"
    if findings.put_back is not None:
        waiting = f"{findings.count - findings.put_back:,}"
        yield "Waiting", waiting, f"{findings.put_back:,} were put back"
    yield "Causes", f"{findings.distinct_causes:,}", f"most: {most}"
    states = [formatting.state_of(cause, findings.asked_ms) for cause in findings.causes]
    yield (
        "Still going on",
        f"{states.count('going on'):,}",
        f"of the {len(findings.causes)} listed",
    )
    if findings.put_back is None:
        share = formatting.percent(findings.causes[0].count, findings.count)
        yield "Largest share", share, most


def _parts(findings: DeadLetterFindings) -> list[tuple[str, str, int]]:
    """Return name, class and count of each coloured cause, and of all others together."""
    parts = [
        (formatting.name_of(cause), charts.style_of(number), cause.count)
        for number, cause in enumerate(findings.causes[: charts.COLOURS])
    ]
    listed = sum(count for _, _, count in parts)
    if listed < findings.count:
        parts.append(("all others", "rest", findings.count - listed))
    return parts


def _chart(findings: DeadLetterFindings) -> charts.PeriodChart | None:
    if not findings.periods:
        return None
    causes = findings.causes[: charts.COLOURS]
    bands = [
        charts.Band(formatting.name_of(cause), charts.style_of(number), cause.periods)
        for number, cause in enumerate(causes)
    ]
    rest = {
        begin: count - sum(cause.periods.get(begin, 0) for cause in causes)
        for begin, count in findings.periods.items()
    }
    rest = {begin: count for begin, count in rest.items() if count}
    if rest:
        bands.append(charts.Band("all others", "rest", rest))
    return charts.PeriodChart(bands, findings.period_ms, marks_of(findings))


def marks_of(findings: DeadLetterFindings) -> list[charts.Mark]:
    """Return when each version except the first had its first dead letter."""
    versions = [each for each in findings.sides["version"] if each.value and each.first_ms]
    by_time = sorted(versions, key=lambda each: each.first_ms or 0)
    first_of = {each.of: each for each in reversed(by_time)}
    return [
        charts.Mark(each.first_ms or 0, str(each.value))
        for each in by_time
        if first_of[each.of] is not each
    ]


def _versions(findings: DeadLetterFindings) -> list[tuple[Share, list[str]]]:
    """Return the versions, oldest first, with the causes that began with each."""
    begun: dict[tuple[str | None, str | None], list[str]] = {}
    for cause in findings.causes:
        version = findings.began_with(cause)
        if version is not None:
            begun.setdefault((version.value, version.of), []).append(formatting.name_of(cause))
    known = [each for each in findings.sides["version"] if each.value is not None]
    by_time = sorted(known, key=lambda each: each.first_ms or 0)
    return [(each, begun.get((each.value, each.of), [])) for each in by_time]


def _reason_text(example: Example, workers_file: str) -> Iterable[tuple[str, str | None]]:
    return (
        ("record", example.id),
        ("failed", f"{formatting.moment(example.failed_ms)} UTC"),
        ("by", _who(example)),
        ("attempts", None if example.attempts is None else f"{example.attempts:,}"),
        ("put back", f"{example.redrives:,} times" if example.redrives else None),
        ("key", example.key),
        *((f"header {name}", value) for name, value in example.headers),
        ("message", example.error_message),
        ("value", _value(example)),
        ("see all", suggested_commands.show_of(example, workers_file)),
    )


def _who(example: Example) -> str | None:
    parts = (
        example.handler,
        example.version and f"version {example.version}",
        example.host and f"on {example.host}",
    )
    return ", ".join(part for part in parts if part) or None


def _value(example: Example) -> str | None:
    if example.value_bytes is None:
        return None
    size = f"{example.value_bytes:,} bytes"
    return size if example.value is None else f"{example.value} ({size})"
