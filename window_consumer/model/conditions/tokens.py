"""The tokens of an expression, see ``expressions``, with their positions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from attrs import frozen

MAX_CHARACTERS: Final = 4000
"""The longest expression: more than anybody writes by hand, and quick to parse."""

MAX_DIGITS: Final = 30
"""The longest number: beyond any time or count, and quick to convert."""

DURATION_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_SYMBOLS: Final = ("==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ",", "~")
# Each alternative repeats one class of characters: none of them can backtrack.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_UNIT: Final = re.compile(r"[A-Za-z0-9_.]+")
_MEANT: Final = {"=": "==", "!": "not", "&": "and", "|": "or"}
_QUOTES: Final = "'\""
_SHOWN: Final = 80


class ExpressionError(ValueError):
    """A text that is not a valid expression; the message has the place and the expected token.

    ``position`` counts characters from 0.
    """

    def __init__(self, message: str, text: str, position: int):
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        super().__init__(f"{message} (character {position + 1} of {shown!r})")
        self.position = position


class TokenKind(Enum):
    """The kind of a token."""

    NAME = "a name"
    TEXT = "a text"
    NUMBER = "a number"
    DURATION = "a duration"
    SYMBOL = "a symbol"
    END = "the end"


@frozen
class Token:
    """One token of an expression."""

    kind: TokenKind
    text: str
    """The text for comparisons; for a quoted text its content."""
    position: int

    def is_(self, *texts: str) -> bool:
        """Return whether it is one of these symbols or words; a quoted text never is."""
        return self.kind in {TokenKind.SYMBOL, TokenKind.NAME} and self.text in texts

    @property
    def shown(self) -> str:
        """The token in a message."""
        if self.kind is TokenKind.END:
            return "the end"
        return repr(self.text) if len(self.text) <= _SHOWN else repr(self.text[:_SHOWN] + "…")


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression and a final END. Raise ExpressionError."""
    if len(text) > MAX_CHARACTERS:
        message = f"{len(text)} characters are too many, an expression has at most {MAX_CHARACTERS}"
        raise ExpressionError(message, text, MAX_CHARACTERS)
    position = 0
    while position < len(text):
        if text[position] in " \t\r\n":
            position += 1
            continue
        token, position = _token(text, position)
        yield token
    yield Token(TokenKind.END, "", len(text))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` with the closest known word, or ""."""
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def number_of(text: str) -> int | float | None:
    """Return a text as a number; None if it is not one (or has more than 30 digits)."""
    if len(text) > MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)


def quoted(text: str) -> str:
    """Return a text quoted for an expression."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _token(text: str, start: int) -> tuple[Token, int]:
    if text[start] in _QUOTES:
        return _quoted_text(text, start)
    found = _NAME.match(text, start)
    if found:
        return Token(TokenKind.NAME, found[0], start), found.end()
    found = _NUMBER.match(text, start)
    if found:
        return _quantity(text, start, found.end())
    for symbol in _SYMBOLS:
        if text.startswith(symbol, start):
            return Token(TokenKind.SYMBOL, symbol, start), start + len(symbol)
    raise _unknown(text, start)


def _quoted_text(text: str, start: int) -> tuple[Token, int]:
    quote, position = text[start], start + 1
    parts: list[str] = []
    while position < len(text):
        character = text[position]
        if character == quote:
            return Token(TokenKind.TEXT, "".join(parts), start), position + 1
        if character == "\\":
            position += 1
            character = text[position : position + 1]
            if character and character not in "\\'\"":
                message = f"\\{character} is not an escape; those are \\\\, \\' and \\\""
                raise ExpressionError(message, text, position - 1)
        parts.append(character)
        position += 1
    raise ExpressionError(f"the text that begins here has no closing {quote}", text, start)


def _quantity(text: str, start: int, end: int) -> tuple[Token, int]:
    if end - start > MAX_DIGITS:
        message = f"a number of {end - start} characters is too long; the limit is {MAX_DIGITS}"
        raise ExpressionError(message, text, start)
    unit = _UNIT.match(text, end)
    if unit is None:
        return Token(TokenKind.NUMBER, text[start:end], start), end
    if unit[0] not in DURATION_MS or text[start] == "-":
        message = (
            f"{text[start : unit.end()][:_SHOWN]!r} is neither a number nor a duration such as 2h;"
            f" units are {', '.join(DURATION_MS)}"
        )
        raise ExpressionError(message, text, start)
    return Token(TokenKind.DURATION, text[start : unit.end()], start), unit.end()


def _unknown(text: str, start: int) -> ExpressionError:
    character = text[start]
    meant = _MEANT.get(character)
    hint = f"; did you mean {meant}?" if meant else "; texts need quotes"
    return ExpressionError(f"{character!r} is not valid here{hint}", text, start)
