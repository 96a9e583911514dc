"""A worker's figures over the last minutes, sampled every few seconds for charts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.runtime.figures.trend import Trend, TrendSample
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

EVERY_S: Final = 2.0
KEPT: Final = 300
"""Ten minutes of samples."""

_SHARES: Final = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}


class SampleHistory:
    """The samples of one worker, oldest first. Not thread-safe: its owner serializes access."""

    def __init__(self) -> None:
        self._trend = Trend()
        self._last: tuple[float, WindowsSnapshot] | None = None
        self.samples: deque[dict[str, Any]] = deque(maxlen=KEPT)
        """Rates are per second, since the previous sample."""

    def add(self, at_ms: float, windows: WindowsSnapshot) -> None:
        """Add a sample."""
        self._trend.add(TrendSample.of(at_ms / 1000, windows))
        if self._last is not None and at_ms > self._last[0]:
            seconds = (at_ms - self._last[0]) / 1000
            self.samples.append(
                {"t": at_ms, **_now(windows), **_since(self._last[1], windows, seconds)}
            )
        self._last = at_ms, windows

    def after(self, at_ms: float) -> list[dict[str, Any]]:
        """Return the samples after a time."""
        if not self.samples or self.samples[-1]["t"] <= at_ms:
            return []
        return [sample for sample in self.samples if sample["t"] > at_ms]

    def added_to(self, seen: WorkerSnapshot) -> WorkerSnapshot:
        """Return a snapshot with the last minute's figures added."""
        return self._trend.added_to(seen)


def _now(windows: WindowsSnapshot) -> dict[str, Any]:
    return {
        "lag": windows.lag,
        "lag_s": max((each.lag.seconds for each in windows.partitions), default=0.0),
        "busy": windows.busy,
        "limit": windows.limit_now,
        "breaker": windows.breaker.state.value,
    }


def _since(before: WindowsSnapshot, windows: WindowsSnapshot, seconds: float) -> dict[str, Any]:
    then, did = before.counters, windows.counters
    calls = windows.durations.since(before.durations)
    return {
        "rate": max(0, did.processed - then.processed) / seconds,
        "retried": max(0, did.retried - then.retried) / seconds,
        "moved": _rates(then.moved_to, did.moved_to, seconds),
        "dead": _rates(then.dead_by, did.dead_by, seconds),
        **{name: calls.quantile(share) for name, share in _SHARES.items()},
    }


def _rates(before: Counter[str], after: Counter[str], seconds: float) -> Mapping[str, float]:
    return {name: max(0, count - before[name]) / seconds for name, count in after.items()}
