"""Keys, values and headers prepared for display: decoded, and masked where configured.

Python and JSON strings may hold half a surrogate pair, for example if text was cut inside an emoji.
UTF-8 cannot encode it, so it is escaped before text goes to Kafka, a table or a terminal.
"""

from __future__ import annotations

import codecs
import json
import math
from typing import Any, Final

from window_consumer.model.field_mask import FieldMask, Part
from window_consumer.model.headers import PREFIX
from window_consumer.model.record import Message
from window_consumer.model.redaction import MASKED


def escaped(text: str) -> str:
    """Return a text that can be encoded; half a surrogate pair becomes its JSON escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


NOT_SHOWN: Final = "not JSON, so mask cannot find fields in it"
WHOLE: Final = "mask hides it as a whole"
TOO_MUCH: Final = "mask hides too many of its texts to find them all elsewhere"
TOO_LARGE: Final = "too large to look for the fields that mask names"

_DECODER: Final = codecs.getincrementaldecoder("utf-8")


def content_of(
    data: bytes | None, part: Part, mask: FieldMask, most_json: int | None = None
) -> dict[str, Any] | None:
    """Return a key or value as plain values; None for None.

    The result is ``{"form": "json", "json": ...}``, ``{"form": "text", "text": ...}`` or ``{"form":
    "binary", "hex": ...}``, each with ``bytes``, the full length, or ``{"form": "hidden", "why":
    ...}`` if it must not be shown. A value that is not JSON is hidden if any field is, because no
    fields can be found in it. Of more than ``most_json`` bytes only the first are shown, and not
    parsed as JSON.
    """
    if data is None:
        return None
    is_large = most_json is not None and len(data) > most_json
    # Even if nothing of it is shown, because other texts may quote its hidden parts.
    shown = _beginning(data[:most_json], mask) if is_large else _decoded(data, mask)
    if mask.hides(part):
        shown = {"form": "hidden", "why": WHOLE}
    elif part == "value" and mask.hides_fields and shown["form"] in {"text", "binary"}:
        shown = {"form": "hidden", "why": NOT_SHOWN}
    return {"bytes": len(data), **shown}


def search_hidden(value: bytes | None, mask: FieldMask, most_json: int) -> bool:
    """Collect the hidden parts of a value, for texts that quote them; False if too much."""
    if value is None:
        return True
    if len(value) > most_json:
        return False
    _decoded(value, mask)
    return True


def hide_record(message: Message, mask: FieldMask, most_json: int) -> bool:
    """Collect the hidden parts of a record; False if that is too much to search for.

    Parts that are not JSON have no recognisable fields, so all of their words are hidden: see
    ``FieldMask.error_text``.
    """
    parts: tuple[tuple[Part, bytes | None], ...] = (
        ("key", message.key()),
        ("value", message.value()),
    )
    for part, data in parts:
        if data is not None and not _hide_part(part, data, mask, most_json):
            return False
    for name, content in message.headers() or ():
        mask.header(name, header_text(content))
        if mask.hides("headers") and not name.startswith(PREFIX):
            mask.close(content)
    return True


def _hide_part(part: Part, data: bytes, mask: FieldMask, most_json: int) -> bool:
    is_hidden = mask.hides(part)
    if len(data) > most_json:
        return not (is_hidden or mask.hides_fields)
    try:
        value = json.loads(_text_of(data) or "")
    except (ValueError, RecursionError):
        if is_hidden or (part == "value" and mask.hides_fields):
            mask.close(data)
        return True
    mask.json(value)
    if is_hidden:
        mask.hide(value)
        mask.close(data)
    return True


def _decoded(data: bytes, mask: FieldMask) -> dict[str, Any]:
    text = _text_of(data)
    if text is None:
        return {"form": "binary", "hex": data.hex()}
    try:
        parsed = json.loads(text, parse_constant=str, parse_float=_finite)
        return {"form": "json", "json": mask.json(parsed)}
    except (ValueError, RecursionError):
        return {"form": "text", "text": mask.text(text)}


def _finite(number: str) -> float | str:
    """Return a number as a float; as a text if it is too large for one.

    Python parses and prints NaN and Infinity, which no other JSON parser accepts.
    """
    found = float(number)
    return found if math.isfinite(found) else number


def _beginning(data: bytes, mask: FieldMask) -> dict[str, Any]:
    if mask.hides_fields:
        return {"form": "hidden", "why": TOO_LARGE}
    text = _text_of(data, is_whole=False)
    return {"form": "binary", "hex": data.hex()} if text is None else {"form": "text", "text": text}


def _text_of(data: bytes, *, is_whole: bool = True) -> str | None:
    """Return data as text; None if it is not text: text has no NUL."""
    try:
        text = _DECODER().decode(data, final=is_whole)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def header_text(content: bytes | None) -> str | None:
    """Return a header's content as text, or its bytes in hexadecimal."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"


def pretty(value: Any, most: int) -> str:
    """Return indented JSON, cut soon after ``most`` characters.

    For deep nesting the indentation would be a thousand times longer.
    """
    pieces, size = [], 0
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False)
    try:
        for piece in encoder.iterencode(value):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                break
    except RecursionError:
        return json_line(value)
    return "".join(pieces)


def json_line(value: Any) -> str:
    """Return JSON on one line, as a text that can be encoded."""
    return escaped(json.dumps(value, ensure_ascii=False))


def key_text(key: bytes | None, mask: FieldMask, most_json: int) -> str | None:
    """Return a key on one line, masked; None if there is none."""
    shown = content_of(key, "key", mask, most_json)
    if shown is None or key is None:
        return None
    if shown["form"] == "hidden":
        return MASKED
    if shown["form"] == "json" and mask.hides_fields:
        return json_line(shown["json"])
    return mask.text(key.decode("utf-8", "backslashreplace"))
