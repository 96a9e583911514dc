"""Where trace events go: straight to Kafka, or through a spool of files.

Straight to Kafka, events that the broker does not take in time are lost and counted. A spool
survives the process and waits while brokers are away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

from window_consumer.kafka.event_writer import EventWriter
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import Trouble
from window_consumer.trace.recording.exporter import (
    ExporterFigures,
    TraceExporter,
    Written,
)
from window_consumer.trace.recording.shipper import SpoolShipper
from window_consumer.trace.recording.spool import Orphans, Spool


class KafkaExporter:
    """Sends batches with a producer of its own, whose queue is bounded. Owner: writer's thread."""

    def __init__(self, writer: EventWriter, topic: str, logger: logging.Logger):
        self._writer = writer
        self._topic = topic
        self._trouble = Trouble(
            logger, LogEvent.TRACE_RECOVERED, f"trace: events reach {topic} again"
        )
        self._lost = 0

    @property
    def lost(self) -> int:
        """How many events the broker did not take."""
        return self._lost

    def figures(self) -> ExporterFigures:
        """Return how many events the broker did not take, and for how long it takes none."""
        return ExporterFigures({"broker": self._lost}, blocked_s=self._trouble.seconds)

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
            LogEvent.TRACE_EVENTS_LOST,
            f"trace: events are lost, {self._topic} does not take them ({error.why}); the next"
            " events that arrive tell how many",
        )


class SpoolExporter:
    """Writes batches into the spool, and lets another thread ship them."""

    def __init__(self, spool: Spool, shipping: SpoolShipper, ship_after_s: float):
        self._spool = spool
        self._shipping = shipping
        self._ship_after_s = ship_after_s
        self._held_bytes = 0
        """As of the last look: a disk that hangs must not keep metrics from being told."""

    @property
    def lost(self) -> int:
        """How many events found no room on disk, or were refused by the broker for good."""
        return self._spool.lost + self._shipping.refused

    def figures(self) -> ExporterFigures:
        """Return what was lost and why, what waits, and for how long nothing gets away."""
        return ExporterFigures(
            {"disk": self._spool.lost, "broker": self._shipping.refused},
            self._shipping.torn,
            self._held_bytes,
            max(self._spool.blocked_s, self._shipping.blocked_s),
        )

    def start(self) -> None:
        """Begin to ship what earlier processes have left."""
        self._shipping.start()

    def write(self, batches: Sequence[Written]) -> None:
        """Write batches down, and have them on disk."""
        if batches:
            self._spool.append(batches)
        age_s = self._spool.age_s
        idle = not (self._shipping.busy or self._spool.finished)
        if age_s is not None and idle and age_s >= self._ship_after_s:
            self._spool.finish()
        self._measure()

    def close(self, timeout_s: float) -> None:
        """Ship what can be shipped in this time; the rest is for the next process."""
        self._spool.finish()
        self._shipping.close(timeout_s)
        self._spool.close()
        self._measure()

    def _measure(self) -> None:
        with suppress(OSError):
            self._held_bytes = self._spool.held_bytes()


CLIENT_ID: Final = "wc-trace"

Acks = Literal["0", "1", "all"]


def way_out(  # noqa: PLR0913 - the keys of the configuration
    make_writer: Callable[[Acks], EventWriter],
    topic: str,
    logger: logging.Logger,
    *,
    acks: Acks,
    directory: Path | None,
    max_bytes: int,
    ship_after_s: float,
) -> TraceExporter:
    """Return the way out: through files where there is a directory, whose batches all must ack."""
    if directory is None:
        return KafkaExporter(make_writer(acks), topic, logger)
    spool = Spool(directory, max_bytes, logger)
    orphans = Orphans(directory, logger)
    shipping = SpoolShipper(spool.finished, orphans, partial(make_writer, "all"), topic, logger)
    return SpoolExporter(spool, shipping, ship_after_s)
