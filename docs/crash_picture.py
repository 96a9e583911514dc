"""The README's animation: a recorded run as SVG, which a reader's browser plays in a loop.

``python -m docs.crash_picture`` draws docs/recordings/crash.json as docs/images/crash.svg. The
picture has no script: each record's box has keyframes of its own. Where motion is not wanted it
shows the moment before the kill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from attrs import frozen

from docs.crash_recording import HANGING, PARTITIONS, RECORDING, TOPIC, Crash
from docs.picture_style import document, text

PICTURE = Path(__file__).parent / "images" / "crash.svg"

SECONDS = 10.0
"""How long a round takes."""

_LEAD_S = 0.5
_DOWN_S = 1.3
"""How long the picture shows that no process runs. In reality the group waits about 6 s."""

_SEEN_TO_HANG_S = 1.2
_STILL_S = 0.1
"""A still picture shows the moment this long before the kill."""

_WIDTH, _HEIGHT = 800, 330
_LEFT, _TOP = 118, 84
_BOX, _STEP, _ROW = 22, 28, 38

_STYLE = """
  :root { --waiting: #d8dee4; --running: #54aeff; --hanging: #bf5b00; --done: #2da44e;
    --cut: #cf222e; }
  .now { fill: #57606a; } .time { stroke: #d0d7de; stroke-width: 4; stroke-linecap: round; }
  .down { stroke: #cf222e; stroke-width: 4; }
  .sign { fill: #ffffff; font-size: 15px; font-weight: 700; text-anchor: middle; }
  .caption { font-size: 23px; font-weight: 600; } .kill { fill: #cf222e; }
  .label { font-size: 18px; } .legend { font-size: 19px; }
  @media (prefers-color-scheme: dark) {
    :root { --waiting: #30363d; --running: #388bfd; --hanging: #db6d28; --done: #238636;
      --cut: #da3633; }
    .now { fill: #9198a1; } .time { stroke: #3d444d; }
    .down { stroke: #f85149; } .kill { fill: #f85149; }
  }
  @media (prefers-reduced-motion: reduce) { * { animation: none !important; } }
"""


@frozen
class _Step:
    """From a moment of the picture on, a property has this value."""

    at_s: float
    value: str


class _Drawing:
    """A picture as it grows: its elements, and the keyframes that they use."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self._frames: dict[str, str] = {}

    def animation(self, css: str, steps: Sequence[_Step]) -> str:
        """Return the style attribute of an element with a property that changes in steps."""
        frames = " ".join(
            f"{min(step.at_s / SECONDS, 1):.2%} {{ {css}: {step.value} }}" for step in steps
        )
        body = f"{frames} 100% {{ {css}: {steps[-1].value} }}"
        name = self._frames.setdefault(body, f"a{len(self._frames)}")
        return f' style="animation: {name} {SECONDS:g}s step-end infinite"'

    @property
    def keyframes(self) -> str:
        """All keyframes, each once: records of one round of calls share theirs."""
        return "\n".join(f"  @keyframes {name} {{ {body} }}" for body, name in self._frames.items())


@frozen
class _Times:
    """When an event is shown."""

    killed_s: float
    restarted_s: float
    """When the first call of the second process began, in the recording."""

    @classmethod
    def of(cls, crash: Crash) -> _Times:
        return cls(crash.killed_s, crash.of_process(2)[0].began_s)

    def shown_s(self, recorded_s: float) -> float:
        """Return the moment of the picture; the time without a process is shortened."""
        if recorded_s <= self.killed_s:
            return _LEAD_S + recorded_s
        return _LEAD_S + self.killed_s + _DOWN_S + recorded_s - self.restarted_s


def draw(crash: Crash) -> str:
    """Return the animated picture of a run."""
    times = _Times.of(crash)
    drawing = _Drawing()
    drawing.elements += _time_line(times)
    for partition in range(PARTITIONS):
        y = _TOP + partition * _ROW
        drawing.elements.append(text(16, y + 17, f"{TOPIC}[{partition}]", "label"))
        for offset in range(crash.records):
            _draw_record(drawing, crash, times, (partition, offset))
    _draw_captions(drawing, crash, times)
    drawing.elements += _legend()
    return document(
        (_WIDTH, _HEIGHT),
        "One call hangs, the others go on; after kill -9 only unfinished records run again",
        f"{_STYLE}{drawing.keyframes}\n",
        drawing.elements,
    )


def _time_line(times: _Times) -> Iterator[str]:
    """Yield a line of ten seconds with a mark for the kill, and a dot that moves along it."""
    left, right, y = 16, _WIDTH - 16, 34
    wide = right - left
    killed, restarted = (
        left + wide * times.shown_s(at) / SECONDS
        for at in (times.killed_s, times.restarted_s + 1e-6)
    )
    yield f'<line class="time" x1="{left}" y1="{y}" x2="{killed:.0f}" y2="{y}"/>'
    yield f'<line class="down" x1="{killed:.0f}" y1="{y - 9}" x2="{killed:.0f}" y2="{y + 9}"/>'
    yield f'<line class="time" x1="{restarted:.0f}" y1="{y}" x2="{right}" y2="{y}"/>'
    yield text(left, y - 13, "first process", "label")
    yield text(killed + 8, y + 6, "kill -9", "label kill")
    yield text(restarted, y - 13, "second process", "label")
    still = times.shown_s(times.killed_s - _STILL_S)
    yield (
        f'<circle class="now" cx="{left + wide * still / SECONDS:.0f}" cy="{y}" r="8">'
        f'<animate attributeName="cx" from="{left}" to="{right}" dur="{SECONDS:g}s"'
        ' repeatCount="indefinite"/></circle>'
    )


def _draw_record(drawing: _Drawing, crash: Crash, times: _Times, place: tuple[int, int]) -> None:
    """Draw a record's box, and the signs that it gets."""
    partition, offset = place
    x, y = _LEFT + offset * _STEP, _TOP + partition * _ROW
    steps = _states(crash, times, place)
    still_s = times.shown_s(times.killed_s - _STILL_S)
    still = [step.value for step in steps if step.at_s <= still_s][-1]
    drawing.elements.append(
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_BOX}" rx="4" fill="{still}"'
        f"{drawing.animation('fill', steps)}/>"
    )
    if place == HANGING:
        hangs = next(step.at_s for step in steps if step.value == "var(--hanging)")
        shown = [_Step(0, "0"), _Step(hangs, "1"), _Step(times.shown_s(times.killed_s), "0")]
        drawing.elements.append(_sign(x, y, "!", 1, drawing.animation("opacity", shown)))
    if place in crash.repeated:
        again = next(call for call in crash.of_process(2) if call.place == place)
        shown = [_Step(0, "0"), _Step(times.shown_s(again.began_s), "1")]
        drawing.elements.append(_sign(x, y, "2", 0, drawing.animation("opacity", shown)))


def _states(crash: Crash, times: _Times, place: tuple[int, int]) -> list[_Step]:
    """Return the colours of a record's box over time."""
    steps = [_Step(0, "var(--waiting)")]
    for call in sorted(crash.calls, key=lambda call: call.began_s):
        if call.place != place:
            continue
        began = times.shown_s(call.began_s)
        steps.append(_Step(began, "var(--running)"))
        if call.ended_s is not None:
            steps.append(_Step(times.shown_s(call.ended_s), "var(--done)"))
            continue
        if place == HANGING:
            steps.append(_Step(began + _SEEN_TO_HANG_S, "var(--hanging)"))
        steps.append(_Step(times.shown_s(crash.killed_s), "var(--cut)"))
    return steps


def _sign(x: float, y: float, sign: str, still: int, animation: str) -> str:
    return (
        f'<text class="sign" x="{x + _BOX / 2:g}" y="{y + 16}" opacity="{still}"{animation}>'
        f"{escape(sign)}</text>"
    )


def _draw_captions(drawing: _Drawing, crash: Crash, times: _Times) -> None:
    """Draw the captions below the boxes, one sentence at a time."""
    total = crash.records * PARTITIONS
    finished, twice = len(crash.finished), len(crash.repeated)
    hangs = times.shown_s(
        next(call.began_s for call in crash.of_process(1) if call.place == HANGING)
    )
    killed, restarted = times.shown_s(crash.killed_s), times.shown_s(times.restarted_s + 1e-6)
    ended = times.shown_s(max(call.ended_s or 0.0 for call in crash.of_process(2)))
    said = [
        (0.0, f"{total} orders in 4 partitions, {crash.slots} calls at once."),
        (hangs + _SEEN_TO_HANG_S, "One call hangs. The others go on, also behind it."),
        (killed, f"kill -9, while {len(crash.interrupted)} calls run."),
        (restarted, f"Started again: only {twice} orders run a second time."),
        (ended, f"{finished} of {total} finished. {total - twice} ran once, {twice} ran twice."),
    ]
    ends = [at for at, _ in said[1:]] + [SECONDS]
    for number, ((at, sentence), end) in enumerate(zip(said, ends, strict=True)):
        shown = [_Step(0, "0"), _Step(at, "1")] if at else [_Step(0, "1")]
        shown += [_Step(end, "0")] if end < SECONDS else []
        y = _TOP + PARTITIONS * _ROW + 34
        drawing.elements.append(
            f'<text class="caption{" kill" if number == 2 else ""}" x="16" y="{y}"'
            f' opacity="{int(number == 1)}"{drawing.animation("opacity", shown)}>'
            f"{escape(sentence)}</text>"
        )


_LEGEND = (
    ("waiting", "", "waits", 112),
    ("running", "", "runs", 106),
    ("hanging", "!", "hangs", 118),
    ("done", "", "finished", 138),
    ("cut", "", "cut off", 126),
    ("done", "2", "ran twice", 0),
)


def _legend() -> Iterator[str]:
    x, y = 16.0, float(_HEIGHT - 36)
    for colour, sign, meaning, wide in _LEGEND:
        yield f'<rect x="{x:g}" y="{y:g}" width="18" height="18" rx="4" fill="var(--{colour})"/>'
        if sign:
            yield f'<text class="sign" x="{x + 9:g}" y="{y + 14:g}">{sign}</text>'
        yield text(x + 25, y + 14, meaning, "legend")
        x += wide


if __name__ == "__main__":
    PICTURE.write_text(draw(Crash.load(RECORDING)), "utf-8")
