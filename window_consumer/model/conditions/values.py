"""Comparison of values: conversion, equality, and matching of texts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from window_consumer.model.conditions.tokens import number_of

Value = str | int | float | bool | None
"""A bool equals only a bool, or a text ``true`` or ``false``."""


def equal(left: Value, right: Value, *, times: bool = False) -> bool:
    """Return whether two values are equal; null equals only null."""
    if left is None or right is None:
        return left is right
    pair = alike(left, right, times=times)
    return pair is not None and pair[0] == pair[1]


def matches(text: str, pattern: str) -> bool:
    """Return in linear time whether a text matches a pattern in which ``*`` stands for any text."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    *middle, last = rest
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        found = text.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return len(text) - len(last) >= position and text.endswith(last)


def moment_ms(text: str) -> int | None:
    """Return an ISO 8601 time as milliseconds since 1970; None for other texts.

    A time without a zone is in UTC.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def alike(left: Value, right: Value, *, times: bool) -> tuple[str | float, str | float] | None:
    """Make two values comparable; None if one is missing or they cannot be compared.

    A text beside a number is read as a number, beside a time also as a time.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    if isinstance(left, str):
        read = _read_as(right, left, times=times)
        return None if read is None or isinstance(right, str) else (read, right)
    if isinstance(right, str):
        read = _read_as(left, right, times=times)
        return None if read is None else (left, read)
    return (left, right) if isinstance(left, bool) == isinstance(right, bool) else None


def _read_as(other: Value, text: str, *, times: bool) -> float | None:
    if isinstance(other, bool):
        return {"true": True, "false": False}.get(text)
    number = number_of(text)
    return moment_ms(text) if number is None and times else number


ORDERS: Final[dict[str, Callable[[str | float, str | float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "matches": matches,
}
