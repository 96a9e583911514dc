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

DURATION_UNITS: Final[Mapping[str, Fraction]] = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
"""Units of time, in seconds."""

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

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z%]*)")


class UnitError(ValueError):
    """A text is not a duration or a size.

    The message continues a sentence that begins with the text: ``has no unit``. ``hint`` says what
    was probably meant, or is empty.
    """

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


def parse_duration(text: str) -> float:
    """Return the seconds in a text such as ``200ms``, ``1.5s``, ``1m``, ``2h`` or ``14d``.

    ``0`` needs no unit. Raises UnitError.
    """
    return _as_float(_parse(text, DURATION_UNITS, "duration", ("ms", "s")))


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
    """Write seconds for people: three digits, or from a minute on the two largest units.

    As in ``1.25s``, ``2m30s``, ``14d``. It may be rounded, so it is not for configurations.
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
        raise UnitError("has no two ends")
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
        raise UnitError("has its ends the wrong way round", f"write {turned}")
    return lower, upper


def format_duration_range(ends: tuple[float, float]) -> str:
    """Write a range of seconds as ``parse_duration_range`` reads it."""
    return f"{format_duration(ends[0])}..{format_duration(ends[1])}"


def parse_size(text: str) -> int:
    """Return the bytes in a text such as ``64MiB``, ``1GiB``, ``500KiB``, ``10MB`` or ``1024B``.

    Units with an i are powers of 1024, others of 1000. ``0`` needs no unit. Raises UnitError.
    """
    size = _parse(text, SIZE_UNITS, "size", ("B", "MiB"))
    if size.denominator != 1:
        raise UnitError("is no whole number of bytes")
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
    return _as_float(_parse(text, PERCENT_UNITS, "percentage", ("%", "%")))


def format_percent(share: float) -> str:
    """Write a share (>= 0 and finite) as ``parse_percent`` reads it."""
    text = _shifted(share, 2)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def _parse(text: str, units: Mapping[str, Fraction], noun: str, usual: tuple[str, str]) -> Fraction:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        if text.startswith("-"):
            raise UnitError("is negative")
        raise UnitError(f"is no {noun}")
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


def _as_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        raise UnitError("is too large") from None


def _shifted(value: float, places: int) -> str:
    # Built from the parts, because arithmetic would round to the decimal context's precision.
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    assert isinstance(exponent, int)  # the value is finite
    return format(Decimal((sign, digits, exponent + places)), "f")
