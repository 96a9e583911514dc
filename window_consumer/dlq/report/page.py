"""The report on dead letters as a page: one file, no address outside, readable without a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import resources

from window_consumer.dlq.report import charts, wording
from window_consumer.dlq.report.cause import cause_card
from window_consumer.dlq.report.markup import (
    Inner,
    Markup,
    breakable,
    join,
    tag,
)
from window_consumer.dlq.report.tables import (
    Cell,
    keys_table,
    shares_table,
    table,
)
from window_consumer.dlq.report.text import headline
from window_consumer.dlq.spark.findings import (
    Cause,
    Findings,
)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SIDES = ("handler", "host", "partition", "reason", "group", "topic", "dead_letters", "by")
_MOST_KEYS = 10


def page(findings: Findings, workers_file: str) -> str:
    """Return the page. ``workers_file`` stands in the commands that put dead letters back."""
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", "Dead letters"),
        tag("style", Markup(style)),
    )
    html = tag("html", tag("head", head), tag("body", *_body(findings, workers_file)), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _body(findings: Findings, workers_file: str) -> Iterable[Inner]:
    first, *rest = headline(findings)
    yield tag(
        "header",
        tag("h1", "Dead letters"),
        tag("p", first),
        *(tag("p", line, class_="soft") for line in rest),
    )
    if findings.count:
        yield _figures(findings)
        yield tag(
            "main",
            _overview(findings),
            _over_time(findings),
            _versions(findings),
            _key_card(findings),
            _sides(findings),
            *(
                cause_card(number, cause, findings, workers_file)
                for number, cause in enumerate(findings.causes)
            ),
        )
    yield tag(
        "footer",
        f"Made {wording.moment(findings.asked_ms)} UTC by window-consumer dlq report. All times are"
        " UTC. A cause is a fingerprint: errors of one class from one place in the code. It is"
        " going on when its last dead letter is younger than an hour, or than three times what"
        " lay between them on average.",
    )


def _figures(findings: Findings) -> Markup:
    states = [wording.state_of(cause, findings.asked_ms) for cause in findings.causes]
    top = findings.causes[0]
    told: list[tuple[str, str, str]] = [
        ("Dead letters", f"{findings.count:,}", f"last {wording.moment(findings.last_ms)}"),
        ("Causes", f"{findings.distinct_causes:,}", f"most: {wording.name_of(top)}"),
        (
            "Still going on",
            f"{states.count('going on'):,}",
            f"of the {len(findings.causes)} told here",
        ),
    ]
    if findings.put_back is None:
        told.append(
            ("Largest share", wording.percent(top.count, findings.count), wording.name_of(top))
        )
    else:
        waiting = findings.count - findings.put_back
        told.insert(1, ("Waiting", f"{waiting:,}", f"{findings.put_back:,} were put back"))
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", figure, tag("small", more)))
            for name, figure, more in told
        ),
        class_="figures",
    )


def _overview(findings: Findings) -> Markup:
    parts = [
        (wording.name_of(cause), charts.style_of(number), cause.count)
        for number, cause in enumerate(findings.causes[: charts.COLOURS])
    ]
    told = sum(count for _, _, count in parts)
    if told < findings.count:
        parts.append(("all others", "rest", findings.count - told))
    rows = [_cause_row(number, cause, findings) for number, cause in enumerate(findings.causes)]
    if findings.others:
        rows.append(
            [
                join(tag("span", class_="swatch rest"), "less frequent causes"),
                wording.percent(findings.others, findings.count),
                f"{findings.others:,}",
            ]
        )
    return _card(
        "Causes",
        charts.shares(parts, "Share of causes"),
        table(
            ("Cause", "Share", "Count", "Waiting", "Began", "Last", "State", "Began with", "Keys"),
            rows,
            numbers={1, 2, 3},
            times={4, 5},
            names={0},
        ),
    )


def _cause_row(number: int, cause: Cause, findings: Findings) -> list[Cell]:
    state = wording.state_of(cause, findings.asked_ms)
    version = findings.began_with(cause)
    name = tag("a", breakable(wording.name_of(cause)), href=f"#cause-{number + 1}")
    return [
        join(
            tag("span", class_=f"swatch {charts.style_of(number)}"),
            name,
            " ",
            tag("code", cause.fingerprint or "no fingerprint"),
        ),
        wording.percent(cause.count, findings.count),
        f"{cause.count:,}",
        wording.waiting(cause),
        wording.moment(cause.first_ms),
        wording.moment(cause.last_ms),
        tag("span", state, class_=f"chip {'on' if state == 'going on' else 'over'}"),
        "" if version is None else f"version {wording.share_name(version)}",
        {"one": "one key", "few": "few keys", "many": "many keys"}.get(cause.keys.spread, ""),
    ]


def _over_time(findings: Findings) -> Markup | None:
    if not findings.periods:
        return None
    causes = findings.causes[: charts.COLOURS]
    bands = [
        charts.Band(wording.name_of(cause), charts.style_of(number), cause.periods)
        for number, cause in enumerate(causes)
    ]
    rest = {
        begin: count - sum(cause.periods.get(begin, 0) for cause in causes)
        for begin, count in findings.periods.items()
    }
    rest = {begin: count for begin, count in rest.items() if count}
    if rest:
        bands.append(charts.Band("all others", "rest", rest))
    each = wording.length(findings.period_ms)
    rows: list[Sequence[Cell]] = [
        [
            wording.moment(begin),
            f"{count:,}",
            *(f"{band.counts.get(begin, 0):,}" for band in bands),
        ]
        for begin, count in findings.periods.items()
    ]
    numbers = table(
        ("From", "All", *(band.name for band in bands)),
        rows,
        numbers=set(range(1, len(bands) + 2)),
        times={0},
    )
    return _card(
        f"By {each}",
        charts.by_period(bands, findings.period_ms, marks_of(findings), f"Dead letters by {each}"),
        charts.legend([(band.name, band.style) for band in bands]),
        tag("details", tag("summary", "As a table"), numbers, class_="numbers"),
    )


def marks_of(findings: Findings) -> list[charts.Mark]:
    """Return when each version of an application had its first dead letter, but the very first."""
    versions = [each for each in findings.sides["version"] if each.value and each.first_ms]
    by_time = sorted(versions, key=lambda each: each.first_ms or 0)
    first_of = {each.of: each for each in reversed(by_time)}
    return [
        charts.Mark(each.first_ms or 0, str(each.value))
        for each in by_time
        if first_of[each.of] is not each
    ]


def _versions(findings: Findings) -> Markup | None:
    versions = [each for each in findings.sides["version"] if each.value is not None]
    if not versions:
        return None
    begun: dict[tuple[str | None, str | None], list[str]] = {}
    for cause in findings.causes:
        version = findings.began_with(cause)
        if version is not None:
            begun.setdefault((version.value, version.of), []).append(wording.name_of(cause))
    rows: list[Sequence[Cell]] = [
        [
            str(each.value),
            each.of or wording.UNKNOWN,
            f"{each.count:,}",
            wording.moment(each.first_ms),
            wording.moment(each.last_ms),
            ", ".join(begun.get((each.value, each.of), ())) or "none",
        ]
        for each in sorted(versions, key=lambda each: each.first_ms or 0)
    ]
    return _card(
        "Did a deploy begin it?",
        tag(
            "p",
            "A cause began with a version when that version is the first to have it, and an"
            " earlier one of the same group had dead letters of other causes only.",
            class_="soft",
        ),
        table(
            ("Version", "Group", "Count", "First", "Last", "Causes that began with it"),
            rows,
            numbers={2},
            times={3, 4},
            names={5},
        ),
    )


def _key_card(findings: Findings) -> Markup:
    sentence = wording.keys_in_words(findings.keys)
    return _card(
        "Is it one customer?",
        tag("p", sentence[:1].upper() + sentence[1:] + "."),
        keys_table(findings.keys, _MOST_KEYS),
    )


def _sides(findings: Findings) -> Markup:
    name_of: dict[str, Callable[..., str]] = {"partition": wording.partition_name}
    return _card(
        "Where they come from",
        tag(
            "div",
            *(
                shares_table(
                    wording.SIDE_NAMES[side],
                    findings.sides[side],
                    findings.count,
                    name_of.get(side, wording.share_name),
                )
                for side in _SIDES
            ),
            class_="sides",
        ),
    )


def _card(title: str, *inner: Inner) -> Markup:
    return tag("section", tag("h2", title), *inner, class_="card")
