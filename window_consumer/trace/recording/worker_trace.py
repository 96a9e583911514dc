"""The trace of one worker: observes its records and records their steps."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import OUTCOMES, Outcome
from window_consumer.model.record import Message
from window_consumer.trace.event import Step
from window_consumer.trace.recording.deliveries import Deliveries, Kind
from window_consumer.trace.recording.inbox import EventGroup, EventOrigin, SingleRecords, TraceNote
from window_consumer.trace.recording.writer import TraceWriter
from window_consumer.trace.sampling import Sampling

_STEPS = {row: Step(row.step) for row in OUTCOMES if row.step}

_RECEIVED: Kind = (Outcome.OPEN, None, None)


class ConsumerTrace(Observer):
    """Records the steps of records. Owner: poll thread."""

    def __init__(
        self,
        writer: TraceWriter,
        about: EventOrigin,
        sampling: Sampling,
        *,
        all_failures: bool,
        handlers: Sequence[str],
    ):
        self._writer = writer
        self._inbox = writer.inbox()
        self._about = about
        self._sampling = sampling
        self._all_failures = all_failures
        self._handlers = ",".join(handlers)
        self._partitions: dict[Partition, Deliveries] = {}

    def assigned(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Start tracing a partition."""
        self._partitions[partition] = Deliveries(partition, self._sampling)

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Drop a partition's state."""
        known = self._partitions.pop(partition, None)
        for line in () if known is None else known.lines.values():
            line.is_over = True

    def taken(self, partition: Partition, messages: Sequence[Message], now: float) -> None:
        """Record that records were received."""
        known = self._partitions.get(partition)
        if known is None:
            return
        traced = known.add(messages, now)
        if traced:
            group = known.groups.get(_RECEIVED) or self._remembered(known, _RECEIVED)
            self._record(group, traced, now, None)

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Record that records were processed or skipped."""
        known = self._partitions.get(partition)
        if known is None or not messages:
            return
        traced = known.traced(messages)
        if not traced:
            return
        attempt = None if slice_ is None else slice_.call.attempt
        handler: str | None = self._handler(slice_)
        if not outcome.calls_handler:
            attempt, handler = None if attempt is None else attempt - 1, None
        kind = outcome, attempt, handler
        if len(traced) == 1:
            line = known.lines.get(kind) or self._line(known, kind)
            self._writer.record_single(self._inbox, line, traced[0], now, known.came(traced[0]))
            return
        group = known.groups.get(kind) or self._remembered(known, kind)
        self._record(group, traced, now, known.durations_us(traced, now))

    def failed(self, failed: FailedRecord, now: float) -> None:
        """Record a failed call."""
        self._of_failed(failed, Step.FAILED, now)

    def stalled(self, stalled: Stalled, failure: Failure, now: float) -> None:
        """Record a call that does not return; a call that is only reported may repeat."""
        status = "ended" if stalled.end else "abandoned" if stalled.abandon else "reported"
        slice_ = stalled.slice_
        messages = slice_.all_running()
        self._of_call(
            slice_.partition, messages, Step.STALLED, stalled.attempt, failure, status, now
        )

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Record that a record left the window."""
        self._of_failed(failed, _STEPS[outcome], now)

    def _of_failed(self, failed: FailedRecord, step: Step, now: float) -> None:
        status = "retry" if failed.reason is None else str(failed.reason)
        messages = [failed.message]
        self._of_call(failed.partition, messages, step, failed.calls, failed.failure, status, now)

    def _of_call(  # noqa: PLR0913 - the parts of a failure's event
        self,
        partition: Partition,
        messages: Sequence[Message],
        step: Step,
        attempt: int,
        failure: Failure,
        status: str,
        now: float,
    ) -> None:
        known = self._partitions.get(partition)
        if known is None or not messages:
            return
        if not self._all_failures:
            messages = known.traced(messages)
        if not messages:
            return
        fault = failure.fault
        group = evolve(
            self._new_group(known, step, attempt, failure.handler or self._handler(None)),
            status=status,
            error_class=fault.error_class,
            error_fingerprint=fault.fingerprint,
            sample=1.0 if self._all_failures else self._sampling.ratio,
        )
        self._record(group, messages, now, known.durations_us(messages, now))

    def _remembered(self, known: Deliveries, kind: Kind) -> EventGroup:
        """Return the shared fields of a kind's events, cached because every slice needs them."""
        outcome, attempt, handler = kind
        step = _STEPS.get(outcome, Step.RECEIVED)
        group = known.groups[kind] = self._new_group(known, step, attempt, handler)
        return group

    def _line(self, known: Deliveries, kind: Kind) -> SingleRecords:
        group = known.groups.get(kind) or self._remembered(known, kind)
        line = known.lines[kind] = self._inbox.line(group)
        return line

    def _new_group(
        self, known: Deliveries, step: Step, attempt: int | None, handler: str | None
    ) -> EventGroup:
        return EventGroup(
            self._about,
            step,
            known.topic,
            known.partition,
            self._sampling.ratio,
            attempt=attempt,
            handler=handler,
            is_copy=known.retry_level.is_copy,
            may_be_put_back=step is Step.RECEIVED and known.retry_level.level is None,
        )

    def _handler(self, slice_: Slice | None) -> str:
        """Return the handler that was called, or all of them if that is unknown."""
        if slice_ is not None and len(slice_.messages) == 1 and slice_.call.handler:
            return slice_.call.handler
        return self._handlers

    def _record(
        self,
        group: EventGroup,
        messages: Sequence[Message],
        now: float,
        durations_us: int | Sequence[int | None] | None,
    ) -> None:
        time_us = self._writer.time_us(now)
        self._writer.record(self._inbox, TraceNote(group, messages, time_us, durations_us))
