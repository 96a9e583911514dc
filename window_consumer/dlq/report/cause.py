"""One cause on the page: when, who, where, examples, and what puts its dead letters back."""

from __future__ import annotations

from collections.abc import Iterator

from window_consumer.dlq.report import charts, wording
from window_consumer.dlq.report.markup import (
    Inner,
    Markup,
    join,
    tag,
    text,
)
from window_consumer.dlq.report.suggested_commands import (
    expires_again,
    redrive_of,
    show_of,
    why_none,
)
from window_consumer.dlq.report.tables import (
    keys_table,
    shares_table,
)
from window_consumer.dlq.spark.findings import (
    Cause,
    Example,
    Findings,
)

_SIDES = ("version", "handler", "host", "partition")
_MOST_KEYS = 5


def cause_card(number: int, cause: Cause, findings: Findings, workers_file: str) -> Markup:
    """Return the card of a cause; ``number`` counts from 0."""
    state = wording.state_of(cause, findings.asked_ms)
    version = wording.began_with(cause, findings)
    return tag(
        "section",
        tag(
            "header",
            tag("span", class_=f"swatch {charts.style_of(number)}"),
            tag("h3", wording.name_of(cause)),
            tag("span", state, class_=f"chip {'on' if state == 'going on' else 'over'}"),
            tag("span", cause.reason, class_="chip plain") if cause.reason else None,
            tag("span", version, class_="chip version") if version else None,
            tag(
                "span",
                f"{cause.count:,}, {wording.percent(cause.count, findings.count)} of all",
                class_="count",
            ),
        ),
        tag("p", cause.error_message, class_="message") if cause.error_message else None,
        _about(number, cause, findings),
        tag("div", *_tables(cause), class_="sides"),
        _way_back(cause, findings, workers_file),
        *(_example(each, workers_file, is_open=at == 0) for at, each in enumerate(cause.examples)),
        class_="card cause long",
        id=f"cause-{number + 1}",
    )


def _about(number: int, cause: Cause, findings: Findings) -> Markup:
    lines = [
        f"began {wording.moment(cause.first_ms)}, last {wording.moment(cause.last_ms)}",
        wording.version_in_words(cause, findings),
        f"keys: {wording.keys_in_words(cause.keys)}",
        wording.put_back_in_words(cause.put_back, cause.count),
        wording.again_in_words(cause.failed_again),
        f"fingerprint: {cause.fingerprint or 'none'}",
    ]
    chart: Inner = None
    if cause.periods:
        chart = charts.small(
            cause.periods,
            findings.period_ms,
            min(findings.periods),
            max(findings.periods),
            charts.style_of(number),
        )
    return tag(
        "div",
        tag("ul", *(tag("li", line) for line in lines if line)),
        tag("div", chart),
        class_="about",
    )


def _tables(cause: Cause) -> Iterator[Inner]:
    for side in _SIDES:
        name_of = wording.partition_name if side == "partition" else wording.share_name
        yield shares_table(wording.SIDE_NAMES[side], cause.sides[side], cause.count, name_of)
    yield keys_table(cause.keys, _MOST_KEYS)


def _way_back(cause: Cause, findings: Findings, workers_file: str) -> Markup:
    command = redrive_of(cause, findings, workers_file)
    if command is None:
        return tag("div", tag("h4", "Put them back"), why_none(cause), class_="back")
    warning = "They are too old: raise or lift the time to live first, or they expire again."
    return tag(
        "div",
        tag("h4", "Put them back, when the cause is mended"),
        tag("code", command),
        tag("p", warning) if expires_again(cause) else None,
        class_="back",
    )


def _example(example: Example, workers_file: str, *, is_open: bool) -> Markup:
    told = [
        ("record", example.id),
        ("failed", f"{wording.moment(example.failed_ms)} UTC"),
        ("by", _who(example)),
        ("attempts", None if example.attempts is None else f"{example.attempts:,}"),
        ("put back", f"{example.redrives:,} times" if example.redrives else None),
        ("key", example.key),
        *((f"header {name}", value) for name, value in example.headers),
        ("message", example.error_message),
        ("value", _value(example)),
        ("see all", show_of(example, workers_file)),
    ]
    pairs = [join(tag("dt", name), tag("dd", value)) for name, value in told if value is not None]
    stack = None
    if example.error_stack:
        stack = tag("pre", text(example.error_stack.rstrip(), lines=True))
    return tag(
        "details",
        tag("summary", f"Example {example.dead_letter}, {wording.moment(example.failed_ms)}"),
        tag("dl", *pairs),
        stack,
        open="" if is_open else None,
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
