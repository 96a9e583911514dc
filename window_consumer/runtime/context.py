"""Which record the running code is about: for log lines and for user code deep below a handler."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final

from attrs import frozen

from window_consumer.model import traceparent
from window_consumer.model.record import (
    Message,
    Record,
)


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


_TRACING: Final = "opentelemetry.trace"


def trace_of(message: Message) -> tuple[str | None, str | None]:
    """Return the ids of the trace and of the span that a record was sent by, in hexadecimal.

    None and None where it does not say so.
    """
    parent = traceparent.of_message(message)
    if parent is None:
        return None, None
    return f"{parent.trace_id:032x}", f"{parent.span_id:016x}"


def _current_trace() -> tuple[str, str] | None:
    """Return the ids of OpenTelemetry's current span, None where there is none.

    Where nobody has imported it there cannot be one, and importing it takes time.
    """
    tracing = sys.modules.get(_TRACING)
    if tracing is None:
        return None
    context = tracing.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


ToldKey = Callable[[str, bytes | None], bytes | str | None]
"""Gives what may be told of the key of a record that lies in a topic."""

_SHOWN_KEY: Final = 200


@frozen
class RecordOwner:
    """Of whom log lines are that are written within a call."""

    worker: str
    handler: str
    """Where the call does not say which of several it is."""
    loggable_key: ToldKey


def key_text(key: bytes | str | None) -> str | None:
    """Return a key as log lines have it."""
    if key is None:
        return None
    text = key if isinstance(key, str) else key.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN_KEY else f"{text[:_SHOWN_KEY]}..."


class RecordContext(logging.Filter):
    """Gives log records the fields topic, partition, offset and attempt (None outside).

    And worker, handler and key, unless the line has fields of these names itself; of a masked key
    only what may be told.

    And trace_id and span_id, in hexadecimal: those of OpenTelemetry's current span, else those in
    the record's header ``traceparent``, else None. Within a batch handler they are those of the
    first record of its list.

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
        for name, value in _whose(current).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        trace: tuple[str | None, str | None] | None = _current_trace()
        if trace is None and current is not None:
            trace = trace_of(current._message)  # noqa: SLF001 - its headers as they are
        record.trace_id, record.span_id = trace or (None, None)
        return True


_NOBODYS: Final[Mapping[str, str | None]] = {"worker": None, "handler": None, "key": None}


def _whose(current: Record | None) -> Mapping[str, str | None]:
    if current is None:
        return _NOBODYS
    call = current._call  # noqa: SLF001 - the slots' loop has set it
    whose = call.whose
    if not isinstance(whose, RecordOwner):
        return _NOBODYS
    key = key_text(whose.loggable_key(current.topic, current.key))
    return {"worker": whose.worker, "handler": call.handler or whose.handler, "key": key}
