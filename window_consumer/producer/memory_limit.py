"""The part of ``memory`` that librdkafka cannot see: records that wait outside of its queue."""

from __future__ import annotations

import threading

from window_consumer.producer.future import DetailedSendFuture, SendFuture
from window_consumer.producer.settings import BYTES_A_RECORD


class MemoryLimit:
    """Counts held records together with those in the client's queue. Any thread may call.

    librdkafka limits its own queue to ``memory``. While records are held, each sent record is a
    DetailedSendFuture, whose bytes count from ``enter`` to its delivery report, so that held and
    queued records together stay within ``memory``. Held records may fill half of it: the other half
    is for topics that accept records.
    """

    def __init__(self, memory: int):
        self.memory = memory
        self._held_bytes = 0
        self._held_records = 0
        self._queued_bytes = 0
        self._counting = threading.Lock()

    def check_hold(self, future: SendFuture, queued_records: int) -> None:
        """Raise BufferError if one more record may not be held."""
        self._check(future, queued_records)
        size = _value_bytes(future)
        with self._counting:
            if (
                2 * (self._held_bytes + size) > self.memory
                or 2 * (self._held_records + 1) > self._most_records
            ):
                raise BufferError

    def check_queue(self, future: SendFuture, queued_records: int) -> None:
        """Raise BufferError if held records leave no room for one more in the queue."""
        if self._held_records:
            self._check(future, queued_records)

    def _check(self, future: SendFuture, queued_records: int) -> None:
        size = _value_bytes(future)
        with self._counting:
            if (
                self._held_bytes + self._queued_bytes + size > self.memory
                or self._held_records + queued_records + 1 > self._most_records
            ):
                raise BufferError

    @property
    def _most_records(self) -> int:
        return max(1, self.memory // BYTES_A_RECORD)

    def hold(self, *futures: SendFuture) -> None:
        """Start counting held records."""
        with self._counting:
            self._held_bytes += sum(_value_bytes(each) for each in futures)
            self._held_records += len(futures)

    def release(self, *futures: SendFuture) -> None:
        """Stop counting records that are no longer held."""
        with self._counting:
            self._held_bytes -= sum(_value_bytes(each) for each in futures)
            self._held_records -= len(futures)

    def enter(self, future: SendFuture) -> None:
        """Count a record in the client's queue until its delivery report."""
        if isinstance(future, DetailedSendFuture):
            future.queued_bytes = _value_bytes(future)
            with self._counting:
                self._queued_bytes += future.queued_bytes

    def leave(self, future: DetailedSendFuture) -> None:
        """Stop counting a record that has left the client's queue."""
        with self._counting:
            self._queued_bytes -= future.queued_bytes
            future.queued_bytes = 0


def _value_bytes(future: SendFuture) -> int:
    value = future.value
    return len(value.encode() if isinstance(value, str) else value or b"")
