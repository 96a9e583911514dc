"""Shared by the rules about lag: when slots are busy, and the format of durations."""

from __future__ import annotations

from typing import Final

BUSY: Final = 0.85
"""At this ratio slots are the bottleneck; the rest of the time is hand-over."""

IDLE: Final = 0.5
"""Below this ratio slots mostly wait for work."""


def duration(seconds: float) -> str:
    """Format a duration: below two minutes with three digits."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, rest = divmod(minutes, 60)
    parts = ((hours, "h"), (rest, "min"), (0 if hours else rest_s, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
