"""The key ``ttl``: one time to live for all records, or a header that gives each its own."""

from __future__ import annotations

from typing import Any, Final, Literal

from attrs import frozen

from window_consumer.config import kinds, units
from window_consumer.config.kinds import ValueKind
from window_consumer.config.problems import InvalidError, Problem, did_you_mean

_FOREVER_S: Final = 36500 * 86400.0

_EXPECTED: Final = "a duration such as 30s, or a header: {header: ttl, unit: s, format: int64be}"


@frozen
class HeaderTtl:
    """A header with the time to live of its record."""

    header: str
    unit: str
    format: Literal["text", "int64be"]


_KEYS: Final[dict[str, ValueKind]] = {
    "header": kinds.text("the name of a header"),
    "unit": kinds.choice(*units.DURATION_UNITS),
    "format": kinds.choice("text", "int64be"),
}


def ttl_kind() -> ValueKind:
    """A duration in seconds, or a HeaderTtl."""
    duration = kinds.duration(0.001, _FOREVER_S)

    def read(raw: Any) -> float | HeaderTtl:
        if isinstance(raw, dict):
            return _read_header(raw)
        try:
            seconds: float = duration.read(raw)
        except InvalidError as error:
            if isinstance(raw, str | int | float):
                raise
            raise InvalidError.of(raw, _EXPECTED) from error
        return seconds

    def write(value: float | HeaderTtl) -> str:
        if isinstance(value, HeaderTtl):
            return f"{{header: {value.header}, unit: {value.unit}, format: {value.format}}}"
        return units.format_duration(value)

    schema = {
        "anyOf": [
            duration.schema,
            {
                "type": "object",
                "properties": {key: kind.schema for key, kind in _KEYS.items()},
                "required": list(_KEYS),
                "additionalProperties": False,
            },
        ]
    }
    limits = "1ms to 36500d; or header, unit (ms, s, m, h, d) and format (text, int64be)"
    return ValueKind(
        "duration or header", _EXPECTED, read, write, schema, limits, "str | Mapping[str, str]"
    )


def _read_header(raw: dict[str, Any]) -> HeaderTtl:
    problems = []
    values = {}
    for key, value in raw.items():
        if key not in _KEYS:
            hint = did_you_mean(str(key), _KEYS) or f"known are {', '.join(_KEYS)}"
            problems.append(Problem((key,), f"unknown key; {hint}"))
            continue
        try:
            values[key] = _KEYS[key].read(value)
        except InvalidError as error:
            problems.extend(problem.below((key,)) for problem in error.problems)
    problems.extend(
        Problem((key,), f"is missing: {kind.expected}")
        for key, kind in _KEYS.items()
        if key not in raw
    )
    if problems:
        raise InvalidError(*problems)
    return HeaderTtl(**values)
