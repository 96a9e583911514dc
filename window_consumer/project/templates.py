"""The template files of projects: package data with ``{{placeholders}}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

_SUFFIX: Final = ".template"
"""Keeps Python tools from treating the files as parts of this package."""


def filled(folder: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each file of a folder by its path, sorted, with values filled in."""
    found = dict(_templates(resources.files(__package__) / folder))
    return {path: _filled(found[path], values) for path in sorted(found)}


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry.read_text("utf-8")
