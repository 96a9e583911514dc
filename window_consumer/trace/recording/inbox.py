"""Notes: records of the tracing threads about a step, before encoding.

A note covers a slice or a delivery, not one record, and references the records themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from attrs import frozen

from window_consumer.model.record import Message
from window_consumer.trace.event import Role, Step
from window_consumer.trace.recording.exporter import Written


@frozen(eq=False)
class EventOrigin:
    """The writer of events: the fields of one worker or one producer."""

    role: Role
    cluster: str | None = None
    client_id: str | None = None
    host: str | None = None
    app: str | None = None
    group: str | None = None
    worker: str | None = None


@frozen(cache_hash=True)
class EventGroup:
    """The shared fields of the events of a batch; built once where possible."""

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
    """Whether the records are the group's own copies, whose headers name their origin."""
    may_be_put_back: bool = False
    """Whether records written by a redrive or a replay also get an event for that."""


class TraceNote(NamedTuple):
    """Records to which the same happened at the same time."""

    group: EventGroup
    messages: Sequence[Message]
    time_us: int | Sequence[int]
    """The time, or one time per record if they come from ``SingleRecords``."""
    durations_us: int | Sequence[int | None] | None = None


Single = tuple[Message, float, float | None]
"""A record, the time of its step, and the time of its delivery (None if unknown)."""


class SingleRecords:
    """Records of one group that complete one by one, as with slow handlers.

    They need no note each. Owner: the thread that records; the writer's thread takes.
    """

    def __init__(self, group: EventGroup):
        self.group = group
        self.singles: deque[Single] = deque()
        self.is_over = False
        """Whether nothing more will be added."""

    def take(self, time_us: Callable[[float], int]) -> TraceNote | None:
        """Return the contents as one note, None if empty."""
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
    """Notes of one recording thread that wait for the writer's thread.

    Each counter has one owner, the thread that puts or the one that takes, so no lock is needed.
    """

    def __init__(self, max_records: int, max_bytes: int):
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.notes: deque[TraceNote] = deque()
        self._lines: list[SingleRecords] = []
        self.made: deque[Written] = deque()
        """Batches that the recording thread built because the writer's thread is behind."""
        self._put_records = self._put_bytes = self._put_made = 0
        self._taken_records = self._taken_bytes = self._taken_made = 0
        self.lost = 0
        """Events for which there was no room. Owner: the recording thread."""

    @property
    def waiting(self) -> int:
        """Return how many records wait."""
        return self._put_records - self._taken_records

    def put(self, note: TraceNote) -> bool:
        """Add a note; return False if the inbox is full. Owner: the recording thread."""
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
        """Return a queue for the single records of a group. Owner: the recording thread."""
        line = SingleRecords(group)
        self._lines.append(line)
        return line

    def put_single(
        self, line: SingleRecords, message: Message, now: float, came: float | None
    ) -> int:
        """Add one record; return how many records wait, or 0 if the inbox is full.

        Owner: the recording thread.
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
        """Return whether the recording thread may build batches: there is room for some."""
        return self._put_made - self._taken_made < self._max_bytes

    def put_made(self, batches: Sequence[Written]) -> None:
        """Add batches. Owner: the recording thread."""
        for batch in batches:
            self._put_made += len(batch.data)
            self.made.append(batch)

    def take_made(self) -> list[Written]:
        """Take all batches. Owner: the writer's thread."""
        taken = [self.made.popleft() for _ in range(len(self.made))]
        self._taken_made += sum(len(batch.data) for batch in taken)
        return taken

    def take(self, time_us: Callable[[float], int]) -> list[TraceNote]:
        """Take all notes, with the records of each queue as one note. Owner: the writer's thread.

        ``time_us`` converts monotonic time to wall time.
        """
        taken = [self.notes.popleft() for _ in range(len(self.notes))]
        for line in self._lines.copy():
            is_over = line.is_over  # read before emptying it
            if (note := line.take(time_us)) is not None:
                taken.append(note)
            if is_over:
                self._lines.remove(line)
        for note in taken:
            self._taken_records += len(note.messages)
            self._taken_bytes += sum(map(len, note.messages))
        return taken


class SharedInbox(Inbox):
    """Notes of one record each, from any number of threads; they hold no payload."""

    @property
    def waiting(self) -> int:
        """Return how many records wait."""
        return len(self.notes)

    def put(self, note: TraceNote) -> bool:
        """Add a note; return False if the inbox is full. Any thread may call it."""
        if len(self.notes) >= self._max_records:
            return False
        self.notes.append(note)
        return True

    @property
    def may_make(self) -> bool:
        """Return False: sending threads never build batches."""
        return False

    def take(self, time_us: Callable[[float], int]) -> list[TraceNote]:  # noqa: ARG002 - there are no lines
        """Take all notes. Owner: the writer's thread."""
        return [self.notes.popleft() for _ in range(len(self.notes))]
