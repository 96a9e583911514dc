"""What is written down of steps where they happen, before anything is made of it.

A note is made for a slice or a delivery, not for a record, and keeps the records themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from attrs import frozen

from window_consumer.model.record import Message
from window_consumer.trace.event import (
    Role,
    Step,
)
from window_consumer.trace.recording.exporter import Written


@frozen(eq=False)
class EventOrigin:
    """Who writes: what all events of one worker, or of one producer, have in common."""

    role: Role
    cluster: str | None = None
    client_id: str | None = None
    host: str | None = None
    app: str | None = None
    group: str | None = None
    worker: str | None = None


@frozen(cache_hash=True)
class EventGroup:
    """What events have in common that stand in one batch; made once, where that can be."""

    writer: EventOrigin
    step: Step
    topic: str
    partition: int | None
    sample: float
    status: str = "ok"
    attempt: int | None = None
    handler: str | None = None
    error_class: str | None = None
    error_fingerprint: str | None = None
    is_copy: bool = False
    """The records are copies of the group's own: their headers say where they come from."""
    may_be_redriven: bool = False
    """A header of those that somebody has put back says so."""


class TraceNote(NamedTuple):
    """Records to which the same happened at the same time."""

    group: EventGroup
    messages: Sequence[Message]
    time_us: int | Sequence[int]
    """When it happened; of each by itself where they come from a ``Line``."""
    durations_us: int | Sequence[int | None] | None = None


Single = tuple[Message, float, float | None]
"""A record, when something happened to it, and when it was delivered, None where nobody knows."""


class SingleRecords:
    """Records of one group that come one by one, as those of slow handlers do.

    No note is made for each of them. Owner: who makes the notes; the writer's thread takes.
    """

    def __init__(self, group: EventGroup):
        self.group = group
        self.singles: deque[Single] = deque()
        self.is_over = False
        """Nobody will add to it."""

    def take(self, time_us: Callable[[float], int]) -> TraceNote | None:
        """Return what is there as one note, None where nothing is."""
        take = self.singles.popleft
        found = [take() for _ in range(len(self.singles))]
        if not found:
            return None
        messages, moments, came = zip(*found, strict=True)
        durations = [
            None if begin is None else max(0, int((now - begin) * 1e6))
            for now, begin in zip(moments, came, strict=True)
        ]
        return TraceNote(self.group, messages, list(map(time_us, moments)), durations)


class Inbox:
    """Notes that wait for the writer's thread, of one thread that makes them.

    Each counter has one owner, so that no lock is needed: who puts in, or who takes out.
    """

    def __init__(self, max_records: int, max_bytes: int):
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.notes: deque[TraceNote] = deque()
        self._lines: list[SingleRecords] = []
        self.made: deque[Written] = deque()
        """Batches that were made by who makes the notes, because the thread is behind."""
        self._put_records = self._put_bytes = self._put_made = 0
        self._taken_records = self._taken_bytes = self._taken_made = 0
        self.lost = 0
        """Events for which there was no room. Owner: who makes the notes."""

    @property
    def waiting(self) -> int:
        """How many records' events wait."""
        return self._put_records - self._taken_records

    def put(self, note: TraceNote) -> bool:
        """Keep a note; False where no more fits. Owner: who makes the notes."""
        messages = note.messages
        count = len(messages)
        size = len(messages[0]) if count == 1 else sum(map(len, messages))
        records = self._put_records - self._taken_records + count
        if records > self._max_records or (
            self._put_bytes - self._taken_bytes + size > self._max_bytes
        ):
            return False
        self._put_records += count
        self._put_bytes += size
        self.notes.append(note)
        return True

    def line(self, group: EventGroup) -> SingleRecords:
        """Return a place for the single records of a group. Owner: who makes the notes."""
        line = SingleRecords(group)
        self._lines.append(line)
        return line

    def put_single(
        self, line: SingleRecords, message: Message, now: float, came: float | None
    ) -> int:
        """Keep a note of one record; return how many records wait, 0 where no more fits.

        Owner: who makes the notes.
        """
        records = self._put_records - self._taken_records + 1
        size = self._put_bytes - self._taken_bytes + len(message)
        if records > self._max_records or size > self._max_bytes:
            return 0
        self._put_records += 1
        self._put_bytes += len(message)
        line.singles.append((message, now, came))
        return records

    @property
    def may_make(self) -> bool:
        """Batches may be made by who makes the notes: there is room for some."""
        return self._put_made - self._taken_made < self._max_bytes

    def put_made(self, batches: Sequence[Written]) -> None:
        """Keep batches. Owner: who makes the notes."""
        for batch in batches:
            self._put_made += len(batch.data)
            self.made.append(batch)

    def take_made(self) -> list[Written]:
        """Return the batches that are there. Owner: the writer's thread."""
        taken = [self.made.popleft() for _ in range(len(self.made))]
        self._taken_made += sum(len(batch.data) for batch in taken)
        return taken

    def take(self, time_us: Callable[[float], int]) -> list[TraceNote]:
        """Return the notes that are there, those of each line as one. Owner: the writer's thread.

        ``time_us`` tells the time of the wall at a monotonic one.
        """
        taken = [self.notes.popleft() for _ in range(len(self.notes))]
        for line in self._lines.copy():
            is_over = line.is_over  # before it is emptied
            if (note := line.take(time_us)) is not None:
                taken.append(note)
            if is_over:
                self._lines.remove(line)
        for note in taken:
            self._taken_records += len(note.messages)
            self._taken_bytes += sum(map(len, note.messages))
        return taken


class SharedInbox(Inbox):
    """Notes of one record each, made by any number of threads; they hold no payload."""

    @property
    def waiting(self) -> int:
        """How many records' events wait."""
        return len(self.notes)

    def put(self, note: TraceNote) -> bool:
        """Keep a note; False where no more fits. Any thread may call."""
        if len(self.notes) >= self._max_records:
            return False
        self.notes.append(note)
        return True

    @property
    def may_make(self) -> bool:
        """Nobody else makes batches: whoever sends goes on."""
        return False

    def take(self, time_us: Callable[[float], int]) -> list[TraceNote]:  # noqa: ARG002 - there are no lines
        """Return the notes that are there. Owner: the writer's thread."""
        return [self.notes.popleft() for _ in range(len(self.notes))]
