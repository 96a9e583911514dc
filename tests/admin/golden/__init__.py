"""Answers of workers, and the commands' output for them: promises to programs that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def text_of(name: str) -> str:
    """Return a file beside this one."""
    return (Path(__file__).parent / name).read_text()


def json_of(name: str) -> Any:
    """Return the content of a file beside this one."""
    return json.loads(text_of(name))


def fields_of(answer: Any, path: str = "") -> dict[str, str]:
    """Return the path of each field of an answer, with the kind of its value if that is known.

    All members of a list count as one. An empty list, an empty object and null are of no kind.
    """
    members = list(answer.items()) if isinstance(answer, dict) else []
    if isinstance(answer, list):
        members = [("[]", each) for each in answer]
    if not members:
        kinds = {bool: "flag", int: "number", float: "number", str: "text"}
        return {path: kinds.get(type(answer), "")}
    found: dict[str, str] = {}
    for name, each in members:
        for field, kind in fields_of(each, f"{path}.{name}").items():
            found[field] = found.get(field) or kind
    return found


def metrics_of(text: str) -> list[str]:
    """Return the name of each metric with those of its labels."""
    samples = (line.partition(" ")[0] for line in text.splitlines() if line[:1] not in {"", "#"})
    found = set()
    for sample in samples:
        name, _, labels = sample.partition("{")
        keys = sorted(each.partition("=")[0] for each in labels.rstrip("}").split(",") if each)
        found.add(f"{name} {','.join(keys)}".strip())
    return sorted(found)
