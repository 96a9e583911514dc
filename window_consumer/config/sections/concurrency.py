"""The keys ``concurrency``, a number or a range for the worker to choose from, and ``pool``."""

from __future__ import annotations

import re
from typing import Any, Final

from attrs import evolve, frozen

from window_consumer.config import kinds
from window_consumer.config.kinds import ValueKind
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.runtime.pools.registry import configurable

MOST: Final = 10_000

_EXPECTED: Final = f"a whole number from 1 to {MOST}, auto, or a range such as {{auto: 1..200}}"
_RANGE: Final = "a range of whole numbers such as 1..200"


@frozen
class AutoConcurrency:
    """The bounds, both included, within which the worker chooses its concurrency."""

    lower: int = 1
    upper: int = 200

    def __str__(self) -> str:
        return f"{{auto: {self.lower}..{self.upper}}}"


def pool_kind() -> ValueKind:
    """The name of a kind of pool, among those registered when the value is read."""
    return evolve(
        kinds.choice(*configurable()), read=lambda raw: kinds.choice(*configurable()).read(raw)
    )


def with_cores(given: Any, read: int | AutoConcurrency, cores: int) -> int | AutoConcurrency:
    """Return the concurrency of a worker whose slots compute in parallel.

    Without a ``given`` number or range, it follows from the usable cores: more slots would only
    take turns.
    """
    if given is None:
        return cores
    return AutoConcurrency(1, cores) if given == "auto" else read


def concurrency_kind() -> ValueKind:
    """A whole number, or an AutoConcurrency."""
    number = kinds.whole_number(1, MOST)

    def read(raw: Any) -> int | AutoConcurrency:
        if isinstance(raw, AutoConcurrency):
            return raw
        if isinstance(raw, dict):
            return _read_mapping(raw)
        if raw == "auto":
            return AutoConcurrency()
        try:
            count: int = number.read(raw)
        except InvalidError as error:
            if isinstance(raw, str):
                wrong, hint = _wrong_text(raw)
                raise InvalidError.of(raw, _EXPECTED, wrong, hint) from None
            raise InvalidError.of(raw, _EXPECTED) from error
        return count

    schema = {
        "anyOf": [
            number.schema,
            {"enum": ["auto"]},
            {
                "type": "object",
                "properties": {
                    "auto": {
                        "anyOf": [
                            {"type": "string", "pattern": "^ *[0-9]+ *[.][.] *[0-9]+ *$"},
                            kinds.REFERENCE,
                        ]
                    }
                },
                "required": ["auto"],
                "additionalProperties": False,
            },
        ]
    }
    limits = f"1 to {MOST}; auto; or auto with a range"
    annotation = 'int | Literal["auto"] | Mapping[str, str]'
    return ValueKind("whole number or auto", _EXPECTED, read, str, schema, limits, annotation)


def _read_mapping(raw: dict[str, Any]) -> AutoConcurrency:
    problems = [
        Problem((key,), f"unknown key; {did_you_mean(str(key), ['auto']) or 'known is auto'}")
        for key in raw
        if key != "auto"
    ]
    if "auto" not in raw:
        problems.append(Problem(("auto",), f"is missing: {_RANGE}"))
    if problems:
        raise InvalidError(*problems)
    try:
        return _read_range(raw["auto"])
    except InvalidError as error:
        raise InvalidError(*(problem.below(("auto",)) for problem in error.problems)) from None


def _read_range(raw: Any) -> AutoConcurrency:
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*", str(raw))
    if not found or isinstance(raw, bool):
        raise InvalidError.of(raw, _RANGE)
    lower, upper = map(int, found.groups())
    if lower > upper:
        wrong = "has its ends in the wrong order"
        raise InvalidError.of(raw, _RANGE, wrong, f"write {upper}..{lower}")
    if lower < 1 or upper > MOST:
        raise InvalidError.of(raw, _RANGE, f"must lie within 1..{MOST}")
    return AutoConcurrency(lower, upper)


def _wrong_text(raw: str) -> tuple[str, str]:
    """Return the problem with a text, and the probable correction."""
    if re.fullmatch(r"[0-9]{1,18}", raw):
        return "", "write it without quotes"
    if ".." in raw:
        return "", f"write {{auto: {raw.strip()}}}"
    return "", did_you_mean(raw, ["auto"])
