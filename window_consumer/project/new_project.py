"""Creates a project from the files of ``files/``: what they say stands there, not here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from window_consumer.model.errors import UsageError

_SUFFIX: Final = ".template"
"""Keeps tools for Python from taking the files for parts of this package."""

_NAME: Final = "{{name}}"

_MOST_NAMED: Final = 5
_LONGEST_NAME: Final = 100
"""Topics for copies begin with the name, and Kafka's topics have at most 249 characters."""


def project_name(directory: Path) -> str:
    """Return a directory's name as groups and packages may have it: lower case and hyphens.

    Raises UsageError if nothing of it is left, or it is too long.
    """
    base = directory.resolve().name
    name = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")
    if not name or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"the project would be named after its directory, {base!r}: choose one whose name has"
            f" letters or digits, and at most {_LONGEST_NAME} characters"
        )
    return name


def create_project(directory: Path) -> list[str]:
    """Write the files of a new project; return their paths in it, sorted.

    Raises UsageError, before anything is written, if the directory is not empty, is no directory
    or has no usable name.
    """
    name = project_name(directory)
    _refuse_used(directory)
    texts = project_files(name)
    for path, text in texts.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return list(texts)


def project_files(name: str) -> Mapping[str, str]:
    """Return the text of each file of a project by its path, sorted."""
    found = dict(_templates(resources.files(__package__) / "files"))
    return {path: found[path].replace(_NAME, name) for path in sorted(found)}


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry.read_text("utf-8")


def _refuse_used(directory: Path) -> None:
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory; nothing was written")
    found = sorted(each.name for each in directory.iterdir())
    if found:
        more = len(found) - _MOST_NAMED
        named = ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise UsageError(f"{directory} is not empty, it has {named}; nothing was written")
