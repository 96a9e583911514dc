"""A dead letter for people and programs that look at it: decoded, and masked where wanted."""

from __future__ import annotations

from typing import Any

import attrs

from window_consumer.model.contents import content_of, header_text
from window_consumer.model.dead_letter import DeadLetter
from window_consumer.model.field_mask import FieldMask

_KEPT_APART = ("position", "written_by", "key", "value", "headers", "own_headers")

_MAY_QUOTE = frozenset({"id", "error_message", "error_stack", "header"})
"""What may quote the record: it is left out where too much of the record is hidden to look for."""


def view_of(letter: DeadLetter, mask: FieldMask) -> dict[str, Any]:
    """Return a dead letter as plain values.

    Key and value are as ``content_of`` makes them.
    """
    value = content_of(letter.value, "value", mask)
    key = content_of(letter.key, "key", mask)
    headers = [[name, mask.header(name, header_text(content))] for name, content in letter.headers]
    told = attrs.asdict(
        letter, recurse=False, filter=lambda field, _: field.name not in _KEPT_APART
    )
    return {
        "dead_letter": str(letter.position),
        "written_by": letter.written_by.value,
        **{name: _without_hidden(name, content, mask) for name, content in told.items()},
        "key": key,
        "value": value,
        "headers": [[name, _without_hidden("header", content, mask)] for name, content in headers],
    }


def _without_hidden(name: str, content: Any, mask: FieldMask) -> Any:
    if not isinstance(content, str) or (mask.is_full and name not in _MAY_QUOTE):
        return content
    return mask.text(content)
