"""What a field of the configuration's classes tells about its key, as attrs metadata."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from attrs import frozen

from window_consumer.config.kinds import ValueKind

InDecorators = Literal["key", "lifted", "never"]
"""Whether decorators take a key by its name: where it is a worker's; though it is one of a section
of the worker; not at all."""


@frozen
class Option:
    """What is known about a key beside its type and default."""

    meaning: str
    reason: str = ""
    """Why the default is what it is."""
    kind: ValueKind | None = None
    """None where the value is a section with keys of its own."""
    default: str | None = None
    """The default in words, where the value does not say it."""
    decorators: InDecorators = "key"


def about(
    meaning: str,
    *,
    kind: ValueKind | None = None,
    reason: str = "",
    default: str | None = None,
    decorators: InDecorators = "key",
) -> dict[str, Option]:
    """Make the metadata of a field that is a key of the file."""
    return {"option": Option(meaning, reason, kind, default, decorators)}


def options(section: type) -> dict[str, tuple[attrs.Attribute[Any], Option]]:
    """Return the keys of a section with their fields, in the order of the class."""
    return {
        attribute.name: (attribute, attribute.metadata["option"])
        for attribute in attrs.fields(attrs.resolve_types(section))
        if "option" in attribute.metadata
    }
