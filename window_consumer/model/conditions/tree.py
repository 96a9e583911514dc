"""The parts of an expression: values, comparisons of them, and ways to join these.

Terms never raise: a missing or incomparable value is not equal to anything, and neither smaller nor
larger. ``!=`` is the opposite of ``==``.
"""

from __future__ import annotations

from decimal import Decimal
from enum import Enum
from typing import Protocol

from attrs import field, frozen

from window_consumer.model.conditions.tokens import quoted
from window_consumer.model.conditions.values import (
    ORDERS,
    TEXT_TESTS,
    Value,
    alike,
    equal,
    moment_ms,
)


class FieldKind(Enum):
    """The type of a field's values; a header's is TEXT."""

    TEXT = "a text"
    """Compared with a number it counts as the number that it spells."""
    NUMBER = "a number"
    TIME = "a time"
    """Milliseconds since 1970."""


class Lookup(Protocol):
    """The values for an expression. None is a missing value."""

    def field(self, name: str) -> str | int | float | None:
        """Return the value of a field that the expression was parsed with."""

    def header(self, name: str) -> str | None:
        """Return a header's value as text."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970; called only for ``ago(...)``."""


@frozen
class FieldValue:
    """The value of a field."""

    name: str
    kind: FieldKind

    def value(self, lookup: Lookup) -> Value:
        """Look the field up."""
        return lookup.field(self.name)

    def __str__(self) -> str:
        return self.name


@frozen
class Header:
    """The value of a header."""

    name: str
    kind: FieldKind = field(default=FieldKind.TEXT, init=False)

    def value(self, lookup: Lookup) -> Value:
        """Look the header up."""
        return lookup.header(self.name)

    def __str__(self) -> str:
        return f"header({quoted(self.name)})"


@frozen
class Literal:
    """A constant of the expression."""

    constant: Value
    kind: None = field(default=None, init=False)

    def value(self, _: Lookup) -> Value:
        """Return the constant."""
        return self.constant

    def __str__(self) -> str:
        if self.constant is None:
            return "null"
        if isinstance(self.constant, bool):
            return "true" if self.constant else "false"
        if isinstance(self.constant, str):
            return quoted(self.constant)
        digits = format(Decimal(repr(self.constant)), "f")
        # Without a point it would be read as a whole number, which differs for large ones.
        whole = isinstance(self.constant, float) and "." not in digits
        return f"{digits}.0" if whole else digits


@frozen
class Moment:
    """A constant point in time of the expression."""

    text: str
    """In ISO 8601; in UTC if it names no zone."""
    kind: FieldKind = field(default=FieldKind.TIME, init=False)
    _ms: int = field(init=False, eq=False, repr=False)

    @_ms.default
    def _read(self) -> int:
        milliseconds = moment_ms(self.text)
        if milliseconds is None:
            raise ValueError(f"{self.text!r} is not a time such as '2026-11-21T10:00'")
        return milliseconds

    def value(self, _: Lookup) -> Value:
        """Return the milliseconds since 1970."""
        return self._ms

    def __str__(self) -> str:
        return quoted(self.text)


@frozen
class Ago:
    """The point in time ``age_ms`` milliseconds ago."""

    text: str
    """The duration as it was written."""
    age_ms: int
    kind: FieldKind = field(default=FieldKind.TIME, init=False)

    def value(self, lookup: Lookup) -> Value:
        """Return the current time less ``age_ms``."""
        return lookup.now_ms() - self.age_ms

    def __str__(self) -> str:
        return f"ago({self.text})"


Operand = FieldValue | Header | Literal | Moment | Ago


@frozen
class Comparison:
    """Two values compared with ``==``, ``!=`` or one of ``ORDERS``."""

    left: Operand
    sign: str
    right: Operand

    def holds(self, lookup: Lookup) -> bool:
        """Look both sides up and compare them."""
        left, right = self.left.value(lookup), self.right.value(lookup)
        if self.sign == "==" and type(left) is type(right):
            return left == right  # nearly all comparisons are of this kind
        times = FieldKind.TIME in (self.left.kind, self.right.kind)
        if self.sign == "==":
            return equal(left, right, times=times)
        if self.sign == "!=":
            return not equal(left, right, times=times)
        pair = alike(left, right, times=times)
        if pair is None or isinstance(pair[0], bool):
            return False
        return ORDERS[self.sign](*pair)

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@frozen
class OneOf:
    """A value that equals one of some others."""

    left: Operand
    choices: tuple[Operand, ...]

    def holds(self, lookup: Lookup) -> bool:
        """Look the value up and compare it with each choice."""
        value = self.left.value(lookup)
        times = self.left.kind is FieldKind.TIME
        return any(equal(value, each.value(lookup), times=times) for each in self.choices)

    def in_words(self, word: str) -> str:
        """Return it with ``in``, or its opposite with ``not in``."""
        return f"{self.left} {word} [{', '.join(map(str, self.choices))}]"

    def __str__(self) -> str:
        return self.in_words("in")


@frozen
class TextTest:
    """A text tested with one of ``TEXT_TESTS``; false if there is no text."""

    left: Operand
    word: str
    pattern: str

    def holds(self, lookup: Lookup) -> bool:
        """Look the text up and test it."""
        value = self.left.value(lookup)
        return isinstance(value, str) and TEXT_TESTS[self.word](value, self.pattern)

    def __str__(self) -> str:
        return f"{self.left} {self.word} {quoted(self.pattern)}"


@frozen
class Not:
    """The opposite of a term."""

    term: Term

    def holds(self, lookup: Lookup) -> bool:
        """Return whether the term does not hold."""
        return not self.term.holds(lookup)

    def __str__(self) -> str:
        if isinstance(self.term, OneOf):
            return self.term.in_words("not in")
        return f"not {_inner(self.term)}"


@frozen
class All:
    """Terms joined by ``and``."""

    terms: tuple[Term, ...]

    def holds(self, lookup: Lookup) -> bool:
        """Return whether all terms hold; stop at the first that does not."""
        return all(term.holds(lookup) for term in self.terms)

    def __str__(self) -> str:
        return " and ".join(map(_inner, self.terms))


@frozen
class AnyOf:
    """Terms joined by ``or``."""

    terms: tuple[Term, ...]

    def holds(self, lookup: Lookup) -> bool:
        """Return whether one of the terms holds; stop at the first that does."""
        return any(term.holds(lookup) for term in self.terms)

    def __str__(self) -> str:
        return " or ".join(map(_inner, self.terms))


Term = Comparison | OneOf | TextTest | Not | All | AnyOf


def _inner(term: Term) -> str:
    return f"({term})" if isinstance(term, All | AnyOf) else str(term)
