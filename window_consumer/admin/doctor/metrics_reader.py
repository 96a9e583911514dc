"""Observes workers through ``/metrics`` if no admin address is configured.

It provides the same figures, except what metrics must not contain: keys, offsets, stacks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from window_consumer.admin.doctor.samples import WorkerLook
from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.engine.windows_snapshot import (
    BreakerSnapshot,
    Lag,
    LoopSnapshot,
    PartitionSnapshot,
    WindowsSnapshot,
)
from window_consumer.model.outcome import OUTCOMES
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")

Figures = dict[str, list[tuple[Mapping[str, str], float]]]
"""The samples of one worker, by the metric's name without ``window_consumer_``."""


def worker_looks(text: str, at_s: float) -> list[WorkerLook]:
    """Return an observation of each worker; raise ValueError if the text is not a worker's."""
    workers: defaultdict[tuple[str, str], Figures] = defaultdict(lambda: defaultdict(list))
    for name, labels, value in _samples(text):
        if "worker" in labels:
            key = labels["worker"], labels.get("process", "")
            workers[key][name.removeprefix("window_consumer_")].append((labels, value))
    if not workers:
        raise ValueError("these are not a worker's metrics")
    return [_worker_look(*key, figures, at_s) for key, figures in workers.items()]


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        labels = {
            name: _ESCAPED.sub(_plain, value) for name, value in _LABEL.findall(found[2] or "")
        }
        try:
            yield found[1], labels, float(found[3])
        except ValueError:
            continue


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def _worker_look(worker: str, process: str, figures: Figures, at_s: float) -> WorkerLook:
    def one(name: str, default: float = 0.0) -> float:
        return sum(value for _, value in figures[name]) if figures[name] else default

    counters = Counters(
        rebalances=round(one("rebalances_total")),
        commits=round(one("commits_total")),
        commits_s=one("commits_waited_seconds_total"),
    )
    for row in OUTCOMES:
        if row.metric:
            counters.count(row, round(one(f"{row.metric.replace('.', '_')}_total")))
    windows = WindowsSnapshot(
        partitions=tuple(_partitions(figures)),
        calls=(),
        counters=counters,
        slots=round(one("concurrency_limit", 1)),
        durations=_histogram(figures, one("calls_computed_seconds_total")),
        breaker=BreakerSnapshot(_breaker_state(figures)),
        loop=LoopSnapshot(
            one("event_loop_computed_seconds_total"), one("event_loop_late_seconds_total")
        )
        if figures["event_loop_late_seconds_total"]
        else None,
    )
    is_ready = bool(one("worker_ready"))
    seen = WorkerSnapshot(
        name=worker,
        process=process,
        phase="running",
        is_ready=is_ready,
        catching_up=round(one("catch_up_records")) if figures["catch_up_records"] else None,
        windows=windows,
    )
    return WorkerLook(at_s, seen, windows, running=round(one("slots_busy")))


def _breaker_state(figures: Figures) -> BreakerState:
    on = {labels["state"] for labels, value in figures["breaker_state"] if value}
    return next((state for state in BreakerState if state in on), BreakerState.CLOSED)


def _histogram(figures: Figures, computed_s: float) -> Histogram:
    name = "messaging_process_duration_seconds"
    below = [value for _, value in figures[f"{name}_bucket"]]
    counts = [round(here - before) for before, here in zip([0.0, *below], below, strict=False)]
    if len(counts) != len(BOUNDS_S) + 1:
        counts = []
    return Histogram(tuple(counts), sum(value for _, value in figures[f"{name}_sum"]), computed_s)


def _partitions(figures: Figures) -> Iterator[PartitionSnapshot]:
    def of(name: str) -> dict[TopicPartition, float]:
        return {
            TopicPartition(labels["topic"], int(labels["partition"])): value
            for labels, value in figures[f"partition_{name}"]
        }

    lags, ages, buffered, paused = (
        of("lag"),
        of("lag_duration_seconds"),
        of("buffered"),
        of("paused"),
    )
    failed, hovering, lines = of("failed"), of("hovering_seconds"), of("longest_line")
    unread, rated, halted = of("unread"), of("waits_for_rate"), of("halted")
    for name, open_ in of("open").items():
        lag = round(lags[name]) if name in lags else None
        yield PartitionSnapshot(
            name=name,
            # Metrics do not say which topics are retry levels; the lag of those is due.
            level=name.topic.rpartition(".retry.")[2] if ".retry." in name.topic else None,
            lag=Lag(lag, ages.get(name, 0.0)),
            unread=round(unread[name]) if name in unread else None,
            open=round(open_),
            buffered=round(buffered.get(name, 0)),
            paused=bool(paused.get(name)),
            failed=round(failed.get(name, 0)),
            hovering_s=hovering.get(name, 0.0),
            longest_line=round(lines.get(name, 0)),
            waits_for_rate=bool(rated.get(name)),
            halted=bool(halted.get(name)),
        )
