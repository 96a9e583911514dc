"""Which record the running code is about: for log lines and for user code deep below a handler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar

from window_consumer.model.record import Record


class Slot:
    """What one slot is calling its handler with. Owner: the slot; read within its context."""

    __slots__ = ("batch", "record", "spares")

    def __init__(self, record: Record | None = None, batch: Sequence[Record] = ()):
        self.record = record
        self.batch = batch
        """What a batch handler is called with."""
        self.spares: list[Record] = []
        """Records of batches that are over, without messages: they are used again."""


CROSSED = "crossed"
"""The field of log records that came from a child process, where their place was known."""

current_slot: ContextVar[Slot | Record | None] = ContextVar("window_consumer_slot", default=None)
"""A slot that goes on to its next record, or the record itself: a coroutine's context is of this
call alone, and tasks that the call starts, which inherit it, may outlive it."""


def current_record() -> Record | None:
    """Return the record whose handler is running in this context, None outside of a handler.

    A batch handler is about many records: within one it is None.

    Work that outlives the call (a thread, a timer) should be handed the record itself: a slot
    goes on to its next record.
    """
    slot = current_slot.get()
    return slot.record if isinstance(slot, Slot) else slot


def _first_record() -> Record | None:
    slot = current_slot.get()
    if not isinstance(slot, Slot):
        return slot
    return slot.batch[0] if slot.batch else slot.record


class RecordContext(logging.Filter):
    """Gives log records the fields topic, partition, offset and attempt (None outside).

    Within a batch handler they are those of the first record of its list.

    Add it to a logging handler. With ``keep`` a line that has the fields already (given as
    ``extra``) keeps them.
    """

    def __init__(self, *, keep: bool = False):
        super().__init__()
        self._keep = keep

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; never drops a line."""
        if (self._keep and hasattr(record, "offset")) or hasattr(record, CROSSED):
            return True
        current = _first_record()
        record.topic = None if current is None else current.topic
        record.partition = None if current is None else current.partition
        record.offset = None if current is None else current.offset
        record.attempt = None if current is None else current.attempt
        return True
