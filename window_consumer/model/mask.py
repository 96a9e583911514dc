"""Keeping out of texts what must not be told: how it is found, and what stands for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

MASKED: Final = "***"


class Mask:
    """Replaces every occurrence of a secret in a text by ``***``; call it with the text.

    A secret is also found in the form that ``repr`` and JSON give it. Where secrets overlap in
    a text, all of what they cover together becomes one ``***``. Immutable, for any thread.
    """

    def __init__(self, secrets: Iterable[str]):
        forms = {form for secret in secrets for form in _forms(secret)}
        self._forms = sorted(forms - {""}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        spans = sorted(span for form in self._forms for span in _spans(form, text))
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


def _forms(secret: str) -> tuple[str, ...]:
    quoted = (repr(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    escaped = [form[1:-1] for form in quoted]
    # repr escapes a quote only where the text around it has quotes of the other kind.
    return (secret, secret.strip(), *escaped, escaped[0].replace("'", r"\'"))


def _spans(form: str, text: str) -> Iterable[tuple[int, int]]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)
