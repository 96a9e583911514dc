"""Durations as text, such as ``30m``: how quantities with a unit are parsed.

Parsing is exact. ``config.units`` has the parts that only the configuration needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Final

DURATION_UNITS: Final[Mapping[str, Fraction]] = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
"""Units of time, in seconds."""

Delay = str | float | timedelta
"""A text such as ``30m``, seconds, or a timedelta."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z%]*)")


class UnitError(ValueError):
    """A text is not a duration or a size.

    The message continues a sentence that begins with the text: ``has no unit``. ``hint`` is the
    probable correction, or empty.
    """

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


def parse_duration(text: str) -> float:
    """Return the seconds in a text such as ``200ms``, ``1.5s``, ``1m``, ``2h`` or ``14d``.

    ``0`` needs no unit. Raises UnitError.
    """
    return as_float(parse_quantity(text, DURATION_UNITS, "duration", ("ms", "s")))


def seconds_of(delay: Delay) -> float:
    """Return the seconds of a delay. Raises UnitError."""
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    seconds = parse_duration(delay) if isinstance(delay, str) else float(delay)
    if not 0 <= seconds < float("inf"):
        raise UnitError("is negative" if seconds < 0 else "is not a duration")
    return seconds


def parse_quantity(
    text: str, units: Mapping[str, Fraction], noun: str, usual: tuple[str, str]
) -> Fraction:
    """Return a number with one of these units, of which messages name the usual ones.

    ``0`` needs no unit. Raises UnitError.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        if text.startswith("-"):
            raise UnitError("is negative")
        raise UnitError(f"is not a {noun}")
    digits, unit = found.groups()
    try:
        number = Fraction(digits)
    except ValueError:  # Python refuses to convert thousands of digits
        raise UnitError("is too large") from None
    if unit in units:
        return number * units[unit]
    if unit:
        raise UnitError(f"has the unknown unit {unit!r}", _meant(digits, unit, units))
    if number == 0:
        return number
    raise UnitError("has no unit", f"write {digits}{usual[0]} or {digits}{usual[1]}")


def _meant(digits: str, unit: str, units: Mapping[str, Fraction]) -> str:
    spellings = {"sec": "s", "secs": "s", "min": "m", "hr": "h", "day": "d", "days": "d"}
    spellings |= {"k": "KiB", "m": "MiB", "g": "GiB"} | {name.lower(): name for name in units}
    meant = spellings.get(unit.lower())
    if meant in units:
        return f"write {digits}{meant}"
    return f"units are {', '.join(units)}"


def as_float(exact: Fraction) -> float:
    """Return the nearest float. Raises UnitError for one beyond all floats."""
    try:
        return float(exact)
    except OverflowError:
        raise UnitError("is too large") from None
