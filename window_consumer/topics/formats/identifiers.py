"""Shared by the formats of a plan: names of operations, and identifiers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterable, Iterator
from hashlib import sha256

_COMMENT_WIDTH = 96

_LABEL_LIMIT = 253
"""Kubernetes' limit for a name."""


def comments(notes: Iterable[str]) -> Iterator[str]:
    """Yield sentences as comment lines."""
    for note in notes:
        yield from (f"# {line}" for line in textwrap.wrap(note, _COMMENT_WIDTH))


def camel_case(operation: str) -> str:
    """Write an operation as tools do: ``DESCRIBE_CONFIGS`` becomes ``DescribeConfigs``."""
    return "".join(part.capitalize() for part in operation.split("_"))


def identifier(name: str, taken: Container[str] = ()) -> str:
    """Return a name for a Terraform resource: letters, digits, ``_`` and ``-``, no digit first."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if not plain[:1].isalpha():
        plain = f"_{plain}"
    return f"{plain}_{_mark(name)}" if plain in taken else plain


def kubernetes_name(name: str) -> str:
    """Return a legal name for a Kubernetes resource; a changed name gets a suffix.

    The suffix keeps names apart that differ only in characters that Kubernetes does not allow.
    """
    parts = [part.strip("-") for part in re.sub(r"[^a-z0-9.]", "-", name.lower()).split(".")]
    plain = ".".join(part for part in parts if part)
    if plain == name and len(plain) <= _LABEL_LIMIT:
        return plain
    mark = _mark(name)
    kept = plain[: _LABEL_LIMIT - len(mark) - 1].rstrip(".-")
    return f"{kept}-{mark}" if kept else f"t-{mark}"


def _mark(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:8]
