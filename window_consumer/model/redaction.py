"""Removes secrets and terminal escapes from displayed texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

MASKED: Final = "***"

_MANY: Final = 256
"""From this many searches (0.1 us each), one pass over a text of a few hundred letters is faster.
"""

_BEGINNING: Final = 4


class Mask:
    """Replaces every occurrence of a secret in a text by ``***``; call it with the text.

    It also finds a secret in the form that ``repr`` or JSON gives it. If secrets overlap in a text,
    everything they cover together becomes one ``***``. Immutable, for any thread.

    Cost: a search of the text for each secret; with hundreds of them, one pass over the text.
    """

    def __init__(self, secrets: Iterable[str]):
        forms = {form for secret in secrets for form in _forms(secret)}
        self._forms = sorted(forms - {""}, key=len, reverse=True)
        self._by_beginning: dict[str, dict[int, set[str]]] = {}
        """Forms by their first letters and length; forms shorter than these letters are in
        ``_short``."""
        self._short: list[str] = []
        if len(self._forms) >= _MANY:
            self._short = [form for form in self._forms if len(form) < _BEGINNING]
            for form in self._forms:
                if len(form) >= _BEGINNING:
                    by_length = self._by_beginning.setdefault(form[:_BEGINNING], {})
                    by_length.setdefault(len(form), set()).add(form)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if not self._forms:
            return text
        spans = sorted(self._found(text))
        pieces = []
        begin = end = 0  # of the masked run in progress
        for start, stop in spans:
            if start >= end:
                if end > begin:
                    pieces.append(MASKED)
                pieces.append(text[end:start])
                begin = start
            end = max(end, stop)
        if end > begin:
            pieces.append(MASKED)
        return "".join((*pieces, text[end:]))

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each secret in the text."""
        forms = self._short if self._by_beginning else self._forms
        for form in forms:
            yield from _spans(form, text)
        if not self._by_beginning:
            return
        begins = self._by_beginning.get
        for at in range(len(text) - _BEGINNING + 1):
            by_length = begins(text[at : at + _BEGINNING])
            for length, known in by_length.items() if by_length else ():
                if text[at : at + length] in known:
                    yield at, at + length


def _forms(secret: str) -> tuple[str, ...]:
    if secret.isascii() and secret.isalnum():
        return (secret,)
    quoted = (repr(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    escaped = [form[1:-1] for form in quoted]
    # repr escapes a quote only if the text around it has quotes of the other kind.
    return (secret, secret.strip(), *escaped, escaped[0].replace("'", r"\'"))


def _spans(form: str, text: str) -> Iterable[tuple[int, int]]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def printable(text: str) -> str:
    """Escape control characters in a text of several lines."""
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)


def printable_line(text: str) -> str:
    """Escape control characters, including line breaks."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
