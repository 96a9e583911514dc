"""Conditions on dead letters: the fields that ``--where`` accepts (see ``expressions``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from attrs import frozen

from window_consumer.dlq.dead_letter import DeadLetter, WrittenBy
from window_consumer.model import headers as names
from window_consumer.model.conditions.expressions import (
    Expression,
    ExpressionError,
    FieldKind,
    parse,
)
from window_consumer.model.conditions.tokens import did_you_mean, quoted
from window_consumer.model.conditions.tree import (
    All,
    AnyOf,
    Comparison,
    FieldValue,
    Header,
    Literal,
    Not,
    OneOf,
    Operand,
    Term,
    TextTest,
)
from window_consumer.model.conditions.values import TEXT_TESTS
from window_consumer.model.header_values import text
from window_consumer.model.headers import Reason

Value = str | int | float | None

_FIELDS: Mapping[str, tuple[FieldKind, Callable[[DeadLetter], Value]]] = {
    "id": (FieldKind.TEXT, lambda letter: letter.id),
    "key": (FieldKind.TEXT, lambda letter: None if letter.key is None else _as_text(letter.key)),
    "reason": (FieldKind.TEXT, lambda letter: letter.reason),
    "class": (FieldKind.TEXT, lambda letter: letter.error_class),
    "message": (FieldKind.TEXT, lambda letter: letter.error_message),
    "fingerprint": (FieldKind.TEXT, lambda letter: letter.fingerprint),
    "version": (FieldKind.TEXT, lambda letter: letter.app_version),
    "host": (FieldKind.TEXT, lambda letter: letter.host),
    "time": (FieldKind.TIME, lambda letter: letter.failed_at),
    "group": (FieldKind.TEXT, lambda letter: letter.group),
    "handler": (FieldKind.TEXT, lambda letter: letter.handler),
    "topic": (FieldKind.TEXT, lambda letter: letter.original_topic),
    "partition": (FieldKind.NUMBER, lambda letter: letter.original_partition),
    "offset": (FieldKind.NUMBER, lambda letter: letter.original_offset),
    "attempts": (FieldKind.NUMBER, lambda letter: letter.attempts),
    "redrives": (FieldKind.NUMBER, lambda letter: letter.redrives),
    "level": (FieldKind.TEXT, lambda letter: letter.level),
    "written_by": (FieldKind.TEXT, lambda letter: letter.written_by.value),
}

FIELDS: Mapping[str, FieldKind] = {name: kind for name, (kind, _) in _FIELDS.items()}
"""Fields besides ``header('x')``; topic, partition and offset are the original ones."""

_WORDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "reason": ("reason", tuple(map(str, Reason))),
    "written_by": ("writer", tuple(map(str, WrittenBy))),
}
"""Fields with a fixed set of values: what to call such a value, and all of them."""


def parse_where(condition: str) -> Expression:
    """Parse a condition on dead letters.

    Raises ExpressionError with the position of the mistake. An unknown reason, whole or in part, is
    an error too: it could never match.
    """
    where = parse(condition, FIELDS)
    for field, word, is_known in _compared(where.term):
        kind, known = _WORDS[field]
        if not any(map(is_known, known)):
            near = did_you_mean(word, known) or did_you_mean(word.upper(), known)
            message = (
                f"{quoted(word)} is not a {kind} of dead letters; known are {', '.join(known)}"
            )
            raise ExpressionError(message + near, condition, max(0, condition.find(word)))
    return where


Compared = tuple[str, str, Callable[[str], bool]]
"""A field of ``_WORDS``, the text that it is compared with, and a test for matching values."""


def _compared(term: Term) -> Iterator[Compared]:
    """Yield the comparisons with fields that have a fixed set of values."""
    match term:
        case All(terms) | AnyOf(terms):
            for each in terms:
                yield from _compared(each)
        case Not(inner):
            yield from _compared(inner)
        case OneOf(operand, choices):
            yield from _whole(operand, choices)
        case Comparison(left, "==" | "!=", right):
            yield from _whole(left, [right])
            yield from _whole(right, [left])
        case TextTest(operand, word, pattern) if (field := _field(operand)) is not None:
            yield field, pattern, partial(_holds, TEXT_TESTS[word], pattern)


def _field(operand: Operand) -> str | None:
    match operand:
        case FieldValue(name) if name in _WORDS:
            return name
        case Header(names.REASON):
            return "reason"
        case _:
            return None


def _whole(operand: Operand, others: Iterable[Operand]) -> Iterator[Compared]:
    """Yield the texts that such a field is compared with as a whole."""
    field = _field(operand)
    if field is None:
        return
    for each in others:
        if isinstance(each, Literal) and isinstance(each.constant, str):
            yield field, each.constant, partial(str.__eq__, each.constant)


def _holds(test: Callable[[str, str], bool], pattern: str, word: str) -> bool:
    return test(word, pattern)


@frozen
class DeadLetterLookup:
    """Provides the fields of a dead letter to an expression."""

    letter: DeadLetter
    wall_ms: int
    """Milliseconds since 1970, for ``ago(...)``."""

    def field(self, name: str) -> Value:
        """Return the value of a field."""
        return _FIELDS[name][1](self.letter)

    def header(self, name: str) -> str | None:
        """Return the last value of a header as text."""
        for key, value in reversed(self.letter.headers):
            if key == name:
                return text(value)
        return None

    def now_ms(self) -> int:
        """Return the time from which ages count back."""
        return self.wall_ms


def holds(where: Expression | None, letter: DeadLetter, now_ms: int) -> bool:
    """Return whether a dead letter fulfils a condition; None matches all."""
    return where is None or where.evaluate(DeadLetterLookup(letter, now_ms))


def _as_text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
