"""Dead letters of any origin as rows: ``read_dead_letter`` over Arrow batches.

Masked fields are removed here, before anything is written, so tables and reports never hold them.
The rules for foreign headers are Python, so this runs in Python, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from window_consumer.dlq.dead_letter import DeadLetter, read_dead_letter
from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.stored_record import StoredMessage
from window_consumer.model.field_mask import FieldMask
from window_consumer.model.key_forms import key_form
from window_consumer.model.protocols import Headers
from window_consumer.model.record import TopicPartition
from window_consumer.model.record_contents import (
    content_of,
    header_text,
    json_line,
    key_text,
    search_hidden,
)
from window_consumer.model.redaction import MASKED

RECORD: Final = "coalesce(id, concat_ws('/', original_topic, original_partition, original_offset))"
"""A dead letter's record id as the trace has it, in SQL that Spark and DuckDB share."""

MOST_JSON: Final = 256 * 1024
"""Fields are read from values up to this many bytes; larger values are left out."""

MOST_TEXT: Final = 1024
"""Characters kept of a text."""

MOST_STACK: Final = 8 * 1024
"""Characters kept of a stack, and of a value if values are wanted."""

MOST_HEADERS: Final = 50
"""How many of a record's own headers are kept."""

_DAY_MS: Final = 86_400_000
_BEHIND_MS: Final = 366 * _DAY_MS
_MOST_NUMBER: Final = 2**63 - 1
_TEXTS: Final = (
    *("id", "group", "handler", "app_version", "host", "reason", "error_class", "error_message"),
    *("fingerprint", "level", "value_ref"),
)
_NUMBERS: Final = ("original_partition", "original_offset", "attempts", "redrives")


def rows_of(
    batches: Iterable[pa.RecordBatch], reading: Reading, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield dead letters as rows of ``schema``, the Arrow form of ``schema.DEAD_LETTERS``.

    Batches have the columns topic, partition, offset, written_ms, key, value, value_bytes and
    headers (pairs of key and value).
    """
    form = key_form(reading.keys, reading.key_secret)
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in _PLAIN}
        all_headers = _headers(batch.column("headers"))
        made = []
        for *place, written_ms, key, value, value_bytes, headers in zip(
            *columns.values(), all_headers, strict=True
        ):
            topic, partition, offset = place
            letter = read_dead_letter(
                StoredMessage(
                    name=TopicPartition(topic, partition),
                    at=offset,
                    key_bytes=key,
                    value_bytes=value,
                    header_pairs=headers,
                    timestamp_ms=written_ms if written_ms is not None and written_ms >= 0 else None,
                )
            )
            mask = reading.mask([topic, letter.original_topic])
            row = _row(letter, mask, form, reading)
            row["value_bytes"] = value_bytes
            made.append(row)
        yield pa.RecordBatch.from_pylist(made, schema=schema)


def stored_key(key: bytes, reading: Reading, topics: Iterable[str | None]) -> str | None:
    """Return a key as the rows of these topics store it; None if other keys look the same."""
    mask = reading.mask(topics)
    text = key_form(reading.keys, reading.key_secret)(key)
    if _hides(mask) and reading.keys == "raw":
        search_hidden(key, mask, MOST_JSON)
        text = key_text(key, mask, MOST_JSON)
    return None if text is None or MASKED in text else _short(text)


def _hides(mask: FieldMask) -> bool:
    return mask.hides_fields or mask.hides("value") or mask.hides("key") or mask.hides("headers")


_PLAIN: Final = ("topic", "partition", "offset", "written_ms", "key", "value", "value_bytes")


def _headers(column: pa.ListArray) -> list[Headers]:
    """Return the headers of each record; a list of dictionaries would take ten times as long."""
    pairs = column.values
    flat = list(zip(pairs.field(0).to_pylist(), pairs.field(1).to_pylist(), strict=True))
    ends = column.offsets.to_pylist()
    return [flat[begin:end] for begin, end in pairwise(ends)]


def _row(
    letter: DeadLetter,
    mask: FieldMask,
    form: Callable[[bytes | None], str | None],
    reading: Reading,
) -> dict[str, Any]:
    own = [
        {"name": name[:MOST_TEXT], "value": _cut(mask.header(name, header_text(content)))}
        for name, content in letter.own_headers[:MOST_HEADERS]
    ]
    value = letter.value
    hides = _hides(mask)
    knows_all = not hides or (
        search_hidden(value, mask, MOST_JSON) and search_hidden(letter.key, mask, MOST_JSON)
    )
    key = form(letter.key)
    if hides and reading.keys == "raw":
        key = key_text(letter.key, mask, MOST_JSON)
    texts = {name: getattr(letter, name) for name in _TEXTS}
    stack = letter.error_stack
    knows_all = knows_all and not mask.is_full
    if hides and knows_all:
        texts = {name: text and mask.text(text) for name, text in texts.items()}
        stack = stack and mask.text(stack)
        own = [
            {"name": each["name"], "value": each["value"] and mask.text(each["value"])}
            for each in own
        ]
    if not knows_all:
        # They may quote any part of the value.
        texts["error_message"] = texts["error_message"] and MASKED
        stack = stack and MASKED
        own = [{"name": each["name"], "value": each["value"] and MASKED} for each in own]
    written, failed = letter.timestamp, letter.failed_at
    if written is not None and failed is not None:
        is_sane = written - _BEHIND_MS < failed < written + _DAY_MS
        failed = failed if is_sane else written
    return {
        "topic": letter.position.topic,
        "partition": letter.position.partition,
        "offset": letter.position.offset,
        "written_ms": written,
        "failed_ms": _number(failed),
        "written_by": letter.written_by.value,
        "original_topic": _cut(letter.original_topic),
        **{name: _cut(text) for name, text in texts.items()},
        **{name: _number(getattr(letter, name)) for name in _NUMBERS},
        "sent_ms": _number(letter.original_timestamp),
        "first_failed_ms": _number(letter.first_failure),
        "error_stack": _cut(stack, MOST_STACK),
        "key": _short(key),
        "headers": own,
        "value": _value(value, mask) if reading.values else None,
    }


def _value(value: bytes | None, mask: FieldMask) -> str | None:
    texts = content_of(value, "value", mask, MOST_JSON)
    if texts is None:
        return None
    form = texts["form"]
    if form == "hidden":
        return MASKED
    if form == "json":
        return _cut(json_line(texts["json"]), MOST_STACK)
    return _cut(texts["text"] if form == "text" else f"0x{texts['hex']}", MOST_STACK)


def _cut(text: str | None, most: int = MOST_TEXT) -> str | None:
    return text if text is None or len(text) <= most else text[: most - 1] + "…"


def _short(key: str | None) -> str | None:
    """Return a key; a long one is cut, with a digest that keeps it unique."""
    if key is None or len(key) <= MOST_TEXT:
        return key
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{key[:MOST_TEXT]}… ({len(key)} characters, {digest})"


def _number(value: int | None) -> int | None:
    return None if value is None or value > _MOST_NUMBER else value
