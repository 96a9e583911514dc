"""Whether a process is live and ready, and its metrics: answers for probes and scrapers.

A failed *live* probe kills the process, so only a hanging poll thread fails it. A new process would
not fix failures, hanging calls or an absent broker. A rolling update waits for *ready*.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Final

from attrs import evolve

from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.metrics import exposition
from window_consumer.runtime.figures.measures import (
    RELAY_FAILED,
    Measures,
    ProcessFigures,
    SpanFigures,
)
from window_consumer.runtime.figures.trend import EVERY_S, Trend, TrendSample
from window_consumer.runtime.poll_loop import Phase
from window_consumer.runtime.replica import HttpAnswer
from window_consumer.runtime.running import Running
from window_consumer.runtime.worker import Worker, is_ready

SILENT_S: Final = 60.0
"""A poll thread that did nothing for this long hangs. It waits for tenths of a second where it can
choose, and for some seconds if the cluster does not answer.
"""

_SNAPSHOT_S: Final = 0.5
"""A poll thread that takes longer is left out, because probes give up after a second."""

_KEPT_S: Final = 0.5
"""How long snapshots are reused: hundreds of requests cost the poll thread no more than one."""


class Health:
    """Answers for the workers of this process. Any thread may ask."""

    def __init__(self, labels: Mapping[str, str] = MappingProxyType({})):
        self.labels = labels
        """Labels that distinguish this process's metrics from others."""
        self.spans_of: Callable[[str], SpanFigures | None] = lambda _worker: None
        """Returns what became of a worker's spans."""
        self.of_process: Callable[[], ProcessFigures] = ProcessFigures
        """Returns the figures of the whole process."""
        self._running: Running | None = None
        self._lock = threading.Lock()
        self._windows: dict[str, WindowsSnapshot] = {}
        self._windows_at = float("-inf")
        self._trends: defaultdict[str, Trend] = defaultdict(Trend)
        self._sampled_at = monotonic()

    def run_periodic(self) -> None:
        """Take a sample if one is due; call this every second or so."""
        with self._lock:
            now = monotonic()
            if now - self._sampled_at >= EVERY_S and self._running is not None:
                self._sampled_at = now
                for name, windows in self._running.snapshots(_SNAPSHOT_S).items():
                    self._trends[name].add(TrendSample.of(now, windows))

    def attach(self, running: Running) -> None:
        """Answer for these workers; before that, the process is only live."""
        self._running = running

    def live(self) -> HttpAnswer:
        """Answer ``/livez``: 503 if a poll thread did nothing for ``SILENT_S``."""
        hung = [worker for worker in self._workers if self._hangs(worker)]
        if not hung:
            return HttpAnswer(200, "live\n")
        return HttpAnswer(503, "".join(f"{_silence(worker)}\n" for worker in hung))

    def ready(self) -> HttpAnswer:
        """Answer ``/readyz``: 503 if a worker is not in its group, or is stopping.

        It is also 503 if the producer of its copies has given up, or the outbox relay failed.
        """
        workers = self._workers
        lines = [f"{worker.name}: {_state(worker)}" for worker in workers]
        outbox = self.of_process().outbox
        failure = None if outbox is None else outbox.failure
        if failure is not None:
            lines.append(f"{RELAY_FAILED}{failure}")
        elif workers and all(is_ready(each.loop) and each.cannot_write is None for each in workers):
            return HttpAnswer(200, "".join(f"{line}\n" for line in lines))
        return HttpAnswer(503, "".join(f"{line}\n" for line in lines or ["starting"]))

    def metrics(self) -> HttpAnswer:
        """Answer ``/metrics``."""
        text = exposition.exposition(self.measures(), common=self.labels)
        return HttpAnswer(200, text, exposition.CONTENT_TYPE)

    def measures(self, *, with_windows: bool = True) -> list[Measures]:
        """Return the workers' state and counters; ended workers have no windows."""
        with self._lock:
            windows = self._fresh_windows() if with_windows else {}
            shared = self.of_process()
            return [
                self._measures(worker, windows.get(worker.name), shared) for worker in self._workers
            ]

    def _measures(
        self, worker: Worker, windows: WindowsSnapshot | None, shared: ProcessFigures
    ) -> Measures:
        seen = evolve(worker.outline(), windows=windows)
        return Measures(
            self._trends[worker.name].added_to(seen),
            worker.counters.copy(),
            worker.setup.engine.ordering,
            events_lost=worker.events_lost,
            spans=self.spans_of(worker.name),
            durations=worker.durations,
            of_process=shared,
        )

    @property
    def _workers(self) -> Sequence[Worker]:
        return () if self._running is None else self._running.workers

    @staticmethod
    def _hangs(worker: Worker) -> bool:
        thread = worker.loop.thread
        return thread.is_alive() and worker.loop.silent_s > SILENT_S

    def _fresh_windows(self) -> dict[str, WindowsSnapshot]:
        if self._running is not None and monotonic() - self._windows_at > _KEPT_S:
            self._windows = dict(self._running.snapshots(_SNAPSHOT_S))
            self._windows_at = monotonic()
        return self._windows


def _state(worker: Worker) -> str:
    if worker.loop.phase is not Phase.RUNNING:
        return str(worker.loop.phase.value)
    state = "in its group" if worker.loop.in_group else "not in its group"
    trouble = worker.cannot_write
    return state if trouble is None else f"{state}, cannot write copies: {trouble}"


def _silence(worker: Worker) -> str:
    return f"{worker.name}: its poll thread has stood still for {worker.loop.silent_s:.0f} s"
