"""The comparison as a picture: a panel of bars for each workload, as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from benchmarks.peers.comparison import Comparison, Row
from benchmarks.peers.roster import PEERS
from benchmarks.peers.table import in_order, what
from benchmarks.peers.workloads import WORKLOADS

_COLUMNS = 2
_PANEL = 560
"""The width of a panel, in pixels; its height follows from its rows."""
_NAMES = 210
_BAR = 11
_LINE = 16
_GROUP = 20
_TITLE = 58
_GAP = 26
_LINES = 2
_CHARACTERS = 88
"""The most characters in a line of a workload's description below its name."""
_VALUES = 150
"""The room for figures to the right of the longest bar."""

# A picture embedded as an image cannot see the page's theme, only the preference of the reader's
# system.
_STYLE = """
  text { font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-size: 13px; font-weight: 600; }
  .what, .group, .value { fill: #57606a; }
  .group { font-weight: 600; }
  .page { fill: #ffffff; }
  .ours { fill: #0969da; } .other { fill: #8c959f; }
  .unfinished { fill-opacity: 0.45; }
  text.own { font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .what, .group, .value { fill: #9da7b3; }
    .page { fill: #0d1117; }
    .ours { fill: #4c9aff; } .other { fill: #6e7681; }
  }
"""


def draw(comparison: Comparison) -> str:
    """Return the picture. Bars are linear from 0, scaled to the fastest peer of each panel."""
    panels = [in_order(comparison, name) for name in comparison.workloads]
    placed: list[str] = []
    top = _GAP
    for first in range(0, len(panels), _COLUMNS):
        line = panels[first : first + _COLUMNS]
        for column, rows in enumerate(line):
            placed.extend(_panel(rows, _GAP + column * (_PANEL + _GAP), top))
        top += max(map(_height, line)) + _GAP
    width = _GAP + min(_COLUMNS, max(1, len(panels))) * (_PANEL + _GAP)
    size = f'viewBox="0 0 {width} {top}" width="{width}" height="{top}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>Records per second of every peer in every workload</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{width}" height="{top}"/>',
            *placed,
            "</svg>\n",
        ]
    )


def _height(rows: Sequence[Row]) -> int:
    groups = {PEERS[row.peer].order for row in rows}
    return _TITLE + len(groups) * _GROUP + len(rows) * _LINE


def _panel(rows: Sequence[Row], left: int, top: int) -> Iterator[str]:
    """Yield a workload's title, and its bars grouped by the order that peers keep."""
    workload = WORKLOADS[rows[0].workload]
    yield _text(left, top + 12, f"{workload.name}, records/s", "title")
    for number, line in enumerate(textwrap.wrap(what(rows), _CHARACTERS)[:_LINES]):
        yield _text(left, top + 28 + number * _LINE, line, "what")
    fastest = max((row.records_per_s or 0.0 for row in rows), default=0.0) or 1.0
    longest = _PANEL - _NAMES - _VALUES
    y, order = top + _TITLE, ""
    for row in rows:
        peer = PEERS[row.peer]
        if peer.order != order:
            order = peer.order
            yield _text(left, y + 13, _ORDER_SAID[order], "group")
            y += _GROUP
        yield _text(left, y + _BAR - 1, peer.name, "own" if peer.ours else "")
        rate = row.records_per_s or 0.0
        kind = f"{'ours' if peer.ours else 'other'}{'' if row.complete else ' unfinished'}"
        wide = max(1.0, longest * rate / fastest)
        yield (
            f'<rect class="{kind}" x="{left + _NAMES}" y="{y}" width="{wide:.1f}"'
            f' height="{_BAR}" rx="2"/>'
        )
        yield _text(left + _NAMES + wide + 6, y + _BAR - 1, _said(row), "value")
        y += _LINE


_ORDER_SAID = {
    "unordered": "keeps no order",
    "key": "in order by key",
    "partition": "in order by partition",
}


def _said(row: Row) -> str:
    if row.records_per_s is None:
        return "failed" if row.failed else "none finished"
    lost = row.most("lost")
    more = "" if row.complete else ", not finished"
    return f"{row.records_per_s:,.0f}{more}{f', {lost:,} lost' if lost else ''}"


def _text(x: float, y: float, said: str, kind: str) -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{style}>{escape(said)}</text>'
