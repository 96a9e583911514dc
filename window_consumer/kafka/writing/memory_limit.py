"""The part of ``memory`` that librdkafka cannot see: records that wait outside its queue."""

from __future__ import annotations

import threading
from typing import Final

from window_consumer.kafka.writing.sent_record import OutgoingRecord

BYTES_A_RECORD: Final = 512
"""The memory of a small record besides its value: client, future, id. Limits their number."""


class MemoryLimit:
    """Counts held records together with those in the client's queue. Any thread may call.

    librdkafka limits its own queue to ``memory``. While records are held, the bytes of each queued
    one count from ``enter`` to its delivery report, so that held and queued records together stay
    within ``memory``. Held records may fill half of it: the other half is for topics that accept
    records.
    """

    def __init__(self, memory: int):
        self.memory = memory
        self.held_bytes = 0
        self._held_records = 0
        self._queued_bytes = 0
        self._counting = threading.Lock()

    def check_hold(self, record: OutgoingRecord, queued_records: int) -> None:
        """Raise BufferError if one more record may not be held."""
        self._check(record, queued_records)
        size = _value_bytes(record)
        with self._counting:
            if (
                2 * (self.held_bytes + size) > self.memory
                or 2 * (self._held_records + 1) > self._most_records
            ):
                raise BufferError

    def check_queue(self, record: OutgoingRecord, queued_records: int) -> None:
        """Raise BufferError if held records leave no room for one more in the queue."""
        if self._held_records:
            self._check(record, queued_records)

    def _check(self, record: OutgoingRecord, queued_records: int) -> None:
        size = _value_bytes(record)
        with self._counting:
            if (
                self.held_bytes + self._queued_bytes + size > self.memory
                or self._held_records + queued_records + 1 > self._most_records
            ):
                raise BufferError

    @property
    def _most_records(self) -> int:
        return max(1, self.memory // BYTES_A_RECORD)

    def hold(self, *records: OutgoingRecord) -> None:
        """Start counting held records."""
        with self._counting:
            self.held_bytes += sum(_value_bytes(each) for each in records)
            self._held_records += len(records)

    def release(self, *records: OutgoingRecord) -> None:
        """Stop counting records that are no longer held."""
        with self._counting:
            self.held_bytes -= sum(_value_bytes(each) for each in records)
            self._held_records -= len(records)

    def enter(self, record: OutgoingRecord) -> int:
        """Count a record in the client's queue until ``leave``; return its bytes."""
        size = _value_bytes(record)
        with self._counting:
            self._queued_bytes += size
        return size

    def leave(self, size: int) -> None:
        """Stop counting a record that has left the client's queue."""
        with self._counting:
            self._queued_bytes -= size


def _value_bytes(record: OutgoingRecord) -> int:
    value = record.value
    return len(value.encode() if isinstance(value, str) else value or b"")
