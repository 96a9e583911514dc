"""Shared by the engine's tests: messages, failures and rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitRules
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.protocols import Commit
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


def stalled_after(after_s: float, **rules: Any) -> StallRules:
    return StallRules(after_s, **rules)


def batches_of(max_records: int, *, max_wait_s: float = 0.0) -> BatchRules:
    return BatchRules(max_records=max_records, max_wait_s=max_wait_s)


def at_least(slots: int) -> LimitRules:
    return LimitRules(lower=slots)


def note_of(commit: Commit) -> CommitNote:
    note = decode(commit.metadata)
    assert note is not None
    return note
