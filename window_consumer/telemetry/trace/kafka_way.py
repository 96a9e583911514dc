"""Straight to Kafka: what the broker does not take in time is lost, and counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from window_consumer.kafka.event_writer import EventWriter
from window_consumer.model.errors import PublishFailedError
from window_consumer.telemetry.trace.trouble import Trouble
from window_consumer.telemetry.trace.way import WayFigures, Written


class KafkaWay:
    """Sends batches with a producer of its own, whose queue is bounded. Owner: writer's thread."""

    def __init__(self, writer: EventWriter, topic: str, logger: logging.Logger):
        self._writer = writer
        self._topic = topic
        self._trouble = Trouble(logger, f"trace: events reach {topic} again")
        self._lost = 0

    @property
    def lost(self) -> int:
        """How many events the broker did not take."""
        return self._lost

    def figures(self) -> WayFigures:
        """Return how many events the broker did not take, and for how long it takes none."""
        return WayFigures({"broker": self._lost}, blocked_s=self._trouble.seconds)

    def start(self) -> None:
        """Nothing to do: the producer connects by itself."""

    def write(self, batches: Sequence[Written]) -> None:
        """Send batches, and hear what became of earlier ones."""
        for batch in batches:
            self._writer.send(batch.data, partial(self._answered, batch.events))
        self._writer.serve(0)

    def close(self, timeout_s: float) -> None:
        """Wait for the answers; what is not acked in time counts as lost."""
        self._writer.close(timeout_s)

    def _answered(self, events: int, error: PublishFailedError | None) -> None:
        if error is None:
            self._trouble.ends()
            return
        self._lost += events
        self._trouble.begins(
            f"trace: events are lost, {self._topic} does not take them ({error.why}); the next"
            " events that arrive tell how many"
        )
