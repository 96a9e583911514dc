"""Turns notes into batches: columns of their records, without per-record work if possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

from attrs import evolve, frozen

from window_consumer.model import copy_headers, header_values, headers, traceparent
from window_consumer.model.key_forms import KeyForm
from window_consumer.model.outcome import OUTCOMES
from window_consumer.model.record import Message
from window_consumer.model.record_identity import id_text
from window_consumer.trace.event import Role, Step
from window_consumer.trace.event_batch import AnyColumn, Column, KeyColumn, OffsetColumn, encoded
from window_consumer.trace.recording.exporter import Written
from window_consumer.trace.recording.inbox import EventGroup, TraceNote

MAX_BATCH_BYTES = 500_000
"""Brokers accept 1 MiB by default, and a reader parses a batch at once."""

MAX_BATCH_RECORDS = 5_000
"""About 150 KB without keys."""

_MAX_TEXT = 1_000
"""Ids and tags are cut to this many characters."""

_FINISHED = frozenset(row.step for row in OUTCOMES if row.step and row.end == "good")


ROOT = "root"
"""A pseudo header of sent records that holds the id of their root, if known."""


@frozen
class BatchBuilder:
    """Builds batches. Its only mutable state is a counter: any thread may call it."""

    writer: str
    """Identifies this run of this process: event ids begin with it."""
    dropped: Callable[[], int]
    form_key: KeyForm | None
    """How keys are written; None for events without keys."""
    sequence: Iterator[int]

    @classmethod
    def of(cls, writer: str, dropped: Callable[[], int], form_key: KeyForm | None) -> BatchBuilder:
        """Return a builder whose first batch is number 0."""
        return cls(writer, dropped, form_key, count())

    def batches(self, group: EventGroup, notes: Sequence[TraceNote]) -> list[Written]:
        """Return the events of one group's notes, in as many batches as their size requires.

        A record whose own event is too large is omitted: its batch has no data.
        """
        count = sum(len(note.messages) for note in notes)
        if count > MAX_BATCH_RECORDS:
            return self._halved(group, notes)
        made = self._batch(group, notes)
        if len(made[0].data) <= MAX_BATCH_BYTES:
            return made
        return self._halved(group, notes) if count > 1 else [Written(b"", 1)]

    def _halved(self, group: EventGroup, notes: Sequence[TraceNote]) -> list[Written]:
        if len(notes) == 1:
            notes = _split(notes[0])
        half = len(notes) // 2
        return self.batches(group, notes[:half]) + self.batches(group, notes[half:])

    def _batch(self, group: EventGroup, notes: Sequence[TraceNote]) -> list[Written]:
        messages = notes[0].messages if len(notes) == 1 else list(_messages(notes))
        columns = self._columns(group, notes, messages)
        made = [Written(self._encoded(group, len(messages), columns), len(messages))]
        if group.may_be_put_back:
            for step in (Step.REDRIVEN, Step.REPLAYED):
                put_back = evolve(group, step=step, may_be_put_back=False)
                back = [found for each in notes if (found := _back(put_back, each)) is not None]
                made += self.batches(put_back, back) if back else []
        return made

    def _columns(
        self, group: EventGroup, notes: Sequence[TraceNote], messages: Sequence[Message]
    ) -> dict[str, AnyColumn]:
        columns = _times(notes)
        kind = type(messages[0])
        if group.partition is not None:
            columns["offset"] = _offsets(notes)
        if self.form_key is not None:
            columns["key"] = KeyColumn.of(list(map(kind.key, messages)), self.form_key)
        given = list(map(kind.headers, messages))
        if any(given):
            columns |= _from_headers(group, given)
            if group.is_copy:
                columns |= _from_hops(group, messages)
        return columns

    def _encoded(self, group: EventGroup, events: int, columns: dict[str, AnyColumn]) -> bytes:
        writer = group.writer
        constants = {
            "role": writer.role.value,
            "step": group.step.value,
            "status": group.status,
            "attempt": group.attempt,
            "cluster": writer.cluster,
            "topic": group.topic,
            "partition": group.partition,
            "group": writer.group,
            "client_id": writer.client_id,
            "host": writer.host,
            "app": writer.app,
            "worker": writer.worker,
            "handler": group.handler,
            "error_class": group.error_class,
            "error_fingerprint": group.error_fingerprint,
            "dropped": self.dropped(),
            "sample": group.sample,
        }
        constants = {key: value for key, value in constants.items() if key not in columns}
        return encoded(self.writer, next(self.sequence), events, constants, columns)


def _times(notes: Sequence[TraceNote]) -> dict[str, AnyColumn]:
    """Return the columns of times and durations."""
    times, durations = Column(), Column()
    for note in notes:
        count = len(note.messages)
        if isinstance(note.time_us, Sequence):
            times.extend(note.time_us)
        else:
            times.add(note.time_us, count)
        if isinstance(note.durations_us, Sequence):
            durations.extend(note.durations_us)
        else:
            durations.add(note.durations_us, count)
    return {"time_us": times, "duration_us": durations}


def _offsets(notes: Sequence[TraceNote]) -> OffsetColumn:
    places, kind = OffsetColumn(), type(notes[0].messages[0])
    for note in notes:
        places.add(list(map(kind.offset, note.messages)))
    return places


def _messages(notes: Sequence[TraceNote]) -> Iterator[Message]:
    return chain.from_iterable(note.messages for note in notes)


def _split(note: TraceNote) -> list[TraceNote]:
    half = len(note.messages) // 2
    durations, times = note.durations_us, note.time_us
    return [
        note._replace(
            messages=note.messages[part],
            time_us=times[part] if isinstance(times, Sequence) else times,
            durations_us=durations[part] if isinstance(durations, Sequence) else durations,
        )
        for part in (slice(None, half), slice(half, None))
    ]


_Given = Sequence[Sequence[tuple[str, bytes | None]] | None]


def _from_headers(group: EventGroup, given: _Given) -> dict[str, AnyColumn]:
    """Return the columns that come from headers, without those that are empty."""
    found: list[Mapping[str, bytes | None]] = [dict(pairs or ()) for pairs in given]
    columns: dict[str, AnyColumn] = {}
    sources = [("record_id", headers.ID), ("tags", headers.TAGS)]
    if group.writer.role is Role.PRODUCER:
        sources.append(("root_id", ROOT))
    for name, header in sources:
        values = [_short(each.get(header)) for each in found]
        if any(values):
            columns[name] = _column(values)
    parents = [_trace_and_span(each.get(traceparent.HEADER)) for each in found]
    if any(parents):
        columns["trace_id"] = _column([each and each[0] for each in parents])
        columns["span_id"] = _column([each and each[1] for each in parents])
    return columns


def _from_hops(group: EventGroup, messages: Sequence[Message]) -> dict[str, AnyColumn]:
    """Return the columns that only copies have: their origin and earlier calls."""
    hops = [copy_headers.of_copy(message) for message in messages]
    columns: dict[str, AnyColumn] = {
        "record_id": _column([_short(each.record_id) for each in hops]),
        "orig_topic": _column([each.origin.topic for each in hops]),
        "orig_partition": _column([each.origin.partition for each in hops]),
        "orig_offset": _column([each.offset for each in hops]),
    }
    if group.attempt is not None and group.step in _FINISHED:
        columns["attempt"] = _column([group.attempt + each.attempts for each in hops])
    return columns


def _column(values: Sequence[Any]) -> Column:
    column = Column()
    for value in values:
        column.add(value, 1)
    return column


def _short(value: bytes | None) -> str | None:
    return id_text(value)[:_MAX_TEXT] if value else None


def _back(group: EventGroup, note: TraceNote) -> TraceNote | None:
    """Return a note of the records that a redrive or a replay wrote; None without any.

    A replayed record that was redriven later counts only as redriven.
    """
    given = map(type(note.messages[0]).headers, note.messages)
    is_back = _is_redriven if group.step is Step.REDRIVEN else _is_replayed
    if is_back is _is_replayed and not group.is_copy:
        return None
    found = [index for index, pairs in enumerate(given) if pairs and is_back(dict(pairs))]
    if not found:
        return None
    times = note.time_us
    return TraceNote(
        group,
        [note.messages[index] for index in found],
        [times[index] for index in found] if isinstance(times, Sequence) else times,
    )


def _is_redriven(pairs: Mapping[str, bytes | None]) -> bool:
    return bool(header_values.count(pairs.get(headers.REDRIVES)))


def _is_replayed(pairs: Mapping[str, bytes | None]) -> bool:
    return headers.REPLAY in pairs and not _is_redriven(pairs)


def _trace_and_span(value: bytes | None) -> tuple[str, str] | None:
    """Parse a W3C traceparent, ``00-<32 hex digits>-<16>-<2>``; return None if it is invalid."""
    parts = (header_values.text(value) or "").split("-")
    if len(parts) < 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    digits = set(parts[1] + parts[2])
    if not digits <= set("0123456789abcdef") or digits == {"0"}:
        return None
    return parts[1], parts[2]
