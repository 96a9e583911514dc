"""Counts written records: copies for the ladder, results, redriven and replayed records."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.audit.producer import ProducerAudit
from window_consumer.kafka.group_progress import GroupProgress
from window_consumer.kafka.log_writer import LogWriter, Refusals
from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Clock, Copy, Delivery, Sink


class CountingWriter:
    """A writer of batches whose records for one topic are counted. Owner: one thread.

    In a transaction a copy counts once the transaction is committed. Copies in an uncommitted one
    are unknown, like all sends without an answer.
    """

    def __init__(
        self, writer: LogWriter, audit: ProducerAudit, to: str, clock: Clock, *, transactional: bool
    ):
        self._writer = writer
        self._audit = audit
        self._to = to
        self._clock = clock
        self._transactional = transactional
        self._sent: list[tuple[int | None, int] | None] = []
        """Sends since the last acks: token and partition, or None if the copy is for another topic.
        """
        self._acked: list[tuple[int | None, int]] = []

    def send(self, copies: Sequence[Copy]) -> None:
        """Send copies; see ``Writer``."""
        for copy in copies:
            self._sent.append(self._count_sent(copy) if copy.topic == self._to else None)
        self._writer.send(copies)

    def acks(self) -> Refusals:
        """Return once everything is acked; see ``Writer``."""
        sent, self._sent = self._sent, []
        try:
            refusals = self._writer.acks()
        except BaseException:
            self._doubt([each for each in sent if each is not None])
            raise
        for place, each in enumerate(sent):
            if each is None:
                continue
            if place in refusals:
                self._audit.failed(each[0], refusals[place])
            else:
                self._acked.append(each)
        if not self._transactional:
            self._count()
        return refusals

    def finish(self, reader: GroupProgress) -> None:
        """Commit the reader's progress, and the transaction."""
        self._writer.finish(reader)
        self._count()

    def close(self) -> None:
        """Abandon unfinished records."""
        self._writer.close()
        self._doubt([*(each for each in self._sent if each is not None), *self._acked])
        self._sent, self._acked = [], []

    def _count_sent(self, copy: Copy) -> tuple[int | None, int]:
        headers = dict(copy.headers)
        original = headers.get(names.ORIGINAL_TIMESTAMP) or b""
        stamp = int(original) if original.isdigit() else self._clock.wall_ms()
        size, record_id = len(copy.value or b""), headers.get(names.ID) or b""
        token = self._audit.sent(copy.topic, copy.key, size, stamp, record_id)
        return token, -1 if copy.partition is None else copy.partition

    def _count(self) -> None:
        for token, partition in self._acked:
            self._audit.acked(token, partition, -1)
        self._acked = []

    def _doubt(self, tokens: Sequence[tuple[int | None, int]]) -> None:
        for token, _ in tokens:
            self._audit.failed(token, PublishFailedError("no answer"))


class CountingSink:
    """A Sink whose records are counted. Threads: those of the wrapped Sink."""

    def __init__(self, sink: Sink, audit: ProducerAudit, clock: Clock):
        self._sink = sink
        self._audit = audit
        self._clock = clock

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy or a result; without a timestamp it gets the current time."""
        stamp = copy.timestamp or self._clock.wall_ms()
        headers = dict(copy.headers)
        original = headers.get(names.ORIGINAL_TIMESTAMP) or b""
        partition = -1 if copy.partition is None else copy.partition
        token = self._audit.sent(
            copy.topic,
            copy.key,
            len(copy.value or b""),
            int(original) if original.isdigit() else stamp,
            headers.get(names.ID) or b"",
        )

        def answer(error: PublishFailedError | None) -> None:
            try:
                if error is None:
                    self._audit.acked(token, partition, -1)
                else:
                    self._audit.failed(token, error)
            finally:
                on_delivery(error)

        self._sink.write(copy._replace(timestamp=stamp), answer)

    def serve(self, timeout_s: float) -> None:
        """Wait for answers and pass them on."""
        self._sink.serve(timeout_s)

    def close(self, timeout_s: float) -> int:
        """Wait for outstanding answers; return how many are still missing."""
        return self._sink.close(timeout_s)
