"""The kinds of values that keys take: how to read, write and check them.

A ValueKind is the only source for messages about wrong values, the reference page and the JSON
Schema. Rules between keys are in ``checks``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from attrs import evolve, field, frozen

from window_consumer.config import names, units
from window_consumer.config.interpolation import Untyped
from window_consumer.config.problems import InvalidError, Problem, did_you_mean

REFERENCE: Final[Mapping[str, Any]] = {"$ref": "#/$defs/reference"}
"""The JSON Schema of a scalar with ``${...}``, which only the loader can check."""


@frozen
class ValueKind:
    """A kind of value."""

    name: str
    """A word or two for a table: ``duration``."""
    expected: str
    """What to write, with the limits: ``a duration such as 500ms, from 10ms to 1m``."""
    read: Callable[[Any], Any] = field(repr=False)
    """Converts the raw value; raises InvalidError."""
    write: Callable[[Any], str] = field(repr=False)
    """Writes a value as in the file."""
    schema: Mapping[str, Any] = field(repr=False)
    """The JSON Schema of the raw value."""
    limits: str = ""
    """The limits, for a table: ``10ms to 1m``."""
    annotation: str = "Any"
    """The raw value's Python type, as decorators take it."""
    hidden_key: str = ""
    """In a mapping of names: the key of each entry whose value no output may contain."""


def boolean() -> ValueKind:
    """True or false."""
    expected = "true or false"

    def read(raw: Any) -> bool:
        value = raw.typed() if isinstance(raw, Untyped) else raw
        if isinstance(value, bool):
            return value
        quoted = isinstance(value, str) and value in {"true", "false"}
        raise InvalidError.of(raw, expected, hint="write it without quotes" if quoted else "")

    return ValueKind(
        "boolean",
        expected,
        read,
        lambda value: "true" if value else "false",
        {"anyOf": [{"type": "boolean"}, REFERENCE]},
        annotation="bool",
    )


def whole_number(lower: int, upper: int) -> ValueKind:
    """A whole number within limits, both included."""
    expected = f"a whole number from {lower} to {upper}"

    def read(raw: Any) -> int:
        value = raw.typed() if isinstance(raw, Untyped) else raw
        if isinstance(value, int) and not isinstance(value, bool) and lower <= value <= upper:
            return value
        quoted = isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value)
        raise InvalidError.of(raw, expected, hint="write it without quotes" if quoted else "")

    limits = {"type": "integer", "minimum": lower, "maximum": upper}
    return ValueKind(
        "whole number",
        expected,
        read,
        str,
        {"anyOf": [limits, REFERENCE]},
        f"{lower} to {upper}",
        "int",
    )


def duration(lower_s: float, upper_s: float) -> ValueKind:
    """A duration within limits, both included; its value is in seconds."""
    example = "a duration such as 500ms, 10s or 1m"
    notation = units.parse_duration, units.format_duration, units.DURATION_UNITS
    return _quantity_kind("duration", example, lower_s, upper_s, notation)


NEVER = float("inf")


def duration_or_never(lower_s: float, upper_s: float) -> ValueKind:
    """A duration within limits, or ``never``, whose value is infinite."""
    inner = duration(lower_s, upper_s)
    expected = f"{inner.expected}, or never"

    def read(raw: Any) -> float:
        return NEVER if raw == "never" else float(inner.read(raw))

    return ValueKind(
        "duration",
        expected,
        read,
        lambda value: "never" if value == NEVER else units.format_duration(value),
        {"anyOf": [{"const": "never"}, inner.schema]},
        f"{inner.limits}, or never",
        "str",
    )


def duration_range() -> ValueKind:
    """Two durations; the value is a pair of seconds."""
    expected = "a range of durations such as 200ms..5s"
    one = f"[0-9]+([.][0-9]+)?({'|'.join(units.DURATION_UNITS)})"
    return ValueKind(
        "range of durations",
        expected,
        lambda raw: _quantity(raw, units.parse_duration_range, expected),
        units.format_duration_range,
        {"anyOf": [{"type": "string", "pattern": f"^{one} *[.][.] *{one}$"}, REFERENCE]},
        "lower end above 0 and not above the upper end",
        "str",
    )


def size(lower: int, upper: int) -> ValueKind:
    """A size within limits, both included; its value is in bytes."""
    notation = units.parse_size, units.format_size, units.SIZE_UNITS
    return _quantity_kind("size", "a size such as 64MiB or 1GiB", lower, upper, notation)


def percent(lower: float, upper: float) -> ValueKind:
    """A percentage within limits, both included; its value is a share, 1.0 for 100 %."""
    notation = units.parse_percent, units.format_percent, units.PERCENT_UNITS
    return _quantity_kind("percentage", "a percentage such as 50%", lower, upper, notation)


def choice(*words: str) -> ValueKind:
    """One of several words."""
    alternatives = f"{', '.join(words[:-1])} or {words[-1]}"
    expected = f"one of {alternatives}"

    def read(raw: Any) -> str:
        if isinstance(raw, str):
            if raw in words:
                return str(raw)
            raise InvalidError.of(raw, expected, hint=did_you_mean(raw, words))
        raise InvalidError.of(raw, expected)

    schema = {"anyOf": [{"enum": list(words)}, REFERENCE]}
    literal = f"Literal[{', '.join(json.dumps(word) for word in words)}]"
    return ValueKind("word", expected, read, str, schema, alternatives, literal)


def member(of: type[StrEnum]) -> ValueKind:
    """One of several words; the value is a member of the enum that has them."""
    words = choice(*of)
    return evolve(words, read=lambda raw: of(words.read(raw)))


def _blank(text: str) -> str | None:
    return None if text.strip() else "is empty"


def text(
    expected: str, check: Callable[[str], str | None] = _blank, pattern: str | None = None
) -> ValueKind:
    """Text that must pass a check, which returns the problem or None.

    Without a check, it must not be blank. ``pattern`` is for the JSON Schema.
    """

    def read(raw: Any) -> str:
        if not isinstance(raw, str):
            scalar = isinstance(raw, int | float)
            raise InvalidError.of(raw, expected, hint="write it in quotes" if scalar else "")
        wrong = check(raw)
        if wrong is not None:
            raise InvalidError.of(raw, expected, wrong)
        return str(raw)

    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if pattern is not None:
        schema = {"anyOf": [{"type": "string", "pattern": pattern}, REFERENCE]}
    return ValueKind("text", expected, read, str, schema, expected, "str")


def kafka_name(noun: str) -> ValueKind:
    """A topic's or a group's name."""
    expected = f"a {noun} name of letters, digits, dots, dashes and underscores"
    return text(expected, names.wrong_name, names.LEGAL)


def template(example: str, *more: str) -> ValueKind:
    """A template for the names of ladder topics; unquoted, YAML reads it as a mapping.

    Beside ``{group}`` and ``{topic}``, it must contain the placeholders in ``more``.
    """
    plain = text(
        f"a template such as '{example}'",
        lambda template: names.wrong_template(template, *more),
        r"^\{group\}[.].*\{topic\}",
    )
    return evolve(plain, write=repr)


def exception_class() -> ValueKind:
    """An exception's dotted name or, from Python, the class itself."""
    by_name = text("the dotted name of an exception class", names.wrong_exception, names.DOTTED)

    def read(raw: Any) -> str | type[BaseException]:
        if isinstance(raw, type) and issubclass(raw, BaseException):
            return raw
        name: str = by_name.read(raw)
        return name

    def write(value: str | type[BaseException]) -> str:
        if isinstance(value, str):
            return value
        return f"{value.__module__}.{value.__qualname__}"

    annotation = "type[BaseException] | str"
    return ValueKind("class", by_name.expected, read, write, by_name.schema, annotation=annotation)


def list_of(item: ValueKind, plural: str, *, may_be_empty: bool = False) -> ValueKind:
    """A list of distinct items; the value is a tuple."""
    expected = f"a list of {plural}"

    def read(raw: Any) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            hint = ""
            if isinstance(raw, str) and len(raw) <= names.MAX_LENGTH:
                hint = f"write [{raw if re.fullmatch(names.LEGAL, raw) else repr(str(raw))}]"
            raise InvalidError.of(raw, expected, hint=hint)
        if not raw and not may_be_empty:
            raise InvalidError(Problem((), f"the list is empty, expected {expected}"))
        return _items(raw, item)

    schema: dict[str, Any] = {"type": "array", "items": item.schema, "uniqueItems": True}
    if not may_be_empty:
        schema["minItems"] = 1
    return ValueKind(
        f"list of {plural}",
        expected,
        read,
        lambda values: f"[{', '.join(map(item.write, values))}]",
        schema,
        f"each {item.expected}",
        f"Sequence[{item.annotation}]",
    )


def _items(raw: list[Any], item: ValueKind) -> tuple[Any, ...]:
    values: list[Any] = []
    problems: list[Problem] = []
    for index, element in enumerate(raw):
        try:
            value = item.read(element)
        except InvalidError as error:
            problems.extend(problem.below((index,)) for problem in error.problems)
            continue
        if value in values:
            problems.append(Problem((index,), "appears twice in the list", value=element))
        values.append(value)
    if problems:
        raise InvalidError(*problems)
    return tuple(values)


def _quantity(raw: Any, parse: Callable[[str], Any], expected: str) -> Any:
    if not isinstance(raw, str | int | float):
        raise InvalidError.of(raw, expected)
    try:
        return parse(str(raw))
    except units.UnitError as error:
        raise InvalidError.of(raw, expected, str(error), error.hint) from None


def _quantity_kind(
    name: str,
    example: str,
    lower: Any,
    upper: Any,
    notation: tuple[Callable[[str], Any], Callable[[Any], str], Mapping[str, Any]],
) -> ValueKind:
    """Return the kind of a number with a unit, which ``notation`` reads and writes."""
    parse, write, of_units = notation
    limits = write(lower), write(upper)
    expected = f"{example}, from {limits[0]} to {limits[1]}"

    def read(raw: Any) -> Any:
        value = _quantity(raw, parse, expected)
        if not lower <= value <= upper:
            raise InvalidError.of(raw, expected)
        return value

    pattern = f"^[0-9]+([.][0-9]+)?({'|'.join(of_units)})$"
    zeros = [{"enum": [0, "0"]}] if lower == 0 else []
    schema = {"anyOf": [{"type": "string", "pattern": pattern}, *zeros, REFERENCE]}
    return ValueKind(name, expected, read, write, schema, " to ".join(limits), "str")
