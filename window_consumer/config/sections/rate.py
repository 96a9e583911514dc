"""The key ``rate_per_process``: how many calls may start per unit of time, and the burst."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, get_args

from attrs import frozen

from window_consumer.config import kinds
from window_consumer.config.kinds import ValueKind
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.config.units import UnitError

Per = Literal["worker", "key", "partition", "class"]

RATE_UNITS: Final = {"s": 1, "min": 60, "h": 3600}
"""Units of time for a rate, in seconds."""

BURST_S: Final = 0.1
"""The default burst is the rate times this, at least one. A smaller burst would wait for the poll
thread; a larger one would strain the system to protect.
"""

MOST_BURST: Final = 1_000_000

_LOWEST, _HIGHEST = Fraction(1, 86400), Fraction(1_000_000)
_RATE: Final = "a rate such as 500/s, 30/min or 1000/h"
_EXPECTED: Final = f"{_RATE}, or {{rate: 500/s, per: key, burst: 50}}"
_SPELLINGS: Final = {
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours", "hr"), "h"),
}


@frozen
class Rate:
    """How many calls may start per unit of time."""

    count: Decimal
    unit: str
    """One of RATE_UNITS."""
    per: Per = "worker"
    given_burst: int | None = None

    @property
    def per_s(self) -> float:
        """Calls per second."""
        return float(Fraction(self.count) / RATE_UNITS[self.unit])

    @property
    def burst(self) -> int:
        """How many calls may start at once after a pause."""
        return self.given_burst or max(1, int(self.per_s * BURST_S))

    def __str__(self) -> str:
        return f"{{rate: {self.text}, per: {self.per}, burst: {self.burst}}}"

    @property
    def text(self) -> str:
        """The rate as it is written."""
        return f"{self.count:f}/{self.unit}"


_PER: Final = kinds.choice(*get_args(Per))
_BURST: Final = kinds.whole_number(1, MOST_BURST)


def rate_kind() -> ValueKind:
    """A Rate: text such as ``500/s``, or a mapping."""
    pattern = rf"^[0-9]+([.][0-9]+)? */ *({'|'.join(RATE_UNITS)})$"
    text = {"anyOf": [{"type": "string", "pattern": pattern}, kinds.REFERENCE]}
    schema = {
        "anyOf": [
            text,
            {
                "type": "object",
                "properties": {"rate": text, "per": _PER.schema, "burst": _BURST.schema},
                "required": ["rate"],
                "additionalProperties": False,
            },
        ]
    }
    limits = f"1/h to {_HIGHEST}/s; or rate, per (worker, key, partition, class) and burst"
    return ValueKind("rate", _EXPECTED, _read, str, schema, limits, "str | Mapping[str, Any]")


def _read(raw: Any) -> Rate:
    if isinstance(raw, Rate):
        return raw
    if not isinstance(raw, dict):
        return Rate(*_parsed(raw, _EXPECTED))
    problems = [
        Problem((key,), f"unknown key; {did_you_mean(str(key), _KEYS) or _KNOWN}")
        for key in raw
        if key not in _KEYS
    ]
    values: dict[str, Any] = {}
    for key, read in (("rate", lambda each: _parsed(each, _RATE)), ("per", _PER.read)):
        try:
            if key in raw:
                values[key] = read(raw[key])
        except InvalidError as error:
            problems.extend(problem.below((key,)) for problem in error.problems)
    try:
        values["burst"] = _BURST.read(raw["burst"]) if "burst" in raw else None
    except InvalidError as error:
        problems.extend(problem.below(("burst",)) for problem in error.problems)
    if "rate" not in raw:
        problems.append(Problem(("rate",), f"is missing: {_RATE}"))
    if problems:
        raise InvalidError(*problems)
    count, unit = values["rate"]
    return Rate(count, unit, values.get("per", "worker"), values["burst"])


_KEYS: Final = ("rate", "per", "burst")
_KNOWN: Final = f"known are {', '.join(_KEYS)}"


def _parsed(raw: Any, expected: str) -> tuple[Decimal, str]:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise InvalidError.of(raw, expected)
    try:
        count, unit = parse_rate(str(raw))
    except UnitError as error:
        raise InvalidError.of(raw, expected, str(error), error.hint) from None
    if not _LOWEST <= Fraction(count) / RATE_UNITS[unit] <= _HIGHEST:
        raise InvalidError.of(raw, expected, f"must lie between 1 a day and {_HIGHEST}/s")
    return count, unit


def parse_rate(text: str) -> tuple[Decimal, str]:
    """Return number and unit of a rate such as ``500/s``. Raises UnitError."""
    found = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?:/\s*([A-Za-z]*))?\s*", text)
    if found is None:
        raise UnitError("is not a rate")
    digits, unit = found.groups()
    if not unit:
        raise UnitError("has no unit of time", f"write {digits}/s, {digits}/min or {digits}/h")
    if unit not in RATE_UNITS:
        meant = _SPELLINGS.get(unit.lower(), unit.lower())
        hint = f"write {digits}/{meant}" if meant in RATE_UNITS else "units are /s, /min and /h"
        raise UnitError(f"has the unknown unit {'/' + unit!r}", hint)
    return Decimal(digits), unit
