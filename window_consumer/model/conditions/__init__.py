"""Conditions on records as Python objects: ``header("type") == "paid"``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from attrs import frozen

from window_consumer.model.conditions.expressions import Expression, Lookup
from window_consumer.model.conditions.lookup import RECORD_FIELDS
from window_consumer.model.conditions.tree import (
    All,
    AnyOf,
    Comparison,
    FieldKind,
    FieldValue,
    Header,
    Literal,
    Moment,
    Not,
    OneOf,
    Operand,
    TextTest,
)
from window_consumer.model.conditions.values import moment_ms


@frozen
class Condition:
    """A test of a record; join conditions with ``&``, ``|`` and ``~``.

    Its text is an expression of the configuration.
    """

    expression: Expression

    def holds(self, lookup: Lookup) -> bool:
        """Return whether the condition holds; never raises."""
        return self.expression.evaluate(lookup)

    def __and__(self, other: Condition) -> Condition:
        if not isinstance(other, Condition):
            return NotImplemented
        return Condition(Expression(All((self.expression.term, other.expression.term))))

    def __or__(self, other: Condition) -> Condition:
        if not isinstance(other, Condition):
            return NotImplemented
        return Condition(Expression(AnyOf((self.expression.term, other.expression.term))))

    def __invert__(self) -> Condition:
        return Condition(Expression(Not(self.expression.term)))

    def __bool__(self) -> bool:
        raise TypeError(
            f"the condition ({self}) depends on a record: join conditions with &, | and ~,"
            " each in brackets, instead of and, or and not; a < b < c is two conditions"
        )

    def __str__(self) -> str:
        return str(self.expression)


class ConditionText:
    """A property of a record: compare it to make a Condition.

    A record without it has the value None, which equals only None, and is neither smaller nor
    larger than anything.
    """

    __slots__ = ("operand",)
    __hash__ = None  # type: ignore[assignment] # == makes conditions, so there is no hash

    def __init__(self, operand: FieldValue | Header):
        self.operand = operand

    def __eq__(self, other: object) -> Condition:  # type: ignore[override] # that is its purpose
        return self._compared("==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override] # that is its purpose
        return self._compared("!=", other)

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    def is_in(self, values: Iterable[Any]) -> Condition:
        """Hold if it equals one of these values."""
        if isinstance(values, str | bytes):
            raise TypeError(f"is_in takes a list of values, not {values!r}")
        choices = tuple(self._value(each) for each in values)
        if not choices:
            raise ValueError(f"{self.operand} is never in an empty list")
        return _condition(OneOf(self.operand, choices))

    def contains(self, part: str) -> Condition:
        """Hold if the text contains another."""
        return self._text_test("contains", part)

    def startswith(self, part: str) -> Condition:
        """Hold if the text begins with another."""
        return self._text_test("startswith", part)

    def endswith(self, part: str) -> Condition:
        """Hold if the text ends with another."""
        return self._text_test("endswith", part)

    def matches(self, pattern: str) -> Condition:
        """Hold if the text matches a pattern in which ``*`` stands for any text."""
        return self._text_test("matches", pattern)

    def __bool__(self) -> bool:
        raise TypeError(f"{self.operand} alone is not a condition: compare it, as in != None")

    def __repr__(self) -> str:
        return str(self.operand)

    def _compared(self, sign: str, other: object) -> Condition:
        right = other.operand if isinstance(other, ConditionText) else self._value(other)
        ordered = sign not in {"==", "!="}
        if ordered and isinstance(right, Literal) and isinstance(right.constant, bool | None):
            raise TypeError(f"{right} is only compared with == and !=")
        return _condition(Comparison(self.operand, sign, right))

    def _text_test(self, word: str, pattern: object) -> Condition:
        if self.operand.kind is not FieldKind.TEXT:
            raise TypeError(f"{self.operand} is not a text, so {word} does not apply to it")
        if not isinstance(pattern, str):
            raise TypeError(f"{word} takes a text, not {pattern!r}")
        return _condition(TextTest(self.operand, word, pattern))

    def _value(self, value: object) -> Operand:
        """Return a value as an operand; raise TypeError for one that never compares."""
        if isinstance(value, datetime):
            value = value.isoformat()
        if isinstance(value, bytes):
            value = value.decode("utf-8", "backslashreplace")
        if not isinstance(value, str | int | float | None):
            raise TypeError(
                f"{self.operand} is compared with text, bytes, numbers, True, False, None and"
                f" datetimes, not with {value!r}"
            )
        if self.operand.kind is FieldKind.TIME and value is not None:
            if isinstance(value, bool) or (isinstance(value, str) and moment_ms(value) is None):
                raise TypeError(
                    f"{self.operand} is compared with datetimes, texts such as"
                    f" '2026-11-21T10:00' and milliseconds since 1970, not with {value!r}"
                )
            if isinstance(value, str):
                return Moment(value)
        return Literal(value)


def header(name: str) -> ConditionText:
    """Return the last value of a header, as text, for conditions."""
    return ConditionText(Header(name))


key: Final = ConditionText(FieldValue("key", RECORD_FIELDS["key"]))
"""The record's key, as text, for conditions."""

timestamp: Final = ConditionText(FieldValue("timestamp", RECORD_FIELDS["timestamp"]))
"""The record's time, for conditions."""

topic: Final = ConditionText(FieldValue("topic", RECORD_FIELDS["topic"]))
"""The topic that the record was first delivered from, for conditions."""


def _condition(term: Comparison | OneOf | TextTest) -> Condition:
    return Condition(Expression(term))
