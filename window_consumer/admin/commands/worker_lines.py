"""What the live view says of a worker, below its windows.

Names and texts come from clusters, records and other processes: they are sanitized here, and never
parsed as markup.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from window_consumer.admin.commands.screen import WorkerScene
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.engine.shares_snapshot import SharesSnapshot
from window_consumer.engine.windows_snapshot import (
    BreakerSnapshot,
    LimitSnapshot,
    ParkedKeys,
    WindowsSnapshot,
)
from window_consumer.model.outcome import OUTCOMES
from window_consumer.model.redaction import printable_line

_LONG_CALL_S: Final = 1.0
_SHOWN_CALLS: Final = 4
_PERCENTILES: Final = (50, 95, 99)


def line(text: str, style: str = "") -> Text:
    """Return a line of text that is safe to show."""
    return Text(printable_line(text), style=style)


def duration(seconds: float) -> str:
    """Format a duration as briefly as possible."""
    if seconds < 0.001:
        return "0 s" if seconds <= 0 else f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def worker_lines(worker: WorkerScene, most: int | None) -> Iterator[Text]:
    """Yield the lines below a worker's windows; lists have ``most`` entries, or all."""
    snapshot = worker.snapshot
    yield from _summary(worker)
    yield from _failures(snapshot)
    yield from _limit(snapshot.limit)
    yield from _breaker(snapshot.breaker)
    yield from _parked(snapshot.parked, most)
    yield from _shares(snapshot.shares, most)
    yield from _long_calls(snapshot)


def _summary(worker: WorkerScene) -> Iterator[Text]:
    snapshot = worker.snapshot
    did = snapshot.counters
    rate = "" if worker.per_s is None else f" ({worker.per_s:,.0f}/s)"
    state = f"{worker.state}; " if worker.state else ""
    state += "".join(f"{each.text}; " for each in snapshot.findings)
    by_rule = any(each.pauses for each in snapshot.findings)
    if snapshot.halted:
        pause = snapshot.pause
        who = "" if pause is None else pause.words(duration(pause.seconds))
        state += f"paused {'for that' if by_rule else f'manually{who}'}; "
    beside = "".join(
        f", {number} {row.words}"
        for row in OUTCOMES
        if row.is_beside_done and (number := getattr(did, row.counter))
    )
    yield line(
        f"  {state}{did.processed} processed{rate}, {did.retried} retried,"
        f" {did.dead_lettered} dead-lettered{beside}; {snapshot.busy} of"
        f" {snapshot.limit_now} slots busy"
    )
    yield line(f"  {_behind(snapshot)}; {_took(snapshot, worker.durations)}")
    if worker.busy_ratio is not None and worker.time_to_drain_s is not None:
        takes = f"at that pace the lag takes {duration(worker.time_to_drain_s)}"
        if math.isinf(worker.time_to_drain_s):
            takes = "no progress, so the lag stays"
        yield line(f"  in the last minute {worker.busy_ratio:.0%} busy; {takes}")


def _behind(snapshot: WindowsSnapshot) -> str:
    lags = [each.lag for each in snapshot.partitions]
    known = [lag.records for lag in lags if lag.records is not None]
    seconds = max((lag.seconds for lag in lags), default=0.0)
    least = "at least " if len(known) < len(lags) else ""
    return f"lag {least}{sum(known)} records, {duration(seconds)}"


def _took(snapshot: WindowsSnapshot, histogram: Histogram | None) -> str:
    if histogram is None or not histogram.calls:
        did = snapshot.counters
        if not (did.finished or did.retried):
            return "no calls yet"
        return f"{snapshot.cost_s * 1000:.1f} ms a call"
    return "calls " + " ".join(_percentile(histogram, each) for each in _PERCENTILES)


def _percentile(histogram: Histogram, percent: int) -> str:
    seconds = histogram.quantile(percent / 100) or 0.0
    beyond = ">" if seconds >= BOUNDS_S[-1] else ""
    return f"p{percent} {beyond}{duration(seconds)}"


def _failures(snapshot: WindowsSnapshot) -> Iterator[Text]:
    did = snapshot.counters
    parts = [
        f"{what}: {_counted(by)}"
        for what, by in (("to retry topics", did.moved_to), ("dead letters", did.dead_by))
        if by
    ]
    waiting = sum(each.failed for each in snapshot.partitions)
    if waiting:
        parts.append(f"{waiting} wait for their next call or ack")
    if parts:
        yield line(f"  {'; '.join(parts)}", "yellow")


def _counted(by: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in by.most_common())


def _limit(limit: LimitSnapshot | None) -> Iterable[Text]:
    if limit is not None and limit.manual is not None:
        lasts = limit.manual.words(duration(limit.manual.seconds))
        yield line(f"  concurrency {limit.limit}, set manually{lasts}", "yellow")
    elif limit is not None:
        yield line(f"  concurrency {limit.settled}: {limit.why}", "dim")


def _breaker(breaker: BreakerSnapshot) -> Iterable[Text]:
    if breaker.state is not BreakerState.CLOSED:
        failed = f"{breaker.failed} of {breaker.calls} calls failed"
        yield line(
            f"  breaker {breaker.state} for {duration(breaker.seconds or 0.0)}:"
            f" {breaker.why or failed}",
            "bold red",
        )


def _parked(parked: ParkedKeys | None, most: int | None) -> Iterable[Text]:
    if parked is None or not parked.followers:
        return
    yield line(
        f"  keys in the ladder: {parked.keys}; records behind the first of theirs:"
        f" {parked.followers}",
        "yellow",
    )
    for each in parked.longest[:most]:
        yield line(
            f"    key {each.key!r}, {duration(each.in_ladder_s)}: {each.followers} wait behind"
            f" {each.name}@{each.offset}",
            "yellow",
        )


def _shares(shares: SharesSnapshot | None, most: int | None) -> Iterable[Text]:
    if shares is None or not shares.largest:
        return
    further = f"; records of further classes: {shares.overflow}" if shares.overflow else ""
    yield line(f"  classes that share the slots ({shares.order}): {shares.classes}{further}", "dim")
    for each in shares.largest[:most]:
        starved = f", no call for {duration(each.starved_s)}" if each.starved_s > 1 else ""
        yield line(
            f"    {each.name}: {each.slots} running, {each.waiting} waiting,"
            f" {duration(each.used_s)} used{starved}",
            "red" if starved else "dim",
        )


def _long_calls(snapshot: WindowsSnapshot) -> Iterable[Text]:
    long = sorted(
        (call for call in snapshot.calls if call.seconds >= _LONG_CALL_S),
        key=lambda call: -call.seconds,
    )
    for call in long[:_SHOWN_CALLS]:
        yield line(
            f"  {call.name}@{call.offset} attempt {call.attempt} has been running for"
            f" {call.seconds:.1f} s{', abandoned' if call.abandoned else ''}",
            "red",
        )
