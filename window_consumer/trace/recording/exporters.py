"""Exporters of trace events: directly to Kafka, or through a spool of files.

The direct exporter loses and counts events that the broker does not accept in time. A spool
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
from window_consumer.trace.recording.exporter import ExporterFigures, TraceExporter, Written
from window_consumer.trace.recording.shipper import SpoolShipper
from window_consumer.trace.recording.spool import Orphans, Spool


class KafkaExporter:
    """Sends batches with its own producer, whose queue is bounded. Owner: writer's thread."""

    def __init__(self, writer: EventWriter, topic: str, logger: logging.Logger):
        self._writer = writer
        self._topic = topic
        self._trouble = Trouble(
            logger, LogEvent.TRACE_RECOVERED, f"trace: events reach {topic} again"
        )
        self._lost = 0

    @property
    def lost(self) -> int:
        """Return how many events the broker did not accept."""
        return self._lost

    def figures(self) -> ExporterFigures:
        """Return how many events the broker refused, and how long it has accepted none."""
        return ExporterFigures({"broker": self._lost}, blocked_s=self._trouble.seconds)

    def start(self) -> None:
        """Do nothing: the producer connects by itself."""

    def write(self, batches: Sequence[Written]) -> None:
        """Send batches, and collect the results of earlier ones."""
        for batch in batches:
            self._writer.send(batch.data, partial(self._answered, batch.events))
        self._writer.serve(0)

    def close(self, timeout_s: float) -> None:
        """Wait for acks; batches without an ack in time count as lost."""
        self._writer.close(timeout_s)

    def _answered(self, events: int, error: PublishFailedError | None) -> None:
        if error is None:
            self._trouble.ends()
            return
        self._lost += events
        self._trouble.begins(
            LogEvent.TRACE_EVENTS_LOST,
            f"trace: events are lost, {self._topic} does not accept them ({error.why}); the next"
            " events that arrive contain their number",
        )


class SpoolExporter:
    """Writes batches into the spool; another thread ships them."""

    def __init__(self, spool: Spool, shipping: SpoolShipper, ship_after_s: float):
        self._spool = spool
        self._shipping = shipping
        self._ship_after_s = ship_after_s
        self._held_bytes = 0
        """The last measurement: a hanging disk must not block the metrics."""

    @property
    def lost(self) -> int:
        """Return how many events the disk or, permanently, the broker refused."""
        return self._spool.lost + self._shipping.refused

    def figures(self) -> ExporterFigures:
        """Return losses by reason, waiting bytes, and how long exporting has been blocked."""
        return ExporterFigures(
            {"disk": self._spool.lost, "broker": self._shipping.refused},
            self._shipping.torn,
            self._held_bytes,
            max(self._spool.blocked_s, self._shipping.blocked_s),
        )

    def start(self) -> None:
        """Start to ship the files that earlier processes left."""
        self._shipping.start()

    def write(self, batches: Sequence[Written]) -> None:
        """Write batches to disk durably."""
        if batches:
            self._spool.append(batches)
        age_s = self._spool.age_s
        idle = not (self._shipping.busy or self._spool.finished)
        if age_s is not None and idle and age_s >= self._ship_after_s:
            self._spool.finish()
        self._measure()

    def close(self, timeout_s: float) -> None:
        """Ship as much as possible within this time; the next process ships the rest."""
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
    """Return the exporter: a spool if there is a directory (it ships with acks=all), else Kafka."""
    if directory is None:
        return KafkaExporter(make_writer(acks), topic, logger)
    spool = Spool(directory, max_bytes, logger)
    orphans = Orphans(directory, logger)
    shipping = SpoolShipper(spool.finished, orphans, partial(make_writer, "all"), topic, logger)
    return SpoolExporter(spool, shipping, ship_after_s)
