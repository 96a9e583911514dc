"""Spans of slices, of written copies, and of calls that do not return.

The poll thread only queues notes; a separate thread turns them into spans. If it falls behind,
notes are dropped and counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from random import getrandbits
from time import perf_counter, time_ns
from typing import Any, Final

from attrs import frozen
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind

from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.observer import Observer
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.metrics.otel import attributes
from window_consumer.metrics.otel.spans import SpanBudget, Spans, context_below, links_of
from window_consumer.metrics.otel.trace_ids import LOW, SpanParent
from window_consumer.model.fault import Failure
from window_consumer.model.log_events import LogEvent
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition
from window_consumer.runtime.log import own_logger

_log = own_logger()

MOST_NOTES: Final = 1024
MOST_BYTES: Final = 8 * 1024**2
"""The most payload that notes may keep alive, per worker."""

GATHER_S: Final = 0.025
"""How long the thread lets notes gather: waking it for each costs more than a span."""

TargetOf = Callable[[FailedRecord], str]
"""Returns the topic that a record's copy was written to."""


class NoteTaker:
    """A thread that turns notes into spans. Any thread may queue notes."""

    def __init__(self) -> None:
        self._notes: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wc-spans", daemon=True)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        """Return whether too many notes wait to accept more."""
        return self._notes.qsize() >= MOST_NOTES

    def take(self, note: Callable[[], None]) -> None:
        """Queue a note; ``note`` must not raise."""
        self._notes.put(note)

    def end(self, timeout_s: float) -> None:
        """Work through the queue for at most ``timeout_s``."""
        self._notes.put(None)
        self._ends.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._throw_away()

    def _throw_away(self) -> None:
        try:
            while True:
                self._notes.get_nowait()
        except Empty:
            self._notes.put(None)

    def _run(self) -> None:
        while (note := self._notes.get()) is not None:
            try:
                note()
            except Exception as error:
                _log.warning(
                    "OpenTelemetry: a span is lost: %r",
                    error,
                    extra={"event": LogEvent.OTEL_SPAN_LOST},
                )
            del note
            if self._notes.empty():
                self._ends.wait(GATHER_S)


@frozen
class _Ran:
    """A slice that ran, as the poll thread recorded it."""

    messages: Sequence[Message]
    count: int
    attempt: int
    failed: int
    handler: str
    started: float
    elapsed: float
    size: int
    trace_id: int
    """0 if the provider chooses the id and decides whether the trace is recorded."""


@frozen
class _Left:
    """A record that left the ladder."""

    message: Message
    place: SpanParent
    name: TopicPartition
    topic: str | None
    """The topic of its copy; None if it was dropped."""
    outcome: Outcome
    reason: str
    calls: int
    since: float
    until: float


class SliceSpans(Observer):
    """Queues what a worker's spans are made from. Owner: poll thread."""

    def __init__(
        self,
        spans: Spans,
        budget: SpanBudget,
        notes: NoteTaker,
        target_of: TargetOf,
        draw: Callable[[int], int] = getrandbits,
    ):
        self._spans = spans
        self._draw = draw
        is_drawn = spans.bound is not None and spans.bound <= LOW
        self._bound = spans.bound if is_drawn else None
        """None if choosing an id here is useless: all traces are recorded, or it is unknown."""
        self._budget = budget
        self._notes = notes
        self._target_of = target_of
        self._noted_bytes = 0
        self._done_bytes = 0
        """Written only by the thread that makes the spans."""

    # ---- the poll thread

    def over(self, slice_: Slice, now: float) -> None:  # noqa: ARG002 - the slot's own times are better
        """Queue a span for a slice; a batch already has one around its call."""
        messages = slice_.messages
        if slice_.is_batch or not messages:
            return
        trace_id = 0
        if self._bound is not None:
            trace_id = self._draw(128)
            if trace_id & LOW >= self._bound:
                return
        if self._budget.is_spent():
            return
        noted = slice_.deviations
        ran = _Ran(
            messages,
            slice_.settled + len(messages),
            slice_.call.attempt,
            0 if noted is None else len(noted.failed),
            slice_.call.handler,
            slice_.started,
            slice_.elapsed,
            slice_.bytes,
            trace_id,
        )
        if self._noted_bytes - self._done_bytes + ran.size > MOST_BYTES:
            self._budget.counts.lost += 1
        elif self._leave(lambda: self._write_slice(ran)):
            self._noted_bytes += ran.size

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Queue a span for a copy whose record is in a recorded trace."""
        message, retry_level = failed.message, failed.partition.retry_level
        place = self._spans.traces.of(message, is_copy=retry_level.is_copy)
        if place is None or self._budget.is_spent():
            return
        left = _Left(
            message,
            place,
            failed.partition.name,
            None if failed.is_dropped else self._target_of(failed),
            outcome,
            str(failed.reason),
            failed.calls,
            failed.last_failure,
            now,
        )
        self._leave(lambda: self._write_copy(left))

    def stalled(self, stalled: Stalled, failure: Failure, now: float) -> None:
        """Queue a span that shows where a call hangs."""
        message = stalled.slice_.running()
        is_copy = stalled.slice_.partition.retry_level.is_copy
        place = None if message is None else self._spans.traces.of(message, is_copy=is_copy)
        self._leave(lambda: self._write_stall(stalled, message, place, failure, now))

    def _leave(self, write: Callable[[], None]) -> bool:
        if self._notes.is_behind:
            self._budget.counts.lost += 1
            return False

        def write_span() -> None:
            try:
                write()
            except Exception:
                self._budget.counts.lost += 1

        self._notes.take(write_span)
        return True

    # ---- the thread that makes the spans

    def _write_slice(self, ran: _Ran) -> None:
        try:
            end_ns = _wall_ns()(ran.started + ran.elapsed)
            more: dict[str, Any] = {attributes.ATTEMPT: ran.attempt}
            if ran.failed:
                more[attributes.FAILED] = ran.failed
            if ran.handler:
                more[attributes.HANDLER] = ran.handler
            start_ns = end_ns - round(ran.elapsed * 1e9)
            span = self._spans.of_many(ran.messages, ran.count, more, start_ns, ran.trace_id)
            if span.is_recording():
                self._budget.spend()
            span.end(end_ns)
        finally:
            self._done_bytes += ran.size

    def _write_copy(self, left: _Left) -> None:
        offset = left.message.offset()
        about: dict[str, Any] = {
            attributes.OUTCOME: left.outcome.name,
            attributes.REASON: left.reason,
            attributes.ATTEMPT: left.calls,
        }
        if left.topic is None:
            name, kind = f"settle {left.name.topic}", SpanKind.INTERNAL
            about |= self._about(left.name, offset)
            about |= {attributes.OPERATION: "settle", attributes.OPERATION_TYPE: "settle"}
        else:
            name, kind = f"send {left.topic}", SpanKind.PRODUCER
            # Readers would take partition and offset for the copy's, but only the source's are
            # known.
            about |= {
                **self._spans.about,
                attributes.OPERATION: "send",
                attributes.OPERATION_TYPE: "send",
                attributes.DESTINATION: left.topic,
                attributes.SOURCE: f"{left.name}@{offset}",
            }
        wall_ns = _wall_ns()
        start_ns, end_ns = wall_ns(left.since), wall_ns(left.until)
        context = context_below(left.place, left.message)
        span = self._spans.tracer.start_span(name, context, kind, about, start_time=start_ns)
        if span.is_recording():
            self._budget.spend()
        span.end(end_ns)

    def _write_stall(
        self,
        stalled: Stalled,
        message: Message | None,
        place: SpanParent | None,
        failure: Failure,
        now: float,
    ) -> None:
        """Write a span from the call's beginning to now, with the stack in an event."""
        wall_ns = _wall_ns()
        context = Context() if place is None else context_below(place, message)
        links: list[Link] = links_of(place, message)
        about = {**self._about(stalled.name, stalled.offset), attributes.ATTEMPT: stalled.attempt}
        if failure.handler:
            about[attributes.HANDLER] = failure.handler
        span = self._spans.tracer.start_span(
            f"stall {stalled.name.topic}",
            context,
            SpanKind.INTERNAL,
            about,
            links,
            wall_ns(now - stalled.seconds),
        )
        stack = {"code.stacktrace": failure.fault.stack, "message": failure.fault.message}
        span.add_event("window_consumer.stall", stack, wall_ns(now))
        if span.is_recording():
            self._budget.spend()
        span.end(wall_ns(now))

    def _about(self, name: TopicPartition, offset: int) -> dict[str, Any]:
        return {
            **self._spans.about,
            attributes.DESTINATION: name.topic,
            attributes.PARTITION: str(name.partition),
            attributes.OFFSET: offset,
        }


def _wall_ns() -> Callable[[float], int]:
    """Return a function from the workers' clock to nanoseconds since 1970."""
    offset_ns = time_ns() - round(perf_counter() * 1e9)
    return lambda at_s: offset_ns + round(at_s * 1e9)
