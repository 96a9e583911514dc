"""Header values as text and numbers: unreadable values become None, nothing raises."""

from __future__ import annotations

_MAX_DIGITS = 19
"""The number of digits of the largest int64."""


def text(value: bytes | None) -> str | None:
    """Return a value as text, replacing bytes outside UTF-8; None if it is missing or empty."""
    return value.decode("utf-8", "replace") if value else None


def count(value: bytes | None) -> int | None:
    """Return a non-negative decimal number."""
    if value is None or not value.isdigit() or len(value) > _MAX_DIGITS:
        return None
    return int(value)


def count_of_4_bytes(value: bytes | None) -> int | None:
    """Return a non-negative big-endian int32, as Java writes it."""
    return _big_endian(value, 4)


def count_of_1_or_4_bytes(value: bytes | None) -> int | None:
    """Return a non-negative number written as one byte or as a big-endian int32."""
    return value[0] if value is not None and len(value) == 1 else count_of_4_bytes(value)


def count_of_8_bytes(value: bytes | None) -> int | None:
    """Return a non-negative big-endian int64."""
    return _big_endian(value, 8)


def count_of_any_form(value: bytes | None) -> int | None:
    """Return a non-negative number in decimal, or as a big-endian int32 or int64."""
    decimal = count(value)
    if decimal is not None:
        return decimal
    return count_of_4_bytes(value) if len(value or b"") == 4 else count_of_8_bytes(value)


def _big_endian(value: bytes | None, size: int) -> int | None:
    if value is None or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None
