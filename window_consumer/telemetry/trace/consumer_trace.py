"""The trace of one worker: hears what becomes of its records, and writes it down."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.core.ladder import FailedRecord
from window_consumer.core.observer import Observer
from window_consumer.core.partition import Partition
from window_consumer.core.slices import Slice
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message
from window_consumer.model.trace_event import Step
from window_consumer.model.trace_sampling import Sampling
from window_consumer.telemetry.trace.deliveries import Deliveries
from window_consumer.telemetry.trace.notes import Group, Note, Writer
from window_consumer.telemetry.trace.writer import TraceWriter

_STEPS = {
    Outcome.DONE: Step.PROCESSED,
    Outcome.SKIPPED: Step.SKIPPED,
    Outcome.MOVED: Step.RETRIED,
    Outcome.DEAD_LETTERED: Step.DEAD_LETTERED,
    Outcome.EXPIRED: Step.EXPIRED,
    Outcome.DROPPED: Step.DROPPED,
}


class ConsumerTrace(Observer):
    """Notes steps of records. Owner: poll thread."""

    def __init__(
        self,
        writer: TraceWriter,
        about: Writer,
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
        self._handlers = handlers
        self._partitions: dict[Partition, Deliveries] = {}

    def assigned(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Begin with a partition."""
        self._partitions[partition] = Deliveries(partition, self._sampling)

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Forget a partition."""
        self._partitions.pop(partition, None)

    def taken(self, partition: Partition, messages: Sequence[Message], now: float) -> None:
        """Note that records came."""
        known = self._partitions.get(partition)
        if known is None:
            return
        traced = known.add(messages, now)
        if traced:
            group = self._group(known, Step.RECEIVED)
            group = group._replace(may_be_redriven=known.rung.level is None)
            self._note(group, traced, now, None)

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Note that records were processed or skipped."""
        known = self._partitions.get(partition)
        if known is None or not messages:
            return
        traced = known.traced(messages)
        if traced:
            attempt = None if slice_ is None else slice_.call.attempt
            handler = self._handler(slice_)
            group = self._group(known, _STEPS[outcome], attempt=attempt, handler=handler)
            self._note(group, traced, now, known.durations_us(traced, now))

    def failed(self, failed: FailedRecord, now: float) -> None:
        """Note a failed call."""
        self._of_failed(failed, Step.FAILED, now)

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Note that a record has left."""
        self._of_failed(failed, _STEPS[outcome], now)

    def _of_failed(self, failed: FailedRecord, step: Step, now: float) -> None:
        known = self._partitions.get(failed.partition)
        if known is None:
            return
        messages = [failed.message]
        if not self._all_failures and not known.traced(messages):
            return
        fault = failed.failure.fault
        group = self._group(
            known, step, attempt=failed.calls, handler=failed.failure.handler or self._handler(None)
        )
        group = group._replace(
            status="retry" if failed.reason is None else str(failed.reason),
            error_class=fault.error_class,
            error_fingerprint=fault.fingerprint,
            sample=1.0 if self._all_failures else self._sampling.ratio,
        )
        self._note(group, messages, now, known.durations_us(messages, now))

    def _group(
        self, known: Deliveries, step: Step, attempt: int | None = None, handler: str | None = None
    ) -> Group:
        return Group(
            self._about,
            step,
            known.topic,
            known.partition,
            self._sampling.ratio,
            attempt=attempt,
            handler=handler,
            is_copy=known.rung.is_copy,
        )

    def _handler(self, slice_: Slice | None) -> str:
        """Return the handler that was called, or all of them where nobody can tell."""
        if slice_ is not None and len(slice_.messages) == 1 and slice_.call.handler:
            return slice_.call.handler
        return ",".join(self._handlers)

    def _note(
        self,
        group: Group,
        messages: Sequence[Message],
        now: float,
        durations_us: int | Sequence[int | None] | None,
    ) -> None:
        time_us = self._writer.time_us(now)
        self._writer.note(self._inbox, Note(group, messages, time_us, durations_us))
