r"""A small language for conditions on records: parsed by hand; nothing in it is executed.

    reason == 'FATAL' and (header('type') in ['paid', 'refunded'] or not key startswith 'test-')

=================================== =============================================================
``== !=  < <= > >=``                compare; a text beside a number is read as a number
``in [..]``, ``not in [..]``        one of some values, or none of them
``contains startswith endswith``    search in a text
``matches`` or ``~``                a pattern with ``*`` for any text: ``key ~ 'de-*'``
``not and or ( )``                  join; ``and`` binds more tightly than ``or``
names, ``header('x')``              properties of a record; the names depend on the place of use
``'text' "text" 3 -1.5 true null``  values; ``\'``, ``\"`` and ``\\`` are escapes
``'2026-11-21T10:00'``, ``ago(2h)`` a point in time beside a time, in UTC unless it names a zone
=================================== =============================================================

Evaluating never raises. A missing value equals only ``null``. A missing or incomparable value is
neither smaller nor larger. ``!=`` is the opposite of ``==``, so it holds for such values.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from attrs import frozen

from window_consumer.model.conditions.tokens import (
    DURATION_MS,
    ExpressionError,
    Token,
    TokenKind,
    did_you_mean,
    number_of,
    tokens,
)
from window_consumer.model.conditions.tree import (
    Ago,
    All,
    AnyOf,
    Comparison,
    FieldKind,
    FieldValue,
    Header,
    Literal,
    Lookup,
    Moment,
    Not,
    OneOf,
    Operand,
    Term,
    TextTest,
)
from window_consumer.model.conditions.values import ORDERS, TEXT_TESTS, Value, moment_ms

__all__ = [
    "MAX_DEPTH",
    "Expression",
    "ExpressionError",
    "FieldKind",
    "Lookup",
    "Property",
    "parse",
    "parse_property",
]

MAX_DEPTH: Final = 40
"""The deepest nesting of brackets and nots; deeper ones were not written by hand."""

_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}
_FUNCTIONS: Final = ("header", "ago")
_WORDS: Final = frozenset({"and", "or", "not", "in", *TEXT_TESTS, *_CONSTANTS, *_FUNCTIONS})
_SIGNS: Final = ("==", "!=", *ORDERS)
_TESTS: Final = (*TEXT_TESTS, "~")
_LOOKED_UP: Final = (FieldValue, Header)


@frozen
class Expression:
    """A condition on anything with a Lookup. Owner: any thread."""

    term: Term

    def evaluate(self, lookup: Lookup) -> bool:
        """Return whether the condition holds; raises only what the lookup raises."""
        return self.term.holds(lookup)

    def __str__(self) -> str:
        """Return its one canonical text, which parses to an equal expression."""
        return str(self.term)


def parse(text: str, fields: Mapping[str, FieldKind]) -> Expression:
    """Parse an expression that may use headers and these fields.

    Raises ExpressionError with the position and the expected tokens. Comparisons that can never
    hold (a number with a text, a time with something else) are also errors.
    """
    parser = _Parser(text, fields)
    term = parser.any_of(0)
    parser.end()
    return Expression(term)


Property = FieldValue | Header | Expression
"""A property of a record: a field, a header, or whether a condition holds."""


def parse_property(text: str, fields: Mapping[str, FieldKind]) -> Property:
    """Parse a field, a header, or an expression as ``parse`` does. Raise ExpressionError."""
    parser = _Parser(text, fields)
    found = parser.property()
    return parse(text, fields) if found is None else found


class _Parser:
    """Recursive descent: each rule's method stops at the first token that is not part of it."""

    def __init__(self, text: str, fields: Mapping[str, FieldKind]):
        self._text = text
        self._fields = fields
        self._tokens = list(tokens(text))
        self._next = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def property(self) -> FieldValue | Header | None:
        """Read a field or a header; None if the text is something else, or continues."""
        if not self._token.is_("header", *self._fields):
            return None
        found = self._named()
        is_all = self._tokens[self._next].kind is TokenKind.END
        return found if is_all and isinstance(found, _LOOKED_UP) else None

    def any_of(self, depth: int) -> Term:
        """Read terms joined by ``or``."""
        terms = [self._all_of(depth)]
        while self._skip("or"):
            terms.append(self._all_of(depth))
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def end(self) -> None:
        """Raise ExpressionError if tokens are left."""
        if self._token.kind is not TokenKind.END:
            raise self._expected("and, or or the end")

    def _all_of(self, depth: int) -> Term:
        terms = [self._one(depth)]
        while self._skip("and"):
            terms.append(self._one(depth))
        return terms[0] if len(terms) == 1 else All(tuple(terms))

    def _one(self, depth: int) -> Term:
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} nested brackets and nots", self._token)
        if self._skip("not"):
            return Not(self._one(depth + 1))
        if self._skip("("):
            term = self.any_of(depth + 1)
            self._need(")", "and, or or )")
            return term
        return self._comparison()

    def _comparison(self) -> Term:
        start = self._token
        left = self._operand()
        token = self._token
        if token.is_(*_SIGNS):
            self._next += 1
            at = self._token
            right = self._operand()
            if not (isinstance(left, _LOOKED_UP) or isinstance(right, _LOOKED_UP)):
                raise self._error("compares two values; one side must be a field or header", start)
            return self._compared(left, token, right, (start, at))
        if not isinstance(left, _LOOKED_UP):
            raise self._expected(f"one of {' '.join(_SIGNS)} after a value")
        if token.is_(*_TESTS):
            return self._text_test(left)
        if self._skip("in"):
            return self._one_of(left)
        if token.is_("not"):
            self._next += 1
            self._need("in", "in")
            return Not(self._one_of(left))
        raise self._expected(f"one of {' '.join((*_SIGNS, 'in', *_TESTS))} after {left}", _TESTS)

    def _compared(
        self, left: Operand, sign: Token, right: Operand, at: tuple[Token, Token]
    ) -> Term:
        left, right = self._fit(left, right, at[0]), self._fit(right, left, at[1])
        if sign.text in ORDERS:
            for operand, token in zip((left, right), at, strict=True):
                if isinstance(operand, Literal) and isinstance(operand.constant, bool | None):
                    raise self._error(f"{operand} is only compared with == and !=", token)
        return Comparison(left, sign.text, right)

    def _one_of(self, left: Operand) -> Term:
        self._need("[", "[ and a list of values")
        choices: list[Operand] = []
        while True:
            token = self._token
            choice = self._operand()
            if isinstance(choice, _LOOKED_UP):
                raise self._error("a list holds values only; texts need quotes", token)
            choices.append(self._fit(choice, left, token))
            if self._skip("]"):
                return OneOf(left, tuple(choices))
            self._need(",", ", or ]")

    def _text_test(self, left: Operand) -> Term:
        token = self._take()
        word = "matches" if token.text == "~" else token.text
        if left.kind is not FieldKind.TEXT:
            raise self._error(f"{left} is not a text, so {word} does not apply to it", token)
        pattern = self._token
        if pattern.kind is not TokenKind.TEXT:
            raise self._expected(f"a text in quotes after {word}")
        self._next += 1
        return TextTest(left, word, pattern.text)

    def _operand(self) -> Operand:
        token = self._token
        if token.kind is TokenKind.TEXT:
            self._next += 1
            return Literal(token.text)
        if token.kind is TokenKind.NUMBER:
            self._next += 1
            return Literal(number_of(token.text))
        if token.kind is TokenKind.DURATION:
            raise self._error(f"a duration is not a time: write ago({token.text})", token)
        if token.kind is TokenKind.NAME:
            return self._named()
        raise self._expected("a field, header('name') or a value")

    def _named(self) -> Operand:
        token = self._token
        if token.text in self._fields:
            self._next += 1
            return FieldValue(token.text, self._fields[token.text])
        if token.text in _CONSTANTS:
            self._next += 1
            return Literal(_CONSTANTS[token.text])
        if token.text in _FUNCTIONS:
            self._next += 1
            return self._function(token.text)
        known = [*self._fields, *_FUNCTIONS]
        hint = did_you_mean(token.text, {*known, *_WORDS})
        message = f"there is no {token.shown}{hint or '; texts need quotes'}"
        raise self._error(f"{message}; known are {', '.join(known)}", token)

    def _function(self, name: str) -> Operand:
        self._need("(", f"( after {name}")
        wanted = TokenKind.TEXT if name == "header" else TokenKind.DURATION
        if self._token.kind is not wanted:
            raise self._expected(
                "a header's name in quotes" if name == "header" else "a duration such as 2h"
            )
        argument = self._take().text
        self._need(")", ")")
        if name == "header":
            return Header(argument)
        return Ago(argument, _duration_ms(argument))

    def _fit(self, operand: Operand, other: Operand, token: Token) -> Operand:
        """Convert a value for its comparison; reject one that never fits."""
        if not isinstance(operand, Literal) or operand.constant is None:
            if FieldKind.NUMBER in (operand.kind, other.kind) and isinstance(operand, Ago):
                raise self._error(f"{other} is a number, {operand} is a time", token)
            return operand
        value = operand.constant
        if other.kind is FieldKind.NUMBER and isinstance(value, str | bool):
            raise self._error(f"{other} is a number, but {operand} is not", token)
        if other.kind is FieldKind.TIME and isinstance(value, str):
            if moment_ms(value) is None:
                raise self._error(
                    f"{operand} is not a time such as '2026-11-21T10:00' or ago(2h)", token
                )
            return Moment(value)
        if other.kind is FieldKind.TIME and isinstance(value, bool):
            raise self._error(f"{other} is a time, but {operand} is not", token)
        return operand

    def _take(self) -> Token:
        token = self._token
        self._next += 1
        return token

    def _skip(self, text: str) -> bool:
        if not self._token.is_(text):
            return False
        self._next += 1
        return True

    def _need(self, text: str, expected: str) -> None:
        if not self._skip(text):
            raise self._expected(expected)

    def _expected(self, expected: str, words: tuple[str, ...] = ()) -> ExpressionError:
        token = self._token
        known = words or ("and", "or")
        hint = did_you_mean(token.text, known) if token.kind is TokenKind.NAME else ""
        return self._error(f"expected {expected}, found {token.shown}{hint}", token)

    def _error(self, message: str, token: Token) -> ExpressionError:
        return ExpressionError(message, self._text, token.position)


def _duration_ms(text: str) -> int:
    digits = text.rstrip("mshd")
    return round(Fraction(digits) * DURATION_MS[text[len(digits) :]])
