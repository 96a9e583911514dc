"""Counts what a worker writes: copies for the ladder, and results."""

from __future__ import annotations

from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Clock, Copy, Delivery, Sink
from window_consumer.telemetry.audit.producer import ProducerAudit


class CountingSink:
    """A Sink that tells an audit of all that it is given. As many threads as the Sink's."""

    def __init__(self, sink: Sink, audit: ProducerAudit, clock: Clock):
        self._sink = sink
        self._audit = audit
        self._clock = clock

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy or a result; what has no time of its own gets that of now."""
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
        """Wait for answers and hand them out."""
        self._sink.serve(timeout_s)

    def close(self, timeout_s: float) -> int:
        """Wait for the answers that are missing; return how many are still missing then."""
        return self._sink.close(timeout_s)
