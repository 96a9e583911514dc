"""The drawings of the pages on concepts: ``python -m docs.concept_pictures`` writes docs/images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from docs.picture_style import document, text

IMAGES = Path(__file__).parent / "images"

_WIDTH: Final = 760
_BOX, _STEP = 44, 52

_STYLE = """
  text { font-size: 15px; }
  .number { text-anchor: middle; }
  .middle { text-anchor: middle; }
  .box { stroke: #57606a; stroke-width: 1.5; }
  .done { fill: #aceebb; } .running { fill: #b6e3ff; } .waiting { fill: #f6f8fa; }
  .failed { fill: #ffcecb; } .line { stroke: #57606a; stroke-width: 2; fill: none; }
  .mark { stroke: #cf222e; stroke-width: 3; }
  @media (prefers-color-scheme: dark) {
    .box { stroke: #9198a1; } .line { stroke: #9198a1; }
    .done { fill: #1f6f37; } .running { fill: #0c4f8f; } .waiting { fill: #21262d; }
    .failed { fill: #8e2a2a; }
  }
"""


def window() -> str:
    """Draw a partition: committed records, the window with its cells, and later records."""
    kinds = ["done"] * 2 + ["done", "running", "done", "done", "running", "done", "waiting"]
    elements = [
        text(20, 32, "One partition: offsets 40 to 48", "title"),
        *_boxes(20, 90, range(40, 49), kinds),
        *_brace(20, 80, 2, "committed"),
        *_brace(20 + 2 * _STEP, 80, 7, "window: three cells"),
        *_cell(20 + 2 * _STEP, 2),
        *_cell(20 + 4 * _STEP, 3),
        *_cell(20 + 7 * _STEP, 2),
        text(
            20,
            196,
            "42 to 43 is the start cell. 43 still runs, so the commit stays at 42,",
            "label",
        ),
        text(
            20,
            218,
            "whatever is finished behind it. Once 43 is done, the window slides to 44.",
            "label",
        ),
        *_legend(252),
    ]
    return document((_WIDTH, 280), "A window with three cells", _STYLE, elements)


def lanes() -> str:
    """Draw three keys: each is a lane, in which one record runs at a time."""
    rows = [
        ("customer-1", (40, 43, 47), ("done", "running", "waiting")),
        ("customer-2", (41, 42, 46), ("done", "done", "running")),
        ("customer-3", (44, 45, 48), ("running", "waiting", "waiting")),
    ]
    elements = [text(20, 32, "ordering: key", "title")]
    for number, (key, offsets, kinds) in enumerate(rows):
        y = 60 + number * 60
        elements += [
            text(20, y + 28, key, "name"),
            *_arrow(130, y + 22, 130 + 4 * _STEP),
            *_boxes(150, y, offsets, kinds),
        ]
    elements += [
        text(400, 90, "Each key is a lane.", "label"),
        text(400, 114, "One record of a lane runs at a time,", "label"),
        text(400, 138, "in the order of offsets.", "label"),
        text(400, 174, "Lanes run beside each other,", "label"),
        text(400, 198, "up to the worker's concurrency.", "label"),
        *_legend(254),
    ]
    return document((_WIDTH, 280), "Three keys, three lanes", _STYLE, elements)


def ladder() -> str:
    """Draw the path of a record that keeps failing."""
    steps = [
        ("orders", "3 calls", "running"),
        ("retry.10s", "1 call", "waiting"),
        ("retry.1m", "1 call", "waiting"),
        ("retry.10m", "1 call", "waiting"),
        ("dlq", "kept", "failed"),
    ]
    elements = [text(20, 32, "retry: {attempts: 3, levels: [10s, 1m, 10m]}", "title")]
    for number, (name, calls, kind) in enumerate(steps):
        x = 20 + number * 148
        elements += [
            f'<rect class="box {kind}" x="{x}" y="64" width="112" height="62" rx="6"/>',
            text(x + 56, 90, name, "middle"),
            text(x + 56, 114, calls, "middle"),
        ]
        if number:
            elements += _arrow(x - 36, 95, x - 4)
    waits = ["", "10 s", "1 min", "10 min", "spent"]
    elements += [
        text(20 + at * 148 - 18, 150, said, "middle label") for at, said in enumerate(waits) if said
    ]
    elements.append(
        text(
            20,
            188,
            "Each arrow is a copy, acknowledged before the record counts as finished.",
            "label",
        )
    )
    return document((_WIDTH, 210), "The ladder of retries", _STYLE, elements)


def commit() -> str:
    """Draw the content of a commit, and what the next owner does with it."""
    kinds = ["done", "done", "running", "done", "done", "running", "waiting", "done"]
    after = ["done", "done", "waiting", "done", "done", "waiting", "waiting", "done"]
    elements = [
        text(20, 32, "What is known at the moment of kill -9", "title"),
        *_boxes(20, 56, range(40, 48), kinds),
        f'<path class="mark" d="M {20 + 2 * _STEP - 4} 46 V 112"/>',
        text(450, 74, "commit: next offset 42,", "name"),
        text(450, 98, "done ranges 43-44 and 47", "name"),
        text(20, 152, "What the next owner does", "title"),
        *_boxes(20, 172, range(40, 48), after),
        text(450, 190, "reads from 42 and calls 42, 45, 46;", "name"),
        text(450, 214, "43, 44 and 47 do not run again", "name"),
        *_legend(254),
    ]
    return document((_WIDTH, 280), "A commit with done ranges", _STYLE, elements)


def rebalance() -> str:
    """Draw the steps in which a partition moves."""
    old = [("starts nothing new", 20), ("running calls end", 190), ("last commit", 360)]
    new = [("reads the commit", 400), ("calls the rest", 570)]
    elements = [text(20, 32, "A partition moves from one member to another", "title")]
    for y, name, steps in ((60, "old owner", old), (150, "new owner", new)):
        elements.append(text(20, y + 12, name, "label"))
        for said, x in steps:
            kind = "running" if y == 60 else "done"
            elements += [
                f'<rect class="box {kind}" x="{x}" y="{y + 22}" width="160" height="40" rx="6"/>',
                text(x + 80, y + 47, said, "middle"),
            ]
    elements += [
        '<path class="line" d="M 440 122 V 166 l -5 -8 m 5 8 l 5 -8"/>',
        text(452, 146, "given up", "label"),
        text(
            20, 244, "at most revoke_timeout (10 s); a call that outlives it may run twice", "label"
        ),
    ]
    return document((_WIDTH, 264), "How a partition moves", _STYLE, elements)


def guarantee() -> str:
    """Draw what a crash repeats, with and without a transaction."""
    rows = [
        (
            "at_least_once",
            ("call", "effect", "CRASH", "call", "effect"),
            "effect twice: make it idempotent",
        ),
        ("once=", ("call", "CRASH", "call", "effect + id"), "one transaction: effect once"),
        ("at_most_once", ("commit", "call", "CRASH"), "no second call: effect once or never"),
    ]
    elements = [text(20, 32, "A crash at the worst moment", "title")]
    for number, (name, steps, said) in enumerate(rows):
        y = 56 + number * 84
        elements.append(text(20, y + 14, f"{name}: {said}", "name"))
        for at, step in enumerate(steps):
            kind = {"CRASH": "failed", "call": "running"}.get(step, "done")
            x = 20 + at * 112
            elements += [
                f'<rect class="box {kind}" x="{x}" y="{y + 24}" width="100" height="36" rx="6"/>',
                text(x + 50, y + 47, step.lower(), "middle"),
            ]
    return document((_WIDTH, 310), "What a crash repeats", _STYLE, elements)


def _boxes(x: int, y: int, numbers: Sequence[int], kinds: Sequence[str]) -> Iterator[str]:
    for at, (number, kind) in enumerate(zip(numbers, kinds, strict=True)):
        left = x + at * _STEP
        yield f'<rect class="box {kind}" x="{left}" y="{y}" width="{_BOX}" height="{_BOX}" rx="5"/>'
        yield text(left + _BOX / 2, y + 28, str(number), "number")


def _brace(x: int, y: int, boxes: int, said: str) -> Iterator[str]:
    right = x + boxes * _STEP - (_STEP - _BOX)
    yield f'<path class="line" d="M {x} {y} v -8 H {right} v 8"/>'
    yield text((x + right) / 2, y - 16, said, "middle label")


def _cell(x: int, boxes: int) -> Iterator[str]:
    wide = boxes * _STEP - (_STEP - _BOX) + 4
    yield f'<path class="line" d="M {x - 2} 144 v 8 h {wide} v -8"/>'


def _arrow(x: int, y: int, to: int) -> Iterator[str]:
    yield f'<path class="line" d="M {x} {y} H {to} l -8 -5 m 8 5 l -8 5"/>'


def _legend(y: int) -> Iterator[str]:
    for at, kind in enumerate(("done", "running", "waiting")):
        x = 20 + at * 120
        yield f'<rect class="box {kind}" x="{x}" y="{y - 13}" width="16" height="16" rx="3"/>'
        yield text(x + 24, y, kind, "label")


PICTURES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "concept-window.svg": window,
        "concept-lanes.svg": lanes,
        "concept-ladder.svg": ladder,
        "concept-commit.svg": commit,
        "concept-rebalance.svg": rebalance,
        "concept-guarantees.svg": guarantee,
    }
)


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), "utf-8")
