"""What texts must not have when people read them: secrets, and what commands a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

MASKED: Final = "***"

_MANY: Final = 256
"""So many searches of 0.1 us each take longer than a walk along a text of some hundred letters."""

_BEGINNING: Final = 4


class Mask:
    """Replaces every occurrence of a secret in a text by ``***``; call it with the text.

    A secret is also found in the form that ``repr`` and JSON give it. Where secrets overlap in
    a text, all of what they cover together becomes one ``***``. Immutable, for any thread.

    Cost: a search of the text for each secret; where there are hundreds, one walk along the text.
    """

    def __init__(self, secrets: Iterable[str]):
        forms = {form for secret in secrets for form in _forms(secret)}
        self._forms = sorted(forms - {""}, key=len, reverse=True)
        self._by_beginning: dict[str, dict[int, set[str]]] = {}
        """Forms by their first letters and by length; those that are as short stand apart."""
        self._short: list[str] = []
        if len(self._forms) >= _MANY:
            self._short = [form for form in self._forms if len(form) < _BEGINNING]
            for form in self._forms:
                if len(form) >= _BEGINNING:
                    by_length = self._by_beginning.setdefault(form[:_BEGINNING], {})
                    by_length.setdefault(len(form), set()).add(form)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        spans = sorted(self._found(text))
        pieces = []
        begin = end = 0  # of the masked run that is being gathered
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
        """Yield where a secret begins and ends in the text."""
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
    # repr escapes a quote only where the text around it has quotes of the other kind.
    return (secret, secret.strip(), *escaped, escaped[0].replace("'", r"\'"))


def _spans(form: str, text: str) -> Iterable[tuple[int, int]]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def printable(text: str) -> str:
    """Keep text of several lines from commanding the terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)


def printable_line(text: str) -> str:
    """Keep it on one line, too."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
