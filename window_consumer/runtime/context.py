"""The record of the running call, for log lines and for user code below a handler."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Final

from attrs import frozen

from window_consumer.model import traceparent
from window_consumer.model.record import Message, Record


class Slot:
    """The current call of one slot. Owner: the slot; read within its context."""

    __slots__ = ("batch", "record", "spares")

    def __init__(self, record: Record | None = None, batch: Sequence[Record] = ()):
        self.record = record
        self.batch = batch
        """The records of a batch handler's call."""
        self.spares: list[Record] = []
        """Record objects of finished batches, without messages, for reuse."""


CROSSED = "crossed"
"""Marks log records that came from a child process with their record known."""

current_slot: ContextVar[Slot | Record | None] = ContextVar("window_consumer_slot", default=None)
"""A slot, which moves on to its next record. For a coroutine the record itself: its context belongs
to one call, and tasks that the call starts inherit it and may outlive it."""


def current_record() -> Record | None:
    """Return the record whose handler is running in this context, None outside a handler.

    It is also None within a batch handler.

    Pass the record itself to work that outlives the call, such as a thread or a timer: the slot
    moves on to its next record.
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
    """Return the trace id and span id that a record was sent with, in hexadecimal.

    Return None and None if its headers have no trace.
    """
    parent = traceparent.of_message(message)
    if parent is None:
        return None, None
    return f"{parent.trace_id:032x}", f"{parent.span_id:016x}"


def _current_trace() -> tuple[str, str] | None:
    """Return the ids of OpenTelemetry's current span, or None.

    Does not import OpenTelemetry, which takes time: before the first import no span exists.
    """
    tracing = sys.modules.get(_TRACING)
    if tracing is None:
        return None
    context = tracing.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


LoggableKey = Callable[[str, bytes | None], bytes | str | None]
"""Returns the part of a record's key that may be logged, given the topic that holds the record."""

_SHOWN_KEY: Final = 200


@frozen
class RecordOwner:
    """The worker and handler that log lines within a call belong to."""

    worker: str
    handler: str
    """Used if the call does not name one of several handlers."""
    loggable_key: LoggableKey


def key_text(key: bytes | str | None) -> str | None:
    """Return a key as log lines show it."""
    if key is None:
        return None
    text = key if isinstance(key, str) else key.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN_KEY else f"{text[:_SHOWN_KEY]}..."


class RecordContext(logging.Filter):
    """Adds the fields topic, partition, offset and attempt to log records (None outside a call).

    Adds worker, handler and key too, unless the line has fields of these names. Hidden parts of a
    key are masked.

    Adds trace_id and span_id in hexadecimal: from OpenTelemetry's current span, else from the
    record's header ``traceparent``, else None. Within a batch handler they belong to the first
    record of its list.

    Add it to a logging handler. With ``keep``, fields that a line already has (given as ``extra``)
    stay.
    """

    def __init__(self, *, keep: bool = False):
        super().__init__()
        self._keep = keep

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; never drop a line."""
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
            trace = trace_of(current._message)  # noqa: SLF001 - its raw headers
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
