"""Hiding what is confidential in a record that somebody looks at, by the names of its fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import translate
from typing import Any, Final, Literal

from window_consumer.model.headers import PREFIX, TAGS
from window_consumer.model.mask import MASKED, Mask

Part = Literal["key", "value", "headers"]
"""A part of a record that can be hidden as a whole."""

_SHORTEST = 4
"""A hidden text that is shorter is not looked for elsewhere: it would be found everywhere."""

_LONGEST_NAME: Final = 500
"""A field with a longer name is hidden: nobody has said anything about it, and matching costs."""


class FieldMask:
    """Hides fields and headers of some names, and what stood in them wherever else it is told.

    Names are compared without regard to capital letters; ``*`` stands for any text. A name with a
    dot is also that of a field below others: ``customer.name`` is ``name`` in any ``customer``.
    One is made for one record: it remembers what it has hidden.
    """

    def __init__(self, names: Iterable[str], whole: Collection[Part] = ()):
        folded = [name.casefold() for name in names]
        patterns = [translate(re.sub(r"([?\[])", r"[\1]", name)) for name in folded]
        self._names = re.compile("|".join(patterns)) if patterns else None
        self._depth = 1 + max((name.count(".") for name in folded), default=0)
        self._whole = frozenset(whole)
        self._hidden: set[str] = set()

    @property
    def hides_fields(self) -> bool:
        """Whether there is any name to hide."""
        return self._names is not None

    def hides(self, part: Part) -> bool:
        """Tell whether a part of the record is hidden as a whole."""
        return part in self._whole

    def header(self, name: str, text: str | None) -> str | None:
        """Return what may be shown of a header."""
        if text is None:
            return None
        if self._hides_any(name):
            self._hide(text)
            return MASKED
        is_ours = name.startswith(PREFIX) and name != TAGS  # they say where it failed, and how
        return MASKED if self.hides("headers") and not is_ours else text

    def json(self, value: Any, above: tuple[str, ...] = ()) -> Any:
        """Return a value that was read from JSON, its fields hidden at any depth."""
        if isinstance(value, dict):
            return {name: self._field(name, inner, above) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, above) for inner in value]
        return value

    def _field(self, name: str, value: Any, above: tuple[str, ...]) -> Any:
        if value is not None and self._hides_any(name, above):
            self._hide(value)
            return MASKED
        return self.json(value, (*above, name)[1 - self._depth :] if self._depth > 1 else ())

    def _hides_any(self, name: str, above: tuple[str, ...] = ()) -> bool:
        """Tell whether a name, or one of its dotted forms, is to be hidden."""
        if self._names is None:
            return False
        path = (*above, name)
        for first in range(len(path)):
            dotted = ".".join(path[first:]).casefold()
            if len(dotted) > _LONGEST_NAME or self._names.match(dotted) is not None:
                return True
        return False

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
