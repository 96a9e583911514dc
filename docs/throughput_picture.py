"""The README's chart: records per second of a handler that takes 10 ms, on four partitions.

``python -m docs.throughput_picture`` draws docs/images/throughput.svg from what ``python -m
benchmarks peers`` has measured (benchmarks/peers/results.json). Pool and framework have as many
calls at once; a consumer alone has one, and consumers of a group have one for each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from benchmarks.peers.command import RESULTS
from benchmarks.peers.comparison import Comparison
from benchmarks.peers.workloads import WORKLOADS
from docs.picture_style import document, text
from window_consumer.model.errors import UsageError

PICTURE = Path(__file__).parent / "images" / "throughput.svg"

WORKLOAD = "wait10-100"
ONE, FOUR, OURS = "confluent-loop", "consumer-per-thread", "window-key"
POOLS = ("poller-and-pool", "shared-offsets", "threads-per-partition")
"""Hand-written pools; the fastest is drawn."""

_WIDTH, _LEFT, _BAR, _LINE = 800, 16, 26, 74
_TITLE = 66
_LONGEST = 610

_STYLE = """
  .name { font-size: 19px; font-weight: 600; } .label { font-size: 18px; }
  .value { font-size: 19px; font-weight: 600; }
  .other { fill: #8c959f; } .ours { fill: #0969da; }
  @media (prefers-color-scheme: dark) { .other { fill: #6e7681; } .ours { fill: #4493f8; } }
"""


@frozen
class Bar:
    """A way to consume, with its rate."""

    name: str
    note: str
    """How many calls run at once, and what order they keep."""
    records_per_s: float
    ours: bool = False


def bars(comparison: Comparison) -> Sequence[Bar]:
    """Return the bars. Raises UsageError if a rate is missing."""
    slots = WORKLOADS[WORKLOAD].slots
    best = max(POOLS, key=lambda pool: rate(comparison, pool))
    return (
        Bar("one consumer", "a confluent-kafka loop: one call at a time", rate(comparison, ONE)),
        Bar("four consumers", "one for each partition: four calls at once", rate(comparison, FOUR)),
        Bar(
            "the best hand-written pool",
            f"{slots} calls at once; no order, kills lose records",
            rate(comparison, best),
        ),
        Bar(
            "window_consumer",
            f"{slots} calls at once; in order by key, kills lose none",
            rate(comparison, OURS),
            ours=True,
        ),
    )


def rate(comparison: Comparison, peer: str) -> float:
    """Return the records per second of a peer. Raises UsageError if it was not measured."""
    row = comparison.row(peer, WORKLOAD)
    if row is None or row.records_per_s is None:
        raise UsageError(
            f"no rate of {peer}: measure it with `python -m benchmarks peers --only {peer}"
            f" --workloads {WORKLOAD} --add`"
        )
    return row.records_per_s


def draw(comparison: Comparison) -> str:
    """Return the chart. Bars are linear, from 0."""
    drawn = bars(comparison)
    fastest = max(bar.records_per_s for bar in drawn)
    elements = [
        text(_LEFT, 34, "Records per second: a handler that takes 10 ms, 4 partitions", "title")
    ]
    for number, bar in enumerate(drawn):
        y = _TITLE + number * _LINE
        wide = max(2.0, _LONGEST * bar.records_per_s / fastest)
        kind = "ours" if bar.ours else "other"
        label = f'<tspan class="label" dx="10">{bar.note}</tspan>'
        place = f'x="{_LEFT}" y="{y + 20}" width="{wide:.1f}" height="{_BAR}"'
        elements += [
            f'<text x="{_LEFT}" y="{y + 10}"><tspan class="name">{bar.name}</tspan>{label}</text>',
            f'<rect class="{kind}" {place} rx="3"/>',
            text(_LEFT + wide + 10, y + 39, f"{bar.records_per_s:,.0f}", "value"),
        ]
    return document(
        (_WIDTH, _TITLE + len(drawn) * _LINE), "Records per second, four ways", _STYLE, elements
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(Comparison.load(RESULTS)), "utf-8")
