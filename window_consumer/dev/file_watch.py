"""Which files make ``dev`` reload, and when they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from window_consumer.model.errors import UsageError

if TYPE_CHECKING:
    from watchfiles import Change

_TURN_MS: Final = 200
"""How often the caller gets a turn while nothing changes."""

_OTHERS: Final = ("site-packages", "build", "dist")
"""Folders with installed or built code, beside those that watchfiles ignores (.venv ...)."""


def changes(folders: Sequence[Path], config: Path) -> Iterator[frozenset[Path]]:
    """Return the files that change: Python files in the folders, and the configuration.

    Changes that follow each other closely come together. While there are none, the iterator yields
    an empty set five times a second; it misses nothing from its first turn on. Raises UsageError
    for a folder that is missing.
    """
    inside = {each.resolve() for each in folders}
    config = config.resolve()
    # Watching a file by its name would end when an editor replaces it.
    holds_config = any(config.is_relative_to(each) for each in inside)
    watched = inside if holds_config else {*inside, config.parent}
    for each in watched:
        if not each.is_dir():
            raise UsageError(f"{each} is not a directory: there is nothing to watch")
    return _changes(inside, config, watched)


def _changes(inside: set[Path], config: Path, watched: set[Path]) -> Iterator[frozenset[Path]]:
    from watchfiles import PythonFilter, watch  # noqa: PLC0415 - an optional extra

    is_python = PythonFilter()
    is_python.ignore_dirs = (*is_python.ignore_dirs, *_OTHERS)

    def is_wanted(change: Change, path: str) -> bool:
        file = Path(path)
        if file == config:
            return True
        return bool(is_python(change, path)) and any(map(file.is_relative_to, inside))

    found = watch(
        *watched,
        watch_filter=is_wanted,
        rust_timeout=_TURN_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        ignore_permission_denied=True,
    )
    for changed in found:
        yield frozenset(Path(path) for _, path in changed)
