"""Encodes many trace events in one Kafka record, as columns of JSON. Part of the wire contract.

Values that all events of a batch share are written once, in ``all``; the other fields are columns
of runs. docs/wire-telemetry.md specifies every byte. Writing costs tenths of a microsecond per
event, because no code here runs per event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from window_consumer.model.key_forms import BINARY, CODE, KeyForm, as_text
from window_consumer.trace.event import FIELDS, TraceEvent

FORMAT = 1
"""Every format must stay readable forever."""


class UnreadableBatchError(ValueError):
    """The data is not a batch of events, or its format is newer."""


@define
class Column:
    """The values of one field for all events of a batch, as runs of equal values."""

    values: list[Any] = field(factory=list)
    counts: list[int] = field(factory=list)
    """The length of the run of each of ``values``."""
    each: bool = True
    """All counts are 1."""

    def add(self, value: Any, count: int) -> None:
        """Append the same value for ``count`` events."""
        if self.values and self.values[-1] == value:
            self.counts[-1] += count
            self.each = False
            return
        self.values.append(value)
        self.counts.append(count)
        self.each = self.each and count == 1

    def extend(self, values: Sequence[Any]) -> None:
        """Append one value for each of several events."""
        self.values += values
        self.counts += [1] * len(values)

    def text(self) -> str:
        """Return the column as JSON."""
        values = self.values
        written = json.dumps(values) if None in values or _is_text(values) else str(values)
        return f'{{"v":{written}}}' if self.each else f'{{"v":{written},"n":{self.counts}}}'


@define
class OffsetColumn:
    """The column of offsets: runs of consecutive numbers."""

    firsts: list[int] = field(factory=list)
    counts: list[int] = field(factory=list)

    def add(self, offsets: Sequence[int]) -> None:
        """Append the offsets of records; cheap if they are consecutive."""
        first, count = offsets[0], len(offsets)
        if offsets[-1] - first == count - 1 and list(offsets) == list(range(first, first + count)):
            self.add_run(first, count)
        else:
            self.firsts += offsets
            self.counts += [1] * count

    def add_run(self, first: int, count: int) -> None:
        """Append ``count`` consecutive offsets."""
        if self.firsts and self.firsts[-1] + self.counts[-1] == first:
            self.counts[-1] += count
        else:
            self.firsts.append(first)
            self.counts.append(count)

    def text(self) -> str:
        """Return the column as JSON."""
        return f'{{"v":{self.firsts},"n":{self.counts},"up":true}}'


@frozen
class KeyColumn:
    """The column of keys, one text each; built without inspecting every key if all are plain."""

    written: str
    """The texts as a JSON array."""

    @classmethod
    def of(cls, keys: Sequence[bytes | None], form: KeyForm) -> KeyColumn:
        """Return the column of these keys in a form."""
        if form is as_text and None not in keys:
            joined = b'","'.join(keys)  # type: ignore[arg-type] # none of them is None
            if _is_plain(joined, len(keys)):
                return cls(f'["{joined.decode()}"]')
        return cls(json.dumps(list(map(form, keys))))

    def text(self) -> str:
        """Return the column as JSON."""
        return f'{{"v":{self.written}}}'


def _is_plain(joined: bytes, count: int) -> bool:
    """Return whether JSON can hold the keys unescaped, and no key looks like another form."""
    return (
        joined.isascii()
        and joined.count(b'"') == 2 * (count - 1)
        and len(joined) == len(joined.translate(None, _NOT_PLAIN))
        and not any(mark.encode() in joined for mark in (BINARY, CODE))
    )


_NOT_PLAIN = bytes(range(32)) + b"\\\x7f"

AnyColumn = Column | OffsetColumn | KeyColumn


def encoded(
    writer: str,
    sequence: int,
    count: int,
    constants: Mapping[str, Any],
    columns: Mapping[str, AnyColumn],
) -> bytes:
    """Return a batch of ``count`` events: shared constants, and columns for other fields."""
    head = json.dumps({key: value for key, value in constants.items() if value is not None})
    rest = ",".join(f'"{name}":{column.text()}' for name, column in columns.items())
    return (
        f'{{"format":{FORMAT},"writer":"{writer}","sequence":{sequence},"count":{count},'
        f'"all":{head},"columns":{{{rest}}}}}'
    ).encode()


def count_of(data: bytes) -> int:
    """Return the number of events that a batch declares at its start; 1 if it declares none."""
    found = _COUNT.match(data)
    return int(found[1]) if found else 1


_COUNT = re.compile(rb'\{"format":\d+,"writer":"[^"]*","sequence":\d+,"count":(\d{1,9}),')


def decoded(data: bytes) -> Iterator[TraceEvent]:
    """Yield the events of a batch; raise UnreadableBatchError."""
    try:
        batch = json.loads(data)
        known = batch["format"] == FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableBatchError(f"this is not a batch of trace events: {data[:80]!r}") from error
    if not known:
        raise UnreadableBatchError(
            f"this batch of trace events has format {batch['format']!r}, but {FORMAT} is expected:"
            " a later version wrote it"
        )
    try:
        yield from list(_events(batch))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableBatchError(f"this batch of trace events is broken: {error!r}") from error


def may_have(data: bytes, texts: Iterable[str], offset: int | None = None) -> bool:
    """Return whether a batch may contain an event with these values, without parsing it.

    ``texts`` are values of fields that are always written out; ``offset`` is the event's own or
    that of its first delivery. Returns True for unreadable data: ``decoded`` reports the reason.
    """
    if not all(json.dumps(text).encode()[1:-1] in data for text in texts):
        return False
    if offset is None:
        return True
    try:
        batch = json.loads(data)
        columns = [batch["columns"].get(name) for name in ("offset", "orig_offset")]
        alone = [batch["all"].get(name) for name in ("offset", "orig_offset")]
        return offset in alone or any(_has(column, offset) for column in columns if column)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True


def _has(column: Mapping[str, Any], value: int) -> bool:
    values = column["v"]
    if not column.get("up"):
        return value in values
    return any(first <= value < first + n for first, n in zip(values, column["n"], strict=True))


def _events(batch: Mapping[str, Any]) -> Iterator[TraceEvent]:
    count = batch["count"]
    columns = {name: _values(column, count) for name, column in batch["columns"].items()}
    prefix = f"{batch['writer']}-{batch['sequence']}"
    names = {each.name for each in FIELDS}
    for index in range(count):
        given = {**batch["all"], **{name: values[index] for name, values in columns.items()}}
        fields = {name: value for name, value in given.items() if name in names}
        if fields.get("offset") is not None:
            for name in ("topic", "partition", "offset"):
                if fields.get(f"orig_{name}") is None:
                    fields[f"orig_{name}"] = fields.get(name)
            if fields.get("record_id") is None:
                place = (fields[f"orig_{name}"] for name in ("topic", "partition", "offset"))
                fields["record_id"] = "/".join(map(str, place))
        if fields.get("root_id") is None:
            fields["root_id"] = fields.get("record_id")
        yield TraceEvent(event_id=f"{prefix}-{index}", **fields)


def _values(column: Mapping[str, Any], count: int) -> list[Any]:
    values, counts = column["v"], column.get("n")
    if counts is None:
        found = values
    elif column.get("up"):
        found = [first + i for first, n in zip(values, counts, strict=True) for i in range(n)]
    else:
        found = [value for value, n in zip(values, counts, strict=True) for _ in range(n)]
    if len(found) != count:
        raise ValueError(f"a column has {len(found)} values for {count} events")
    return list(found)


def _is_text(values: Sequence[Any]) -> bool:
    return isinstance(values[0], str) if values else False
