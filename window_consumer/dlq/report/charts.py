"""Charts of a report, as SVG without a script. Beside each stands a table with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from window_consumer.dlq.report import wording
from window_consumer.dlq.report.markup import (
    Markup,
    tag,
)

COLOURS = 7
"""Causes with a colour of their own; the others share one."""

_WIDTH, _HEIGHT = 960, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 26, 24
_LINES = 4
_MOST_MARKS = 6
_DAY_MS = 86_400_000
_STEPS = (1, 2, 3, 5, 7, 14, 28, 91, 182, 364)
_LABELS = 9


@frozen
class Band:
    """One of the things that a chart stacks on each other."""

    name: str
    style: str
    """The class of its colour."""
    counts: Mapping[int, int]


@frozen
class Mark:
    """Something that happened at a time."""

    at_ms: int
    name: str


def style_of(number: int) -> str:
    """Return the class for the colour of a cause, from 0 on."""
    return f"c{number}" if number < COLOURS else "rest"


def by_period(bands: Sequence[Band], period_ms: int, marks: Sequence[Mark], title: str) -> Markup:
    """Return bars over time, stacked from the first band up."""
    moments = {begin for band in bands for begin in band.counts}
    first, last = min(moments), max(moments) + period_ms
    scale = _Scale(first, last, _tops(bands))
    bars: list[Markup] = []
    heights = dict.fromkeys(moments, 0)
    for band in bands:
        parts = []
        for begin, count in sorted(band.counts.items()):
            low = heights[begin]
            heights[begin] = low + count
            parts.append(_bar(scale, begin, period_ms, low, count, band.name))
        bars.append(tag("g", *parts, class_=band.style))
    return tag(
        "svg",
        tag("title", title),
        *_grid(scale),
        *bars,
        *_days(scale),
        *_marks(scale, marks),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        class_="chart",
    )


def small(counts: Mapping[int, int], period_ms: int, first: int, last: int, style: str) -> Markup:
    """Return bars over time, without axes, as wide as others of the same time."""
    width, height = 300, 36
    most = max(counts.values(), default=1)
    span = max(1, (last - first) // period_ms + 1)
    each = width / span
    bars = []
    for begin, count in sorted(counts.items()):
        tall = max(1.5, height * count / most)
        left = (begin - first) / period_ms * each
        bars.append(
            tag(
                "rect",
                x=f"{left:.2f}",
                y=f"{height - tall:.2f}",
                width=f"{max(each * 0.86, 0.6):.2f}",
                height=f"{tall:.2f}",
            )
        )
    base = tag("line", x1=0, x2=width, y1=height, y2=height, class_="grid")
    return tag(
        "svg",
        tag("title", f"by {wording.length(period_ms)}"),
        tag("g", *bars, class_=style),
        base,
        viewBox=f"0 0 {width} {height + 1}",
        role="img",
        class_="small",
        preserveAspectRatio="none",
    )


def shares(parts: Sequence[tuple[str, str, int]], title: str) -> Markup:
    """Return one bar of parts: name, class of the colour and count of each."""
    whole = sum(count for _, _, count in parts) or 1
    left, pieces = 0.0, []
    for name, style, count in parts:
        width = _WIDTH * count / whole
        told = f"{name}: {count:,} ({wording.percent(count, whole)})"
        pieces.append(
            tag(
                "g",
                tag("title", told),
                tag(
                    "rect", x=f"{left:.2f}", y=0, width=f"{max(width - 2, 1):.2f}", height=34, rx=3
                ),
                tag("text", wording.percent(count, whole), x=f"{left + 9:.2f}", y=22)
                if width > 60
                else None,
                class_=style,
            )
        )
        left += width
    return tag(
        "svg",
        tag("title", title),
        *pieces,
        viewBox=f"0 0 {_WIDTH} 34",
        role="img",
        class_="shares",
    )


def meter(count: int, whole: int, style: str = "plain") -> Markup:
    """Return a bar for a row of a table; the number stands beside it."""
    width = 100 * count / whole if whole else 0
    return tag(
        "svg",
        tag("rect", width=100, height=8, rx=2, class_="track"),
        tag("g", tag("rect", width=f"{max(width, 0.8):.2f}", height=8, rx=2), class_=style),
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        class_="meter",
        aria_hidden="true",
    )


@frozen
class _Scale:
    first: int
    last: int
    most: int

    def x(self, at_ms: int) -> float:
        share = (at_ms - self.first) / max(1, self.last - self.first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, count: float) -> float:
        return _HEIGHT - _BOTTOM - count / self.most * (_HEIGHT - _TOP - _BOTTOM)


def _tops(bands: Sequence[Band]) -> int:
    sums: dict[int, int] = {}
    for band in bands:
        for begin, count in band.counts.items():
            sums[begin] = sums.get(begin, 0) + count
    return _rounded_up(max(sums.values(), default=1))


def _rounded_up(number: int) -> int:
    """Return the next number that four lines divide well."""
    size = 1
    while True:
        for digit in (4, 8, 12, 20, 40):
            if number <= digit * size:
                return digit * size
        size *= 10


def _bar(scale: _Scale, begin: int, period_ms: int, low: int, count: int, name: str) -> Markup:
    left, right = scale.x(begin), scale.x(begin + period_ms)
    top, bottom = scale.y(low + count), scale.y(low)
    gap = min(1.5, (right - left) * 0.15)
    return tag(
        "rect",
        tag("title", f"{wording.moment(begin)}: {count:,} {name}"),
        x=f"{left + gap / 2:.2f}",
        y=f"{top:.2f}",
        width=f"{right - left - gap:.2f}",
        height=f"{bottom - top:.2f}",
    )


def _grid(scale: _Scale) -> list[Markup]:
    lines = []
    for number in range(_LINES + 1):
        count = scale.most * number // _LINES
        y = f"{scale.y(count):.1f}"
        lines.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        lines.append(tag("text", f"{count:,}", x=_LEFT - 6, y=y, dy="0.32em", text_anchor="end"))
    return lines


def _days(scale: _Scale) -> list[Markup]:
    """Return where days begin; of a short time its hours."""
    span = scale.last - scale.first
    hours = (1, 2, 3, 6, 12)
    steps = [*(each * 3_600_000 for each in hours), *(each * _DAY_MS for each in _STEPS)]
    step = next((each for each in steps if span <= each * _LABELS), steps[-1])
    at = -(-scale.first // step) * step
    found = []
    while at < scale.last:
        moment = wording.moment(at)
        label = moment[5:10] if at % _DAY_MS == 0 else moment[11:]
        x = f"{scale.x(at):.1f}"
        base = _HEIGHT - _BOTTOM
        found.append(tag("line", x1=x, x2=x, y1=base, y2=base + 5, class_="tick"))
        anchor = "start" if scale.x(at) < _LEFT + 20 else "middle"
        found.append(tag("text", label, x=x, y=_HEIGHT - 5, text_anchor=anchor))
        at += step
    return found


def _marks(scale: _Scale, marks: Sequence[Mark]) -> list[Markup]:
    """Return what happened, the last ones where there is no room for all."""
    found = []
    for mark in sorted(marks, key=lambda mark: mark.at_ms)[-_MOST_MARKS:]:
        at = scale.x(max(scale.first, min(mark.at_ms, scale.last)))
        x = f"{at:.1f}"
        is_far = at > _WIDTH * 0.8
        found.append(
            tag(
                "g",
                tag("line", x1=x, x2=x, y1=16, y2=_HEIGHT - _BOTTOM),
                tag(
                    "text",
                    mark.name if len(mark.name) <= 24 else mark.name[:23] + "…",
                    x=f"{at - 4 if is_far else at + 4:.1f}",
                    y=14,
                    text_anchor="end" if is_far else "start",
                ),
                class_="mark",
            )
        )
    return found


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """Return what the colours stand for: name and class of each."""
    return tag(
        "ul",
        *(tag("li", tag("span", class_=f"swatch {style}"), name) for name, style in entries),
        class_="legend",
    )
