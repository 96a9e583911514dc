"""Masks confidential data in displayed records, by the names of fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, Literal

from window_consumer.model.headers import PREFIX, TAGS
from window_consumer.model.redaction import MASKED, Mask

Part = Literal["key", "value", "headers"]
"""A part of a record that can be hidden as a whole."""

_SHORTEST = 4
"""Hidden texts shorter than this are hidden elsewhere only as whole words or numbers: anywhere else
they would match everything."""

MOST_HIDDEN: Final = 1000
"""The most hidden texts of a record that are searched elsewhere. If there are more, no text that
may quote them is shown: searching for 29,000 took a second for each view of the record."""

_SHORT_TEXT: Final = 64
"""Hidden texts up to this length are not prose: their single words are hidden in errors, too."""

_MOST_SEARCHED: Final = 64 * 2**20
"""The limit for characters of an error times bytes of hidden data: some milliseconds of
searching."""

_WORD: Final = re.compile(rf"\w{{{_SHORTEST},}}")
_NUMBER: Final = re.compile(rf"(?<![^\W_])\d{{1,{_SHORTEST - 1}}}(?![^\W_])")
_LINE: Final = r"(?<!\", line )"
"""A line number in a stack is not part of the record."""

_DIGIT: Final = re.compile(r"\d")

_LONGEST_NAME: Final = 500
"""A field with a longer name is hidden: no rule covers it, and matching is expensive."""


class FieldMask:
    """Hides fields and headers by name, and their values wherever else they appear.

    Names are case-insensitive; ``*`` matches any text. A name with a dot also matches nested
    fields: ``customer.name`` is ``name`` in any ``customer``. Create one for each record: it
    collects the hidden texts, at a bounded cost. Owner: its creator.
    """

    def __init__(self, names: Iterable[str], whole: Collection[Part] = ()):
        self._names, self._depth = _pattern_of(tuple(names))
        self._whole = frozenset(whole)
        self._known: dict[str, bool] = {}
        """Whether field names are hidden, cached for names that do not depend on their parents."""
        self._hidden: set[str] = set()
        self._short: set[str] = set()
        """Hidden texts of fewer than _SHORTEST characters."""
        self._closed: list[bytes] = []
        """Parts whose content must not be shown, and in which no fields can be found."""
        self._mask: Mask | None = None
        self._shorts = _NOTHING
        """Finds the short ones; created with the mask."""
        self.is_full = False
        """Whether too much is hidden to search for: then no text that may quote it is shown."""

    @property
    def hides_fields(self) -> bool:
        """Whether any name is hidden."""
        return self._names is not None

    @property
    def hides_a_part(self) -> bool:
        """Whether any part of the record is hidden as a whole."""
        return bool(self._whole)

    def hides(self, part: Part) -> bool:
        """Return whether a part of the record is hidden as a whole."""
        return part in self._whole

    def header(self, name: str, text: str | None) -> str | None:
        """Return the displayable content of a header."""
        if text is None:
            return None
        if self._hides_any(name):
            self.hide(text)
            return MASKED
        is_ours = name.startswith(PREFIX) and name != TAGS  # these describe the failure
        return MASKED if self.hides("headers") and not is_ours else text

    def json(self, value: Any, above: tuple[str, ...] = ()) -> Any:
        """Return a parsed JSON value with its fields hidden at any depth."""
        if isinstance(value, dict):
            return {name: self._field(name, inner, above) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, above) for inner in value]
        return value

    def _field(self, name: str, value: Any, above: tuple[str, ...]) -> Any:
        if value is not None and self._hides_any(name, above):
            self.hide(value)
            return MASKED
        return self.json(value, (*above, name)[1 - self._depth :] if self._depth > 1 else ())

    def _hides_any(self, name: str, above: tuple[str, ...] = ()) -> bool:
        """Return whether a name, or one of its dotted forms, is hidden."""
        if self._names is None:
            return False
        if above:
            return self._hides_path((*above, name))
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= MOST_HIDDEN:
                self._known.clear()
            known = self._known[name] = self._hides_path((name,))
        return known

    def _hides_path(self, path: tuple[str, ...]) -> bool:
        assert self._names is not None
        for first in range(len(path)):
            dotted = ".".join(path[first:]).casefold()
            if len(dotted) > _LONGEST_NAME or self._names.match(dotted) is not None:
                return True
        return False

    def hide(self, value: Any) -> None:
        """Hide every part of a parsed JSON value wherever else it appears."""
        if self.is_full:
            return
        if isinstance(value, dict):
            for inner in value.values():
                self.hide(inner)
        elif isinstance(value, list):
            for inner in value:
                self.hide(inner)
        elif not isinstance(value, bool | None) and (text := str(value)):
            (self._hidden if len(text) >= _SHORTEST else self._short).add(text)
            self._mask = None
            self.is_full = len(self._hidden) + len(self._short) > MOST_HIDDEN

    def close(self, data: bytes | None) -> None:
        """Hide every word of a part without recognisable fields in error texts."""
        if data:
            self._closed.append(data)

    def text(self, text: str) -> str:
        """Return a text without the texts hidden so far, which exceptions often quote."""
        if self.is_full:
            return MASKED if text else text
        if not (self._hidden or self._short):
            return text
        if self._mask is None:
            self._mask = Mask(self._hidden)
            self._shorts = _whole_words(self._short)
        return self._shorts.sub(MASKED, self._mask(text))

    def error_text(self, text: str) -> str:
        """Return an exception's text without the texts hidden so far, and without their words."""
        masked = self.text(text)
        if not (self._hidden or self._closed) or self.is_full:
            return masked
        if (
            len(masked) * (sum(map(len, self._closed)) + sum(map(len, self._hidden)))
            > _MOST_SEARCHED
        ):
            return MASKED
        short = "\n".join(each for each in self._hidden if len(each) <= _SHORT_TEXT)
        long = "\n".join(each for each in self._hidden if len(each) > _SHORT_TEXT)

        def masked_word(found: re.Match[str]) -> str:
            word = found[0]
            is_hidden = word in short or (_DIGIT.search(word) and word in long)
            return MASKED if is_hidden or self._is_closed(word) else word

        def masked_number(found: re.Match[str]) -> str:
            return MASKED if self._is_closed(found[0], whole=True) else found[0]

        return _NUMBER.sub(masked_number, _WORD.sub(masked_word, masked))

    def _is_closed(self, word: str, *, whole: bool = False) -> bool:
        data = word.encode("utf-8", "replace")
        if whole:
            number = re.compile(rb"(?<!\d)%s(?!\d)" % data)
            return any(number.search(each) for each in self._closed)
        return any(data in each for each in self._closed)


_NOTHING: Final = re.compile(r"(?!)")


def _whole_words(texts: Collection[str]) -> re.Pattern[str]:
    """Return a pattern that finds texts as whole words or numbers."""
    if not texts:
        return _NOTHING
    words = []
    for text in sorted(texts):
        inside = r"\d" if text.isdecimal() else r"[^\W_]"
        words.append(rf"(?<!{inside}){_LINE}{re.escape(text)}(?!{inside})")
    return re.compile("|".join(words))


@lru_cache(maxsize=64)
def _pattern_of(names: tuple[str, ...]) -> tuple[re.Pattern[str] | None, int]:
    """Return a pattern for these names, and how many trailing names of a path it needs."""
    folded = [name.casefold() for name in names]
    patterns = [translate(re.sub(r"([?\[])", r"[\1]", name)) for name in folded]
    depth = 1 + max((name.count(".") for name in folded), default=0)
    return re.compile("|".join(patterns)) if patterns else None, depth
