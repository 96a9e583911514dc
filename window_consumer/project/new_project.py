"""Creates a project from the files of ``files/``, which have all of its contents."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from window_consumer.model.errors import UsageError
from window_consumer.project.templates import filled

_MOST_NAMED: Final = 5
_LONGEST_NAME: Final = 100
"""Topics for copies begin with the name, and Kafka's topics have at most 249 characters."""


def project_name(directory: Path) -> str:
    """Return a directory's name in the form for groups and packages: lower case and hyphens.

    Raises UsageError if nothing is left of it, or it is too long.
    """
    base = directory.resolve().name
    name = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")
    if not name or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"the project would be named after its directory, {base!r}: choose one whose name has"
            f" letters or digits, and at most {_LONGEST_NAME} characters"
        )
    return name


SCHEMA: Final = "workers.schema.json"
"""The file that the first line of workers.yaml names."""


def create_project(directory: Path, schema: Mapping[str, Any]) -> list[str]:
    """Write the files of a new project; return their paths in it, sorted.

    ``schema`` is the JSON Schema of its configuration, for completion in editors.
    Raises UsageError, before anything is written, if the directory is not empty, is not a directory
    or has no usable name.
    """
    name = project_name(directory)
    _refuse_used(directory)
    texts = {**filled("files", {"name": name}), SCHEMA: json.dumps(schema, indent=2) + "\n"}
    for path, text in texts.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return sorted(texts)


def _refuse_used(directory: Path) -> None:
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory; nothing was written")
    found = sorted(each.name for each in directory.iterdir())
    if found:
        more = len(found) - _MOST_NAMED
        named = ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise UsageError(f"{directory} is not empty, it has {named}; nothing was written")
