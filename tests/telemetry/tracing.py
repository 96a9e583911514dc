"""Shared by the trace's tests: an Engine that is driven by hand, and a sink that keeps events."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tests.engine.driver import Driven
from window_consumer.model.key_forms import KeyForm, as_text
from window_consumer.trace.event import Role, TraceEvent
from window_consumer.trace.event_batch import decoded
from window_consumer.trace.recording.exporter import ExporterFigures, Written
from window_consumer.trace.recording.inbox import EventOrigin
from window_consumer.trace.recording.worker_trace import ConsumerTrace
from window_consumer.trace.recording.writer import TraceWriter
from window_consumer.trace.sampling import Sampling

ABOUT = EventOrigin(Role.CONSUMER, group="shop", worker="charge", client_id="wc-charge")
LOGGER = logging.getLogger("window_consumer")


class Kept:
    """A sink that keeps its events."""

    def __init__(self) -> None:
        self.batches: list[Written] = []
        self.lost = 0

    def figures(self) -> ExporterFigures:
        """Only the writer's losses matter."""
        return ExporterFigures()

    def start(self) -> None:
        """Nothing to begin."""

    def write(self, batches: Sequence[Written]) -> None:
        """Keep them."""
        self.batches += batches

    def close(self, timeout_s: float) -> None:
        """Nothing to end."""

    @property
    def events(self) -> list[TraceEvent]:
        """All events so far, in their order."""
        return [event for batch in self.batches for event in decoded(batch.data)]


class Traced:
    """An Engine whose records are traced."""

    def __init__(
        self,
        sampling: Sampling | None = None,
        form: KeyForm | None = as_text,
        *,
        all_failures: bool = True,
        **rules: Any,
    ):
        self.way = Kept()
        self.writer = TraceWriter(self.way, form, 1.0, LOGGER)
        self.driven = Driven(**rules)
        self.trace = ConsumerTrace(
            self.writer,
            ABOUT,
            sampling or Sampling(),
            all_failures=all_failures,
            handlers=["charge"],
        )
        self.driven.engine.observe(self.trace)
        for partition in self.driven.engine.partitions.values():
            self.trace.assigned(partition, self.driven.now)

    def events(self, *steps: str) -> list[TraceEvent]:
        """Return the events written so far, in the order of time and offset."""
        self.writer.flush()
        found = sorted(self.way.events, key=lambda event: (event.time_us, event.offset or 0))
        return [event for event in found if not steps or event.step in steps]

    def run(self) -> None:
        """Let all that was delivered be handled, and time pass."""
        self.driven.tick()
        self.driven.finish_all()
        self.driven.tick(1.0)
