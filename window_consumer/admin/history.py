"""What a worker was like over the last minutes, a sample every few seconds, for charts."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

from window_consumer.engine.snapshot import Snapshot
from window_consumer.runtime.trend import (
    Sample,
    Trend,
)

EVERY_S: Final = 2.0
KEPT: Final = 300
"""Ten minutes of them."""

_SHARES: Final = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}


class History:
    """The samples of one worker, oldest first. Its owner lets one thread at a time in."""

    def __init__(self, slots: int):
        self._slots = slots
        self._trend = Trend()
        self._last: tuple[float, Snapshot] | None = None
        self.samples: deque[dict[str, Any]] = deque(maxlen=KEPT)
        """Rates are a second, of what came since the sample before."""

    def add(self, at_ms: float, picture: Snapshot) -> None:
        """Add what a worker is like now."""
        self._trend.add(Sample.of(at_ms / 1000, picture.counters, picture))
        if self._last is not None and at_ms > self._last[0]:
            seconds = (at_ms - self._last[0]) / 1000
            self.samples.append(
                {"t": at_ms, **_now(picture), **_since(self._last[1], picture, seconds)}
            )
        self._last = at_ms, picture

    def after(self, at_ms: float) -> list[dict[str, Any]]:
        """Return the samples that are later."""
        if not self.samples or self.samples[-1]["t"] <= at_ms:
            return []
        return [sample for sample in self.samples if sample["t"] > at_ms]

    def busy_ratio(self) -> float | None:
        """Return the share of the slots' time that calls took in the last minute."""
        return self._trend.busy_ratio(self._slots)

    def drain(self, picture: Snapshot | None) -> dict[str, float | bool | None]:
        """Return how long all that lags would take at the pace of the last minute, for JSON.

        There is no infinity in JSON: where something lags and nothing was finished, it ``stands
        still`` and has no time.
        """
        seconds = None if picture is None else self._trend.time_to_drain_s(picture)
        stands_still = seconds is not None and math.isinf(seconds)
        return {"time_to_drain_s": None if stands_still else seconds, "stands_still": stands_still}


def _now(picture: Snapshot) -> dict[str, Any]:
    lags = [each.lag for each in picture.partitions]
    known = [each.records for each in lags if each.records is not None]
    return {
        "lag": sum(known) if len(known) == len(lags) else None,
        "lag_s": max((each.seconds for each in lags), default=0.0),
        "busy": min(picture.slots, sum(not call.abandoned for call in picture.calls)),
        "limit": picture.slots if picture.limit is None else picture.limit.limit,
        "breaker": picture.breaker.state.value,
    }


def _since(before: Snapshot, picture: Snapshot, seconds: float) -> dict[str, Any]:
    then, did = before.counters, picture.counters
    calls = picture.durations.since(before.durations)
    return {
        "rate": max(0, did.processed - then.processed) / seconds,
        "retried": max(0, did.retried - then.retried) / seconds,
        "moved": _rates(then.moved_to, did.moved_to, seconds),
        "dead": _rates(then.dead_by, did.dead_by, seconds),
        **{name: calls.quantile(share) for name, share in _SHARES.items()},
    }


def _rates(before: Counter[str], after: Counter[str], seconds: float) -> Mapping[str, float]:
    return {name: max(0, count - before[name]) / seconds for name, count in after.items()}
