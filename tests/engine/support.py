"""What the tests of the core share: messages, and an Engine that is driven by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from window_consumer.engine.commit_metadata import CommitNote, decode
from window_consumer.engine.decisions import Assigned, Decisions, EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.protocols import Batch, Commit
from window_consumer.model.record import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)

ONE_BY_ONE: dict[str, Any] = {"slots": 4, "window_cells": 4, "cell_records": 3}
"""Rules with a small window."""


class Note:
    """A message that is just its fields."""

    def __init__(self, offset: int, key: bytes | None = None, size: int = 10, **fields: Any):
        self._offset = offset
        self._key = key
        self._fields = {"topic": "orders", "partition": 0, "value": b"v" * size, **fields}

    def __len__(self) -> int:
        return len(self._fields["value"] or b"")

    def belong_to(self, name: TopicPartition) -> None:
        self._fields.update(topic=name.topic, partition=name.partition)

    def topic(self) -> str:
        return str(self._fields["topic"])

    def partition(self) -> int:
        return int(self._fields["partition"])

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        value: bytes | None = self._fields["value"]
        return value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        headers: list[tuple[str, bytes | None]] | None = self._fields.get("headers")
        return headers

    def timestamp(self) -> tuple[int, int]:
        return (1, self._fields.get("written_ms", 1_700_000_000_000))

    def __repr__(self) -> str:
        return f"Note({self._offset}, {self._key!r})"


def notes(*offsets: int, keys: Sequence[bytes | None] | None = None, size: int = 10) -> list[Any]:
    if keys is None:
        return [Note(offset, size=size) for offset in offsets]
    return [Note(offset, key, size) for offset, key in zip(offsets, keys, strict=True)]


def failure(error: BaseException | None = None) -> Failure:
    error = error or ValueError("broken")
    return Failure(error, Fault(type(error).__name__, str(error), "", "f"))


def spent_after(attempts: int, **rules: object) -> RetryRules:
    return RetryRules(attempts=attempts, backoff_min_s=1.0, backoff_max_s=8.0, **rules)  # type: ignore[arg-type] # keyword arguments of the class


class Driven:
    """An Engine, its clock, and the slots' part played by hand."""

    def __init__(self, start: int = 0, names: Iterable[TopicPartition] = (ORDERS,), **rules: Any):
        given = {"slots": 4, **rules}
        self.engine = Engine(EngineRules(**given), jitter=lambda: 0.0)
        self.now = 1000.0
        self.wall_ms = 1_700_000_000_000.0
        self.out: list[Slice] = []
        self.last = Decisions()
        self.engine.on_assigned(
            [Assigned(name, start, committed=(start, "")) for name in names], self.now
        )

    def deliver(self, *messages: Any, name: TopicPartition = ORDERS) -> None:
        for message in messages:
            if isinstance(message, Note):
                message.belong_to(name)
        self.engine.on_records(Batch.of(name, list(messages)), self.now, self.wall_ms)

    def tick(self, seconds: float = 0.0) -> Decisions:
        self.now += seconds
        self.last = self.engine.on_tick(self.now)
        self.out.extend(self.last.dispatch)
        return self.last

    def claim(self, slice_: Slice, count: int | None = None) -> list[Any]:
        """Let a slot claim records, the way that its loop does."""
        slice_.started = slice_.started or self.now
        claimed: list[Any] = []
        while count is None or len(claimed) < count:
            message = next(slice_.unclaimed, None)
            if message is None:
                break
            claimed.append(message)
        return claimed

    def finish(self, slice_: Slice, elapsed: float = 0.001) -> None:
        """Let a slot run the rest of a slice successfully and report it."""
        self.claim(slice_)
        slice_.elapsed = elapsed
        self.out.remove(slice_)
        self.engine.on_completion(slice_, self.now)

    def fail(
        self,
        slice_: Slice,
        *offsets: int,
        error: BaseException | None = None,
        elapsed: float = 0.001,
    ) -> None:
        """Like ``finish``, but these records' handler raised."""
        for message in self.claim(slice_):
            if message.offset() in offsets:
                slice_.deviate().failed.append((message, failure(error)))
        self.finish(slice_, elapsed)

    def finish_all(self) -> None:
        while self.out:
            for slice_ in list(self.out):
                self.finish(slice_)
            self.tick()

    @property
    def running_offsets(self) -> list[int]:
        return sorted(m.offset() for slice_ in self.out for m in slice_.messages)

    @property
    def committable(self) -> int:
        return self.engine.partitions[ORDERS].window.next_offset


def note_of(commit: Commit) -> CommitNote:
    note = decode(commit.metadata)
    assert note is not None
    return note
