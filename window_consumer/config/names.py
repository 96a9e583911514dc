"""Rules for names of topics, groups, workers and exceptions, for patterns and for templates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Final

MAX_LENGTH: Final = 249
"""Kafka's limit for a topic's name, because directories are named after it."""

LEGAL: Final = r"^[a-zA-Z0-9._-]{1,249}$"
WORKER: Final = r"^[A-Za-z0-9_-]+$"
DOTTED: Final = r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$"

_PATTERN_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def wrong_name(name: str) -> str | None:
    """Return the problem with the name of a topic or group, or None."""
    if not name:
        return "is empty"
    if name in {".", ".."}:
        return "names a directory"
    if len(name) > MAX_LENGTH:
        return f"has {len(name)} characters, Kafka allows {MAX_LENGTH}"
    found = re.search(r"[^a-zA-Z0-9._-]", name)
    if found is None:
        return None
    if name.startswith("^"):
        return "is a pattern; write it under patterns:"
    return f"contains {found[0]!r}"


def is_worker_name(name: str) -> bool:
    """Return whether a worker may have this name, which becomes part of its threads' names."""
    return re.fullmatch(WORKER, name) is not None


def wrong_pattern(pattern: str) -> str | None:
    """Return the problem with a topic pattern, or None."""
    why = "an unanchored pattern matches ladder topics by accident"
    if not pattern.startswith("^"):
        return f"does not begin with ^, and {why}"
    if not all(branch.startswith("^") for branch in _branches(pattern)):
        return f"has a branch that does not begin with ^, and {why}; write ^(...|...)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns about patterns whose meaning may change
            re.compile(pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return f"does not compile: {error}"
    return None


def wrong_exception(name: str) -> str | None:
    """Return the problem with the dotted name of a class, or None."""
    return None if re.fullmatch(DOTTED, name) else "has a part that is not a Python name"


def wrong_template(template: str, *more: str) -> str | None:
    """Return the problem with a template for ladder topics, or None.

    Beside ``{group}`` and ``{topic}``, it must contain the placeholders in ``more``.
    """
    if not template.startswith("{group}."):
        return "does not begin with {group}., which keeps it apart from the topics of others"
    rest = template.replace("{group}", "")
    if "{topic}" not in rest:
        return "does not contain {topic}: all topics of a group would share one"
    rest = rest.replace("{topic}", "")
    for placeholder in more:
        if placeholder not in rest:
            return f"does not contain {placeholder}: all levels of a topic would share one"
        rest = rest.replace(placeholder, "")
    if "{" in rest or "}" in rest:
        return f"has a placeholder other than {' and '.join(('{group}', '{topic}', *more))}"
    found = re.search(r"[^a-zA-Z0-9._-]", rest)
    return found and f"contains {found[0]!r}, which no topic name may"


def _branches(pattern: str) -> Iterator[str]:
    depth = 0
    branch = ""
    for piece in _PATTERN_PIECE.findall(pattern):
        if piece == "|" and depth == 0:
            yield branch
            branch = ""
            continue
        depth += (piece == "(") - (piece == ")")
        branch += piece
    yield branch
