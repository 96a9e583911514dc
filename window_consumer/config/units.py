"""Durations, sizes and ranges of durations, as the configuration writes them.

Parsing and formatting are exact: formatted values parse to the same value. ``kinds`` checks the
limits of a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from window_consumer.model.durations import (
    DURATION_UNITS,
    UnitError,
    as_float,
    parse_duration,
    parse_quantity,
)

__all__ = [
    "DURATION_UNITS",
    "PERCENT_UNITS",
    "SIZE_UNITS",
    "UnitError",
    "brief_duration",
    "format_duration",
    "format_duration_range",
    "format_percent",
    "format_size",
    "parse_duration",
    "parse_duration_range",
    "parse_percent",
    "parse_size",
]

SIZE_UNITS: Final[Mapping[str, Fraction]] = {
    "B": Fraction(1),
    "KB": Fraction(1000),
    "KiB": Fraction(1024),
    "MB": Fraction(1000**2),
    "MiB": Fraction(1024**2),
    "GB": Fraction(1000**3),
    "GiB": Fraction(1024**3),
    "TB": Fraction(1000**4),
    "TiB": Fraction(1024**4),
}
"""Units of size, in bytes."""

PERCENT_UNITS: Final[Mapping[str, Fraction]] = {"%": Fraction(1, 100)}
"""The only unit of shares."""


def format_duration(seconds: float) -> str:
    """Write seconds (>= 0 and finite) in the largest unit that gives a whole number.

    If there is none, write seconds (milliseconds below one second) with decimals.
    """
    exact = Fraction(Decimal(repr(float(seconds))))
    if not exact:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        count = exact / DURATION_UNITS[unit]
        if count.denominator == 1:
            return f"{count.numerator}{unit}"
    unit = "s" if exact > 1 else "ms"
    shift = 0 if exact > 1 else 3
    return f"{_shifted(seconds, shift)}{unit}"


_BRIEF_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def brief_duration(seconds: float) -> str:
    """Write seconds for people: three digits; from one minute, the two largest units.

    Examples: ``1.25s``, ``2m30s``, ``14d``. Rounded, so not for configurations.
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _BRIEF_UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2])


def parse_duration_range(text: str) -> tuple[float, float]:
    """Return the two ends, in seconds, of a range such as ``200ms..5s``. Raises UnitError."""
    lower_text, dots, upper_text = text.partition("..")
    if not dots:
        raise UnitError("does not have two ends")
    ends = []
    for end in (lower_text.strip(), upper_text.strip()):
        try:
            ends.append(parse_duration(end))
        except UnitError as error:
            raise UnitError(f"has an end, {end!r}, that {error}", error.hint) from None
    lower, upper = ends
    if lower == 0:
        raise UnitError("begins at 0", "write at least 1ms at its lower end")
    if lower > upper:
        turned = f"{upper_text.strip()}..{lower_text.strip()}"
        raise UnitError("has its ends in the wrong order", f"write {turned}")
    return lower, upper


def format_duration_range(ends: tuple[float, float]) -> str:
    """Write a range of seconds as ``parse_duration_range`` reads it."""
    return f"{format_duration(ends[0])}..{format_duration(ends[1])}"


def parse_size(text: str) -> int:
    """Return the bytes in a text such as ``64MiB``, ``1GiB``, ``500KiB``, ``10MB`` or ``1024B``.

    Units with an i are powers of 1024, others of 1000. ``0`` needs no unit. Raises UnitError.
    """
    size = parse_quantity(text, SIZE_UNITS, "size", ("B", "MiB"))
    if size.denominator != 1:
        raise UnitError("is not a whole number of bytes")
    return size.numerator


def format_size(size: int) -> str:
    """Write bytes (>= 0) in the largest unit that gives a whole number."""
    for unit, factor in reversed(list(SIZE_UNITS.items())):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def parse_percent(text: str) -> float:
    """Return the share in a text such as ``50%`` or ``12.5%``, 1.0 for all. Raises UnitError."""
    if re.fullmatch(r"[0-9]{1,9}([.][0-9]{1,9})?", text) and float(text):
        share = float(text) if float(text) <= 1 else float(text) / 100
        raise UnitError("has no unit", f"write {format_percent(share)}")
    return as_float(parse_quantity(text, PERCENT_UNITS, "percentage", ("%", "%")))


def format_percent(share: float) -> str:
    """Write a share (>= 0 and finite) as ``parse_percent`` reads it."""
    text = _shifted(share, 2)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def _shifted(value: float, places: int) -> str:
    # Built from the parts, because arithmetic would round to the decimal context's precision.
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    assert isinstance(exponent, int)  # the value is finite
    return format(Decimal((sign, digits, exponent + places)), "f")
