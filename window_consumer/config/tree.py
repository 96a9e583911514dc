"""Raw configuration values with their origins; one layer merges over another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

Path = tuple[str | int, ...]
"""The keys (and list positions) that lead to a value; () is the whole."""


@frozen
class ValueOrigin:
    """Where a value came from."""

    where: str
    """``workers.yaml:14``, ``@app.handler charge`` or ``--set workers.charge.concurrency``."""
    line: int | None = None
    """The line in the file; None for values from elsewhere."""
    text: str | None = None
    """A scalar as written, if YAML reads it as something other than text."""

    @property
    def sort_key(self) -> tuple[bool, int]:
        """Sorts lines of the file first, in their order."""
        return self.line is None, self.line or 0


@frozen
class Tree:
    """Nested dicts and lists of scalars, with the origin of each by its path.

    A complete tree has an origin for (); a tree that only overlays others need not.
    """

    value: Any
    origins: Mapping[Path, ValueOrigin]

    def origin(self, path: Path) -> ValueOrigin:
        """Return the origin of the value at a path, or of its nearest existing parent."""
        for length in range(len(path), 0, -1):
            found = self.origins.get(path[:length])
            if found is not None:
                return found
        return self.origins[()]

    def get(self, path: Path) -> Any:
        """Return the value at a path of mapping keys, or None."""
        value = self.value
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def without(self, path: Path) -> Tree:
        """Return the tree without the value at a path of mapping keys, if there is one."""
        kept = {at: origin for at, origin in self.origins.items() if at[: len(path)] != path}
        return Tree(_without(self.value, path), kept)

    def over(self, lower: Tree) -> Tree:
        """Lay this tree over another: merge mappings, replace everything else.

        An empty value (None) over a mapping leaves the mapping unchanged.
        """
        origins = dict(lower.origins)
        return Tree(self._over(lower.value, self.value, (), origins), origins)

    def _over(self, lower: Any, upper: Any, path: Path, origins: dict[Path, ValueOrigin]) -> Any:
        if isinstance(lower, dict) and (upper is None or isinstance(upper, dict)):
            self._copy_origin(path, origins)
            joined = dict(lower)
            for key, value in (upper or {}).items():
                joined[key] = self._over(lower.get(key), value, (*path, key), origins)
            return joined
        for stale, _ in walk(lower, path):
            origins.pop(stale, None)
        for new, _ in walk(upper, path):
            self._copy_origin(new, origins)
        return upper

    def _copy_origin(self, path: Path, origins: dict[Path, ValueOrigin]) -> None:
        if path in self.origins:
            origins[path] = self.origins[path]


def tree_of(value: Any, origin: ValueOrigin, path: Path = ()) -> Tree:
    """Return a tree with a plain value at ``path``, all of one origin."""
    origins = {found: origin for found, _ in walk(value, path)}
    for key in reversed(path):
        value = {key: value}
    return Tree(value, origins)


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the value at ``path`` and everything in it, each with its path."""
    yield path, value
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from walk(item, (*path, key))


def _without(value: Any, path: Path) -> Any:
    head, *rest = path
    if not isinstance(value, dict) or head not in value:
        return value
    if not rest:
        return {key: item for key, item in value.items() if key != head}
    return {**value, head: _without(value[head], tuple(rest))}


def dotted(path: Path) -> str:
    """Format a path: ``workers.charge.topics[0]``."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (key if key.isprintable() and key else repr(key))
    return text
