"""The trace of a producer or a Sink: records the results of its sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from attrs import frozen

from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError, WindowConsumerError
from window_consumer.model.protocols import Copy, Delivery, Sink
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Record
from window_consumer.trace.event import Step
from window_consumer.trace.recording.batch_builder import ROOT
from window_consumer.trace.recording.inbox import EventGroup, EventOrigin, TraceNote
from window_consumer.trace.recording.writer import TraceWriter
from window_consumer.trace.sampling import Sampling

_NOWHERE = -1


@frozen
class SentRecord:
    """A sent record with the fields that its events need, in the form of a delivered record."""

    topic_name: str
    key_bytes: bytes | None
    pairs: Sequence[tuple[str, bytes | None]]
    began: float
    """When produce was called, in monotonic seconds."""
    is_traced: bool
    place: int = _NOWHERE

    def __len__(self) -> int:
        return 0

    def topic(self) -> str:
        """Return the topic's name."""
        return self.topic_name

    def partition(self) -> int:
        """Return no partition: the group of its events has it."""
        return _NOWHERE

    def offset(self) -> int:
        """Return the record's offset, -1 if it has none."""
        return self.place

    def key(self) -> bytes | None:
        """Return the key's bytes or None."""
        return self.key_bytes

    def value(self) -> None:
        """Return None: the value is not kept."""

    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Return the headers, plus the root if there is one."""
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        """Return no time."""
        return TIMESTAMP_NOT_AVAILABLE, _NOWHERE


class ProducerTrace:
    """Records sends. Any thread may call it."""

    def __init__(
        self,
        writer: TraceWriter,
        about: EventOrigin,
        sampling: Sampling,
        current: Callable[[], Record | None],
        *,
        all_failures: bool = True,
    ):
        """``current`` returns the record that the calling thread is handling, if any."""
        self._writer = writer
        self._inbox = writer.shared_inbox()
        self._about = about
        self._sampling = sampling
        self._current = current
        self._all_failures = all_failures

    def began(
        self,
        topic: str,
        key: bytes | None,
        record_id: bytes,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> SentRecord:
        """Record the start of a send."""
        name = (key or b"") if self._sampling.by == "key" else record_id
        is_traced = self._sampling.takes_all or self._sampling.takes(name)
        root = self._current()
        if root is not None:
            headers = [*headers, (ROOT, root.id.encode())]
        return SentRecord(topic, key, headers, monotonic(), is_traced)

    def acked(self, token: SentRecord, partition: int, offset: int) -> None:
        """Record the broker's ack; it has no position if the broker returned none (acks=0)."""
        if token.is_traced:
            knows = offset >= 0
            sent = SentRecord(
                token.topic_name, token.key_bytes, token.pairs, token.began, True, place=offset
            )
            place = partition if knows else None
            group = EventGroup(
                self._about, Step.SENT, token.topic_name, place, self._sampling.ratio
            )
            self._record(group, sent)

    def failed(self, token: SentRecord, error: BufferError | WindowConsumerError) -> None:
        """Record that there was no ack."""
        if token.is_traced or self._all_failures:
            group = EventGroup(
                self._about,
                Step.SEND_FAILED,
                token.topic_name,
                None,
                1.0 if self._all_failures else self._sampling.ratio,
                status="refused" if _is_refused(error) else "unknown",
                error_class=type(error).__name__,
            )
            self._record(group, token)

    def _record(self, group: EventGroup, sent: SentRecord) -> None:
        now = monotonic()
        duration = int((now - sent.began) * 1e6)
        self._writer.record(
            self._inbox, TraceNote(group, [sent], self._writer.time_us(now), duration)
        )


class TracedSink:
    """A Sink whose records are traced as sent. Threads: those of the wrapped Sink."""

    def __init__(self, sink: Sink, trace: ProducerTrace):
        self._sink = sink
        self._trace = trace

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a record; a Sink does not return its position."""
        record_id = dict(copy.headers).get(names.ID) or b""
        token = self._trace.began(copy.topic, copy.key, record_id, copy.headers)

        def answer(error: PublishFailedError | None) -> None:
            try:
                if error is None:
                    self._trace.acked(token, _NOWHERE, _NOWHERE)
                else:
                    self._trace.failed(token, error)
            finally:
                on_delivery(error)

        self._sink.write(copy, answer)

    def serve(self, timeout_s: float) -> None:
        """Wait for answers and pass them on."""
        self._sink.serve(timeout_s)

    def close(self, timeout_s: float) -> int:
        """Wait for outstanding answers; return how many are still missing."""
        return self._sink.close(timeout_s)


def _is_refused(error: BufferError | WindowConsumerError) -> bool:
    return isinstance(error, BufferError) or bool(getattr(error, "refused", False))
