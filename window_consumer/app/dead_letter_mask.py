"""Hiding what is confidential in a dead letter, by the names of fields and headers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Any

from window_consumer.config import Mask
from window_consumer.config.mask import MASKED

_SHORTEST = 4
"""A hidden text that is shorter is not looked for elsewhere: it would be found everywhere."""


class FieldMask:
    """Hides fields and headers of some names, and what stood in them wherever else it is told.

    Names are compared without regard to capital letters; ``*`` stands for any text.
    """

    def __init__(self, names: Iterable[str]):
        patterns = [translate(re.sub(r"([?\[])", r"[\1]", name.casefold())) for name in names]
        self._names = re.compile("|".join(patterns)) if patterns else None
        self._hidden: set[str] = set()

    @property
    def hides(self) -> bool:
        """Whether there is any name to hide."""
        return self._names is not None

    def hides_name(self, name: str) -> bool:
        """Tell whether what has this name is hidden."""
        return self._names is not None and self._names.match(name.casefold()) is not None

    def field(self, name: str, value: Any) -> Any:
        """Return what may be shown of a field or header."""
        if value is not None and self.hides_name(name):
            self._hide(value)
            return MASKED
        return self.json(value)

    def json(self, value: Any) -> Any:
        """Return a value that was read from JSON, its fields hidden at any depth."""
        if isinstance(value, dict):
            return {name: self.field(name, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner) for inner in value]
        return value

    def _hide(self, value: Any) -> None:
        if isinstance(value, dict):
            for inner in value.values():
                self._hide(inner)
        elif isinstance(value, list):
            for inner in value:
                self._hide(inner)
        elif not isinstance(value, bool | None) and len(str(value)) >= _SHORTEST:
            self._hidden.add(str(value))

    def text(self, text: str) -> str:
        """Return a text without what was hidden so far: exceptions like to quote it."""
        return Mask(self._hidden)(text)
