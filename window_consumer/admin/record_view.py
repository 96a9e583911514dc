"""The data of single records in the live window: bounded, and masked.

Errors have passed ``@app.redact`` before they arrive here. Access control is elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from window_consumer.config.sections.mask import MaskRules
from window_consumer.engine.cell_details import RecordDetails
from window_consumer.engine.shares_snapshot import NONE, REST, ShareSnapshot
from window_consumer.engine.windows_snapshot import ParkedKey, PartitionSnapshot, WindowsSnapshot
from window_consumer.model.field_mask import FieldMask
from window_consumer.model.record import Message
from window_consumer.model.record_contents import (
    TOO_LARGE,
    TOO_MUCH,
    content_of,
    header_text,
    key_text,
    pretty,
    search_hidden,
)
from window_consumer.model.redaction import MASKED
from window_consumer.runtime.context import LoggableKey
from window_consumer.runtime.figures.worker_snapshot import RecordSnapshot

MOST_OF_A_KEY: Final = 200
MOST_HEADERS: Final = 32
MOST_OF_A_NAME: Final = 100
MOST_OF_A_HEADER: Final = 300
MOST_OF_A_VALUE: Final = 64 * 1024
"""The limits of displayed texts, in characters, and of the number of headers."""

MOST_JSON: Final = 256 * 1024
"""The most bytes of a key or value to parse as JSON; this blocks handlers for milliseconds."""

_MOST_LOOKED_INTO: Final = 1024 * 1024
"""The most bytes of all values of one answer to search for masked fields, which errors may quote.
"""

_TEXT_WITHHELD: Final = f"its text is not shown: the value is {TOO_LARGE}"
_TEXTS_WITHHELD: Final = f"its text is not shown: {TOO_MUCH}"

_ERROR: Final = re.compile("error|exception|stack", re.IGNORECASE)
"""Matches the names of error headers in copies, ours and those of other frameworks."""

_BINARY: Final = 1024
"""Displayed bytes of a binary value."""


@frozen
class RecordView:
    """Converts records to plain values. Immutable: any thread may use it."""

    mask: Callable[[str], str]
    """Hides the secrets of the configuration in a text."""
    rules: MaskRules
    most_json: int = MOST_JSON
    most_looked_into: int = _MOST_LOOKED_INTO

    def records(
        self, topic: str, source: str, records: Sequence[RecordDetails], lists: int = 1
    ) -> list[RecordSnapshot]:
        """Return the displayable data of records in a topic, without their values.

        ``source`` is their original topic. ``lists`` is the number of lists in the same answer.
        """
        left = self.most_looked_into // lists
        listed = []
        for each in records:
            mask = self.rules.of([topic, source])
            is_safe = True
            if each.message is not None and mask.hides_fields and _quotes(each):
                left -= len(each.message)
                is_safe = left >= 0 and search_hidden(each.message.value(), mask, self.most_json)
            listed.append(self._record(each, mask, is_safe=is_safe))
        return listed

    def value(self, message: Message, source: str) -> dict[str, Any]:
        """Return a record's value: ``form`` (json, text, binary, null or hidden), ``text``.

        ``bytes`` is its full length, and ``is_cut`` says whether ``text`` is only the beginning.
        JSON is reformatted with indentation. For a hidden value ``text`` gives the reason.
        """
        mask = self.rules.of([message.topic(), source])
        content = content_of(message.value(), "value", mask, self.most_json)
        if content is not None and mask.is_full:
            content = {"form": "hidden", "bytes": content["bytes"], "why": TOO_MUCH}
        if content is None:
            return {"form": "null", "bytes": 0, "text": "", "is_cut": False}
        form, size = content["form"], content["bytes"]
        if form == "json":
            text = pretty(content["json"], 2 * MOST_OF_A_VALUE)
        elif form == "binary":
            text = "\n".join(_hex_lines(content["hex"]))
        else:
            text = content["why"] if form == "hidden" else content["text"]
        is_cut = len(text) > MOST_OF_A_VALUE or (form == "binary" and size > _BINARY)
        text = self.mask(text if form == "hidden" else mask.text(text))[:MOST_OF_A_VALUE]
        return {"form": form, "bytes": size, "text": text, "is_cut": is_cut}

    def snapshot(self, windows: WindowsSnapshot, loggable_key: LoggableKey) -> WindowsSnapshot:
        """Return a worker's windows without hidden keys."""

        def partition(each: PartitionSnapshot) -> PartitionSnapshot:
            if each.hottest_key is None:
                return each
            key = self._shortened_key(each.name.topic, each.hottest_key, loggable_key)
            return evolve(each, hottest_key=key)

        def parked_key(each: ParkedKey) -> ParkedKey:
            return evolve(each, key=self._shortened_key(each.name.topic, each.key, loggable_key))

        parked = windows.parked
        if parked is not None:
            parked = evolve(parked, longest=tuple(map(parked_key, parked.longest)))
        shares = windows.shares
        if shares is not None and shares.of_keys:
            topics = sorted({each.name.topic for each in windows.partitions})

            def named(each: ShareSnapshot) -> ShareSnapshot:
                if each.name in {NONE, REST} or not topics:
                    return each
                return evolve(each, name=self._shortened_key(topics[0], each.name, loggable_key))

            shares = evolve(shares, largest=tuple(map(named, shares.largest)))
        partitions = tuple(map(partition, windows.partitions))
        return evolve(windows, partitions=partitions, parked=parked, shares=shares)

    def _shortened_key(self, topic: str, key: str, loggable_key: LoggableKey) -> str:
        """Return the displayable beginning of a key."""
        # The fields of truncated JSON cannot be masked.
        has_fields = any(rule.fields for rule in self.rules.rules)
        is_hidden = has_fields and key.lstrip()[:1] in {"{", "["}
        as_bytes = key.encode("utf-8", "backslashreplace")
        if is_hidden or loggable_key(topic, as_bytes) != as_bytes:
            return MASKED
        return self.mask(key)

    def _record(self, each: RecordDetails, mask: FieldMask, *, is_safe: bool) -> RecordSnapshot:
        message = each.message
        key = None if message is None else key_text(message.key(), mask, self.most_json)
        headers = [] if message is None else message.headers() or []
        # All of them are checked: an error may quote one that is not displayed.
        masked = [(name, mask.header(name, header_text(content))) for name, content in headers]
        error = each.error
        if not is_safe:
            error = error and f"{error.partition(':')[0]} ({_TEXT_WITHHELD})"
            masked = [
                (name, MASKED if text and _ERROR.search(name) else text) for name, text in masked
            ]
        elif mask.is_full:
            error = error and f"{error.partition(':')[0]} ({_TEXTS_WITHHELD})"

        def masked_picture(text: str | None, most: int) -> str | None:
            return None if text is None else _cut(self.mask(mask.text(text)), most)

        return RecordSnapshot(
            offset=each.offset,
            state=each.state,
            key=masked_picture(key, MOST_OF_A_KEY),
            bytes=None if message is None else len(message),
            headers=[
                (
                    _cut(name if mask.is_full else self.mask(mask.text(name)), MOST_OF_A_NAME),
                    masked_picture(text, MOST_OF_A_HEADER),
                )
                for name, text in masked[:MOST_HEADERS]
            ],
            more_headers=max(0, len(masked) - MOST_HEADERS),
            attempts=each.attempts,
            error=self.mask(error if mask.is_full else mask.text(error)),
            due_s=each.due_s,
            running_s=each.running_s,
            behind=each.behind,
        )


def _quotes(each: RecordDetails) -> bool:
    """Return whether an error may quote the record."""
    headers = () if each.message is None else each.message.headers() or ()
    return bool(each.error) or any(_ERROR.search(name) for name, _ in headers)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _hex_lines(digits: str) -> list[str]:
    shown = digits[: 2 * _BINARY]
    lines = [shown[start : start + 32] for start in range(0, len(shown), 32)]
    return [" ".join(line[at : at + 2] for at in range(0, len(line), 2)) for line in lines]
