"""The section ``fair`` of a worker: which classes of records share its slots, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.options import about
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.model.conditions.expressions import (
    ExpressionError,
    FieldKind,
    Property,
    parse_property,
)
from window_consumer.model.conditions.lookup import RECORD_FIELDS

Weights = Mapping[str, float]

_LEAST, _MOST = 0.001, 1_000_000.0

_FIELDS: Final = {name: kind for name, kind in RECORD_FIELDS.items() if kind is not FieldKind.TIME}
"""Properties that cannot define classes: with a time, each record would be its own class."""


def property_kind() -> ValueKind:
    """A property of a record: ``key``, ``topic``, a header, or a condition."""
    expected = "key, topic, a header such as header('tenant'), or a condition"

    def read(raw: Any) -> Property:
        if not isinstance(raw, str):
            raise InvalidError.of(raw, expected)
        try:
            return parse_property(raw, _FIELDS)
        except ExpressionError as error:
            raise InvalidError(Problem((), str(error))) from None

    schema = {"anyOf": [{"type": "string", "minLength": 1}, REFERENCE]}
    return ValueKind("property of a record", expected, read, str, schema, expected)


def weights_kind() -> ValueKind:
    """Weights by class; the value is a mapping of numbers."""
    expected = "a mapping of classes to weights, as in {gold: 5, default: 1}"
    limits = f"a number from {_LEAST} to {_MOST:.0f}"

    def read(raw: Any) -> Weights:
        if not isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        problems: list[Problem] = []
        found: dict[str, float] = {}
        for name, weight in raw.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                problems.append(Problem((name,), f"{weight!r} is not {limits}"))
            elif weight == 0:
                message = "is 0, and such a class would never run; write a small weight"
                problems.append(Problem((name,), message))
            elif not _LEAST <= weight <= _MOST:
                problems.append(Problem((name,), f"{weight!r} is not {limits}"))
            else:
                found[str(name)] = float(weight)
        if problems:
            raise InvalidError(*problems)
        return found

    def write(value: Weights) -> str:
        return f"{{{', '.join(f'{name}: {weight:g}' for name, weight in value.items())}}}"

    number = {"type": "number", "minimum": _LEAST, "maximum": _MOST}
    schema = {"type": "object", "additionalProperties": {"anyOf": [number, REFERENCE]}}
    return ValueKind("mapping of numbers", expected, read, write, schema, expected)


@frozen
class AtMost:
    """The most slots of one class: a share while others wait, or a number."""

    share: float = 1.0
    slots: int | None = None


def at_most_kind() -> ValueKind:
    """An AtMost: a percentage, or a whole number."""
    percent, number = kinds.percent(0.01, 1.0), kinds.whole_number(1, 1_000_000)
    expected = "a percentage of the slots such as 40%, or a number of slots such as 8"

    def read(raw: Any) -> AtMost:
        try:
            if isinstance(raw, str) and "%" in raw:
                return AtMost(share=percent.read(raw))
            return AtMost(slots=number.read(raw))
        except InvalidError:
            raise InvalidError.of(raw, expected) from None

    def write(value: AtMost) -> str:
        return percent.write(value.share) if value.slots is None else str(value.slots)

    schema = {"anyOf": [percent.schema, number.schema]}
    limits = f"{percent.limits}, or a number of slots"
    return ValueKind(
        "percentage or whole number", expected, read, write, schema, limits, "str | int"
    )


@frozen(kw_only=True)
class FairConfig:
    """How classes of records, such as tenants, share the slots of a process."""

    by: Property | None = field(
        default=None,
        metadata=about(
            "The class of a record: its key, topic, a header such as header('tenant'), or a "
            "condition, with the classes true and false. Records without a value share one "
            "class.",
            kind=property_kind(),
            default="none: records start in the order of their arrival",
        ),
    )
    weights: Weights = field(
        factory=dict,
        metadata=about(
            "The weights of classes; `default` applies to each class that is not listed.",
            kind=weights_kind(),
            default="none: all classes weigh 1",
        ),
    )
    order: Literal["shares", "strict"] = field(
        default="shares",
        metadata=about(
            "shares: classes get slot time in proportion to their weights. strict: the class with "
            "the highest weight that has records runs first, and the others get `floor`.",
            kind=kinds.choice("shares", "strict"),
            reason="no class starves",
        ),
    )
    floor: float = field(
        default=0.05,
        metadata=about(
            "With order: strict, the slot time for all classes but the first one while it has "
            "records. With 0% they get none.",
            kind=kinds.percent(0.0, 0.5),
            reason="the others still make progress, and the first one hardly notices",
        ),
    )
    at_most: AtMost = field(
        default=AtMost(),
        metadata=about(
            "The most slots of one class: a percentage while others wait, or a number at any time. "
            "It does not hold back retries that are due.",
            kind=at_most_kind(),
            default="100%: only the shares apply",
        ),
    )
    max_classes: int = field(
        default=10_000,
        metadata=about(
            "How many classes may have records at once. Records of further classes join those "
            "without a class, and are counted.",
            kind=kinds.whole_number(1, 1_000_000),
            reason="a class takes half a kilobyte",
        ),
    )
