"""The input of metrics: the snapshot of a worker, and cumulative figures."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Final, TypeVar

from attrs import evolve, frozen

from window_consumer.engine.counters import Counters
from window_consumer.engine.latency_histogram import Histogram
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.trend import EVERY_S, Trend, TrendSample
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot
from window_consumer.runtime.running import Running
from window_consumer.runtime.worker import Worker

F = TypeVar("F")

_SNAPSHOT_S: Final = 0.5
"""A poll thread that takes longer is omitted, because probes give up after a second."""

_KEPT_S: Final = 0.5
"""How long snapshots are reused: hundreds of requests cost the poll thread as much as one."""


@frozen
class FeatureFigures:
    """The figures of features, each of its own class."""

    _found: tuple[object, ...] = ()

    def of(self, kind: type[F]) -> F | None:
        """Return the figures of this class, None without any."""
        return next((each for each in self._found if isinstance(each, kind)), None)


@frozen
class Measures:
    """One worker at one moment."""

    snapshot: WorkerSnapshot
    """Has no windows if the poll thread did not answer in time, or was not asked."""
    counters: Counters
    ordering: str = "unordered"
    events_lost: int = 0
    """The number of events that were lost to exceptions of observers."""
    features: FeatureFigures = FeatureFigures()
    """Those of the worker."""
    durations: Histogram | None = None
    """The durations of calls if there are no windows."""
    of_process: FeatureFigures = FeatureFigures()
    """The same for all workers of an application."""

    @property
    def worker(self) -> str:
        """The worker's name."""
        return self.snapshot.name

    @property
    def windows(self) -> WindowsSnapshot | None:
        """The windows, as shown by its poll thread."""
        return self.snapshot.windows


class MeasuredWorkers:
    """The workers of this process, as metrics see them. Any thread may ask."""

    def __init__(
        self,
        labels: Mapping[str, str] = MappingProxyType({}),
        figures: Callable[[], FeatureFigures] = FeatureFigures,
        figures_of: Callable[[str], FeatureFigures] = lambda _worker: FeatureFigures(),
    ):
        self.labels = labels
        """Labels that distinguish this process's metrics from others."""
        self._figures = figures
        """Returns those of the whole process."""
        self._figures_of = figures_of
        self._running: Running | None = None
        self._lock = threading.Lock()
        self._windows: dict[str, WindowsSnapshot] = {}
        self._windows_at = float("-inf")
        self._trends: defaultdict[str, Trend] = defaultdict(Trend)
        self._sampled_at = monotonic()

    @property
    def each(self) -> Sequence[Worker]:
        """The workers; none before they start."""
        return () if self._running is None else self._running.workers

    def attach(self, running: Running) -> None:
        """Measure these workers; before that there are none."""
        self._running = running

    def run_periodic(self) -> None:
        """Take a sample if one is due; call this every second or so."""
        with self._lock:
            now = monotonic()
            if now - self._sampled_at >= EVERY_S and self._running is not None:
                self._sampled_at = now
                for name, windows in self._running.snapshots(_SNAPSHOT_S).items():
                    self._trends[name].add(TrendSample.of(now, windows))

    def measures(self, *, with_windows: bool = True) -> list[Measures]:
        """Return the workers' state and counters; ended workers have no windows."""
        with self._lock:
            windows = self._fresh_windows() if with_windows else {}
            shared = self._figures()
            return [
                self._measures(worker, windows.get(worker.name), shared) for worker in self.each
            ]

    def _measures(
        self, worker: Worker, windows: WindowsSnapshot | None, shared: FeatureFigures
    ) -> Measures:
        seen = evolve(worker.outline(), windows=windows)
        return Measures(
            self._trends[worker.name].added_to(seen),
            worker.counters.copy(),
            worker.setup.engine.ordering,
            events_lost=worker.events_lost,
            features=self._figures_of(worker.name),
            durations=worker.durations,
            of_process=shared,
        )

    def _fresh_windows(self) -> dict[str, WindowsSnapshot]:
        if self._running is not None and monotonic() - self._windows_at > _KEPT_S:
            self._windows = dict(self._running.snapshots(_SNAPSHOT_S))
            self._windows_at = monotonic()
        return self._windows
