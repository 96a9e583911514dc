"""The thread that builds batches from notes and passes them to an exporter."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections import defaultdict
from typing import Final

from window_consumer.model.key_forms import KeyForm
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message
from window_consumer.runtime.log import Trouble
from window_consumer.trace.metrics import TraceFigures
from window_consumer.trace.recording.batch_builder import BatchBuilder
from window_consumer.trace.recording.exporter import TraceExporter, Written
from window_consumer.trace.recording.inbox import (
    EventGroup,
    Inbox,
    SharedInbox,
    SingleRecords,
    TraceNote,
)

MAX_RECORDS: Final = 20_000
"""The records of one inbox: a fifteenth of a second of a no-op handler, which is longer than a
flush takes, and a few megabytes."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""The size of the records in one inbox, and of batches that wait to be written."""

_WAKE_RECORDS: Final = MAX_RECORDS // 4
"""The thread wakes early when an inbox is a quarter full."""

_CLOSE_S: Final = 3.0
"""How long closing may take while brokers are silent: within the grace period of `check`."""

_WAY_CLOSES_S: Final = 2.0


class TraceWriter:
    """Takes notes from any number of inboxes. Recording threads never wait for it.

    If this thread falls behind, which only happens on a saturated processor, the recording threads
    build batches themselves: that costs about a microsecond per event, up to a limit. If the
    exporter falls behind, events are lost and counted.
    """

    def __init__(
        self, way: TraceExporter, form_key: KeyForm | None, flush_s: float, logger: logging.Logger
    ):
        self._way = way
        self._flush_s = flush_s
        self._batches = BatchBuilder.of(uuid.uuid4().hex[:16], lambda: self.dropped, form_key)
        self._inboxes: list[Inbox] = []
        self._unwritten = 0
        self.written = 0
        """How many events were passed to the exporter."""
        self._trouble = Trouble(logger, LogEvent.TRACE_RECOVERED, "trace: events are written again")
        self._wake = threading.Event()
        self._ends = False
        self._wall_us = 0.0
        self._set_clock()
        self._thread = threading.Thread(target=self._run, name="wc-trace-writer", daemon=True)

    @property
    def dropped(self) -> int:
        """Return how many events were lost since the start. Any thread may call it."""
        lost = sum(inbox.lost for inbox in self._inboxes)
        return lost + self._unwritten + self._way.lost

    def figures(self) -> TraceFigures:
        """Return the figures of this process's events. Any thread may call it."""
        way = self._way.figures()
        lost = {"memory": sum(inbox.lost for inbox in self._inboxes), "made": self._unwritten}
        return TraceFigures(
            self.written,
            {**lost, **way.lost},
            way.torn,
            way.held_bytes,
            max(way.blocked_s, self._trouble.seconds),
        )

    def inbox(self) -> Inbox:
        """Return an inbox for the notes of one thread."""
        inbox = Inbox(MAX_RECORDS, MAX_BYTES)
        self._inboxes.append(inbox)
        return inbox

    def shared_inbox(self) -> Inbox:
        """Return an inbox for the notes of any number of threads."""
        inbox = SharedInbox(MAX_RECORDS, MAX_BYTES)
        self._inboxes.append(inbox)
        return inbox

    def time_us(self, now: float) -> int:
        """Return the wall time, in microseconds since 1970, at a monotonic time."""
        return int(self._wall_us + now * 1e6)

    def _set_clock(self) -> None:
        self._wall_us = time.time() * 1e6 - time.monotonic() * 1e6

    def start(self) -> None:
        """Start to build batches."""
        self._thread.start()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Write everything that waits, and stop; give up after ``timeout_s``."""
        self._ends = True
        self._wake.set()
        self._thread.join(timeout_s)

    def record(self, inbox: Inbox, note: TraceNote) -> None:
        """Record a note; called by the inbox's own thread. Never waits."""
        if inbox.put(note):
            if inbox.waiting > _WAKE_RECORDS and not self._wake.is_set():
                self._wake.set()
        elif inbox.may_make:
            inbox.put_made(self._batches.batches(note.group, [note]))
        else:
            inbox.lost += len(note.messages)

    def record_single(
        self, inbox: Inbox, line: SingleRecords, message: Message, now: float, came: float | None
    ) -> None:
        """Record a step of one record, like ``record`` at half the cost.

        ``came`` is its delivery time, None if unknown.
        """
        waiting = inbox.put_single(line, message, now, came)
        if not waiting:
            duration = None if came is None else max(0, int((now - came) * 1e6))
            self.record(inbox, TraceNote(line.group, [message], self.time_us(now), duration))
        elif waiting > _WAKE_RECORDS and not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        self._way.start()
        while True:
            ends = self._ends
            if not ends:
                self._wake.wait(self._flush_s)
            self._wake.clear()
            try:
                self.flush()
            except Exception as error:
                self._trouble.begins(
                    LogEvent.TRACE_EVENTS_LOST, f"trace: events are lost: {error!r}"
                )
            else:
                self._trouble.ends()
            if ends:
                break
        self._way.close(_WAY_CLOSES_S)

    def flush(self) -> None:
        """Build batches of everything that waits, and export them. Owner: the writer's thread.

        Raises the last error; its events are lost and counted by then.
        """
        ready: list[Written] = []
        groups: defaultdict[EventGroup, list[TraceNote]] = defaultdict(list)
        for inbox in self._inboxes:
            ready += inbox.take_made()
            for note in inbox.take(self.time_us):
                groups[note.group].append(note)
        # Not earlier: records of one delivery would get times some microseconds apart.
        self._set_clock()
        broken: Exception | None = None
        for group, notes in groups.items():
            try:
                ready += self._batches.batches(group, notes)
            except Exception as error:
                self._unwritten += sum(len(note.messages) for note in notes)
                broken = error
        for batch in ready:
            if batch.data:
                self.written += batch.events
            else:
                self._unwritten += batch.events
        self._way.write([batch for batch in ready if batch.data])
        if broken is not None:
            raise broken


def host_address() -> str:
    """Return the address of this host as others may see it; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Only looks up a route and sends nothing. The address is reserved for documentation.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
