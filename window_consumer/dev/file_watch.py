"""Watches the files that make ``dev`` reload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from window_consumer.model.errors import UsageError

if TYPE_CHECKING:
    from watchfiles import Change

_TURN_MS: Final = 200
"""How often the caller gets a turn while nothing changes."""

ENDINGS: Final = (
    *(".py", ".pyx", ".pyd", ".yaml", ".yml", ".toml", ".env", ".sql"),
    *(".html", ".j2", ".jinja", ".jinja2", ".tmpl", ".avsc", ".proto"),
)
"""Code, settings, templates and schemas; handlers' output has other endings."""

_OTHERS: Final = ("site-packages", "build", "dist")
"""Folders with installed or built code, besides those that watchfiles ignores (.venv ...)."""


def changes(places: Sequence[Path], config: Path) -> Iterator[frozenset[Path]]:
    """Return the changing files: those with ENDINGS in folders, and single files.

    ``places`` are folders and files. Changes in quick succession come together. Without changes,
    the iterator yields an empty set five times a second; from its first turn on it misses nothing.
    Raises UsageError for a missing place.
    """
    inside = {each.resolve() for each in places if not each.is_file()}
    files = {each.resolve() for each in (*places, config)} - inside
    # Watching a file by its name would end when an editor replaces it.
    around = {file.parent for file in files if not any(map(file.is_relative_to, inside))}
    for each in inside | around:
        if not each.is_dir():
            raise UsageError(f"{each} does not exist: there is nothing to watch")
    return _changes(inside, files, inside | around)


def _changes(inside: set[Path], files: set[Path], watched: set[Path]) -> Iterator[frozenset[Path]]:
    from watchfiles import DefaultFilter, watch  # noqa: PLC0415 - an optional extra

    is_not_ignored = DefaultFilter()
    is_not_ignored.ignore_dirs = (*is_not_ignored.ignore_dirs, *_OTHERS)

    def is_wanted(change: Change, path: str) -> bool:
        file = Path(path)
        if file in files:
            return True
        is_kind = path.endswith(ENDINGS) and is_not_ignored(change, path)
        return is_kind and any(map(file.is_relative_to, inside))

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
