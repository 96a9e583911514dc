"""Charts of a report: coordinates of lines and bars, which ``charts.html.j2`` draws as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from window_consumer.dlq.report import formatting

COLOURS: Final = 7
"""How many causes have a colour of their own; the others share one."""

WIDTH, HEIGHT = 960, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 26, 24
SMALL_WIDTH, SMALL_HEIGHT = 300, 36
_LINES = 4
_MOST_MARKS = 6
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000
_STEPS_MS = (
    *(hours * _HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY_MS for days in (1, 2, 3, 5, 7, 14, 28, 91, 182, 364)),
)
_LABELS = 9


@frozen
class Band:
    """One layer of a stacked chart."""

    name: str
    style: str
    """The CSS class of its colour."""
    counts: Mapping[int, int]


@frozen
class Mark:
    """An event at a point in time."""

    at_ms: int
    name: str


@frozen
class Bar:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    title: str = ""


def style_of(number: int) -> str:
    """Return the CSS class of a cause's colour, counted from 0."""
    return f"c{number}" if number < COLOURS else "rest"


class PeriodChart:
    """Bars over time, stacked from the first band upwards."""

    def __init__(self, bands: Sequence[Band], period_ms: int, marks: Sequence[Mark]):
        self.bands = bands
        self._period_ms = period_ms
        self._marks = marks
        moments = {begin for band in bands for begin in band.counts}
        self._first, self._last = min(moments), max(moments) + period_ms
        heights = [sum(band.counts.get(begin, 0) for band in bands) for begin in moments]
        self._most = _rounded_up(max(heights))

    def stacks(self) -> Iterator[tuple[str, list[Bar]]]:
        """Yield the CSS class and the bars of each band."""
        heights: dict[int, int] = {}
        for band in self.bands:
            bars = []
            for begin, count in sorted(band.counts.items()):
                low = heights.get(begin, 0)
                heights[begin] = low + count
                title = f"{formatting.moment(begin)}: {count:,} {band.name}"
                bars.append(self._bar(begin, low, low + count, title))
            yield band.style, bars

    def _bar(self, begin: int, low: int, high: int, title: str) -> Bar:
        left, right = self._x(begin), self._x(begin + self._period_ms)
        top, bottom = self._y(high), self._y(low)
        gap = min(1.5, (right - left) * 0.15)
        return Bar(left + gap / 2, top, right - left - gap, bottom - top, title)

    def grid(self) -> Iterator[tuple[float, int]]:
        """Yield the height of each grid line and the count that it marks."""
        for number in range(_LINES + 1):
            count = self._most * number // _LINES
            yield self._y(count), count

    def ticks(self) -> Iterator[tuple[float, str, str]]:
        """Yield the start, label and label anchor of each day, or of hours within one day."""
        span = self._last - self._first
        step = next((each for each in _STEPS_MS if span <= each * _LABELS), _STEPS_MS[-1])
        for at in range(-(-self._first // step) * step, self._last, step):
            moment = formatting.moment(at)
            x = self._x(at)
            label = moment[5:10] if at % _DAY_MS == 0 else moment[11:]
            yield x, label, "start" if x < LEFT + 20 else "middle"

    def marks(self) -> Iterator[tuple[float, str, bool]]:
        """Yield each mark's position, its name, and whether it is far to the right.

        If there is no room for all, yield the latest.
        """
        for mark in sorted(self._marks, key=lambda mark: mark.at_ms)[-_MOST_MARKS:]:
            x = self._x(max(self._first, min(mark.at_ms, self._last)))
            name = mark.name if len(mark.name) <= 24 else mark.name[:23] + "…"
            yield x, name, x > WIDTH * 0.8

    def _x(self, at_ms: int) -> float:
        share = (at_ms - self._first) / max(1, self._last - self._first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, count: float) -> float:
        return HEIGHT - BOTTOM - count / self._most * (HEIGHT - TOP - BOTTOM)


def _rounded_up(number: int) -> int:
    """Return the next number that divides well into four lines."""
    size = 1
    while True:
        for digit in (4, 8, 12, 20, 40):
            if number <= digit * size:
                return digit * size
        size *= 10


def small_bars(counts: Mapping[int, int], period_ms: int, first: int, last: int) -> Iterator[Bar]:
    """Yield bars over time on a common time axis."""
    most = max(counts.values())
    each = SMALL_WIDTH / max(1, (last - first) // period_ms + 1)
    for begin, count in sorted(counts.items()):
        tall = max(1.5, SMALL_HEIGHT * count / most)
        left = (begin - first) / period_ms * each
        yield Bar(left, SMALL_HEIGHT - tall, max(each * 0.86, 0.6), tall)


def parts_of_bar(
    parts: Sequence[tuple[str, str, int]],
) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield title, class, share, position and width of each part (name, class and count)."""
    whole = sum(count for _, _, count in parts) or 1
    left = 0.0
    for name, style, count in parts:
        width = WIDTH * count / whole
        share = formatting.percent(count, whole)
        yield f"{name}: {count:,} ({share})", style, share, left, width
        left += width
