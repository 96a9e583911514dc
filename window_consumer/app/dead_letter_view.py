"""A dead letter for people and programs that look at it: decoded, and masked where wanted."""

from __future__ import annotations

import json
from typing import Any

import attrs

from window_consumer.app.dead_letter_mask import FieldMask
from window_consumer.model.dead_letter import DeadLetter

_KEPT_APART = ("position", "written_by", "key", "value", "headers", "own_headers")
NOT_SHOWN = "no JSON, so dlq.mask cannot find fields in it"


def view_of(letter: DeadLetter, mask: FieldMask) -> dict[str, Any]:
    """Return a dead letter as plain values.

    Key and value are ``{"form": "json", "json": ...}``, ``{"form": "text", "text": ...}``,
    ``{"form": "binary", "hex": ...}``, each with ``bytes``, or None. Where fields are to be hidden,
    a value that is no JSON is left out, because nothing can be found in it: the form is "hidden".
    """
    value = _decoded(letter.value, mask, only_json=mask.hides)
    key = _decoded(letter.key, mask, only_json=False)
    headers = [[name, mask.field(name, _shown(content))] for name, content in letter.headers]
    told = attrs.asdict(
        letter, recurse=False, filter=lambda field, _: field.name not in _KEPT_APART
    )
    return {
        "dead_letter": str(letter.position),
        "written_by": letter.written_by.value,
        **{name: _without_hidden(content, mask) for name, content in told.items()},
        "key": key,
        "value": value,
        "headers": [[name, _without_hidden(content, mask)] for name, content in headers],
    }


def _without_hidden(content: Any, mask: FieldMask) -> Any:
    return mask.text(content) if isinstance(content, str) else content


def _decoded(data: bytes | None, mask: FieldMask, *, only_json: bool) -> dict[str, Any] | None:
    if data is None:
        return None
    known: dict[str, Any] = {"bytes": len(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if only_json:
            return {**known, "form": "hidden", "why": NOT_SHOWN}
        return {**known, "form": "binary", "hex": data.hex()}
    try:
        return {**known, "form": "json", "json": mask.json(json.loads(text))}
    except (ValueError, RecursionError):
        if only_json:
            return {**known, "form": "hidden", "why": NOT_SHOWN}
        return {**known, "form": "text", "text": mask.text(text)}


def _shown(content: bytes | None) -> str | None:
    """Return a header's content as text, or its bytes in hexadecimal."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
