"""Conditions on dead letters: what ``--where`` may speak of, see ``expressions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import frozen

from window_consumer.model.dead_letter import DeadLetter
from window_consumer.model.expressions import Expression, ExpressionError, Kind, parse
from window_consumer.model.header_values import text
from window_consumer.model.headers import Reason
from window_consumer.model.terms import (
    All,
    AnyOf,
    Comparison,
    Field,
    Literal,
    Not,
    OneOf,
    Operand,
    Term,
)
from window_consumer.model.tokens import did_you_mean, quoted

Value = str | int | float | None

_FIELDS: Mapping[str, tuple[Kind, Callable[[DeadLetter], Value]]] = {
    "id": (Kind.TEXT, lambda letter: letter.id),
    "key": (Kind.TEXT, lambda letter: None if letter.key is None else _as_text(letter.key)),
    "reason": (Kind.TEXT, lambda letter: letter.reason),
    "class": (Kind.TEXT, lambda letter: letter.error_class),
    "message": (Kind.TEXT, lambda letter: letter.error_message),
    "fingerprint": (Kind.TEXT, lambda letter: letter.fingerprint),
    "version": (Kind.TEXT, lambda letter: letter.app_version),
    "host": (Kind.TEXT, lambda letter: letter.host),
    "time": (Kind.TIME, lambda letter: letter.failed_at),
    "group": (Kind.TEXT, lambda letter: letter.group),
    "handler": (Kind.TEXT, lambda letter: letter.handler),
    "topic": (Kind.TEXT, lambda letter: letter.original_topic),
    "partition": (Kind.NUMBER, lambda letter: letter.original_partition),
    "offset": (Kind.NUMBER, lambda letter: letter.original_offset),
    "attempts": (Kind.NUMBER, lambda letter: letter.attempts),
    "redrives": (Kind.NUMBER, lambda letter: letter.redrives),
    "level": (Kind.TEXT, lambda letter: letter.level),
    "written_by": (Kind.TEXT, lambda letter: letter.written_by.value),
}

FIELDS: Mapping[str, Kind] = {name: kind for name, (kind, _) in _FIELDS.items()}
"""What a condition may name beside ``header('x')``; topic, partition, offset: those at first."""

_KNOWN_REASONS = frozenset(map(str, Reason))


def parse_where(condition: str) -> Expression:
    """Read a condition on dead letters; raises ExpressionError, which says where it goes wrong.

    So does a reason that does not exist: no dead letter would ever be chosen.
    """
    where = parse(condition, FIELDS)
    for reason in _reasons(where.term):
        if reason not in _KNOWN_REASONS:
            hint = did_you_mean(reason, _KNOWN_REASONS) or f"; there are {', '.join(Reason)}"
            message = f"{quoted(reason)} is no reason of a dead letter{hint}"
            raise ExpressionError(message, condition, condition.find(reason))
    return where


def _reasons(term: Term) -> Iterator[str]:
    """Yield the texts that the field ``reason`` is compared with as a whole."""
    match term:
        case All(terms) | AnyOf(terms):
            for each in terms:
                yield from _reasons(each)
        case Not(inner):
            yield from _reasons(inner)
        case OneOf(Field("reason"), choices):
            yield from _texts(choices)
        case Comparison(Field("reason"), "==" | "!=", right):
            yield from _texts([right])
        case Comparison(left, "==" | "!=", Field("reason")):
            yield from _texts([left])


def _texts(operands: Iterable[Operand]) -> Iterator[str]:
    for each in operands:
        if isinstance(each, Literal) and isinstance(each.constant, str):
            yield each.constant


@frozen
class DeadLetterLookup:
    """Shows a dead letter to an expression."""

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
        """Return the time that ages count from."""
        return self.wall_ms


def holds(where: Expression | None, letter: DeadLetter, now_ms: int) -> bool:
    """Tell whether a dead letter fulfils a condition; without one all do."""
    return where is None or where.evaluate(DeadLetterLookup(letter, now_ms))


def _as_text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
