"""The list of a worker's metrics, which everything that shows or documents them uses.

Names and units follow OpenTelemetry (dots, UCUM units); ``exposition`` converts them to Prometheus'
names. Labels have few values: workers, topics, partitions, levels, reasons, states. They never hold
keys, offsets or error texts. Features have their own lists, in their ``metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitCause
from window_consumer.engine.windows_snapshot import LoopSnapshot, WindowsSnapshot
from window_consumer.metrics.class_metrics import CLASS_METRICS
from window_consumer.metrics.partition_metrics import PARTITION_METRICS
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import OUTCOMES, Outcome
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Convention, Metric, MetricKind, Sample


def _count(name: str, unit: str, meaning: str, of: Callable[[Counters], float]) -> Metric:
    """Return a metric for a counter."""
    return Metric(
        f"window_consumer.{name}",
        MetricKind.COUNTER,
        unit,
        meaning,
        lambda measures: [((), of(measures.counters))],
    )


def _by_level(measures: Measures) -> Iterator[Sample]:
    for level, count in sorted(measures.counters.moved_to.items()):
        yield (level,), count


def _by_reason(measures: Measures) -> Iterator[Sample]:
    for reason in Reason:
        yield (reason.value,), measures.counters.dead_by[reason.value]


_LABELLED: Final = {"moved": ("level", _by_level), "dead_lettered": ("reason", _by_reason)}
"""Counters of outcomes with a label: the label, and how its samples are read."""


def _of_outcome(row: Outcome) -> Metric:
    """Return the metric of an outcome's counter."""
    if row.counter not in _LABELLED:
        return _count(row.metric, "{record}", row.help, attrgetter(row.counter))
    label, read = _LABELLED[row.counter]
    name = f"window_consumer.{row.metric}"
    return Metric(name, MetricKind.COUNTER, "{record}", row.help, read, (label,))


def _gauge(name: str, unit: str, meaning: str, of: Callable[[WindowsSnapshot], float]) -> Metric:
    """Return a metric for a figure of the windows."""

    def read(measures: Measures) -> Iterator[Sample]:
        if measures.windows is not None:
            yield (), of(measures.windows)

    return Metric(f"window_consumer.{name}", MetricKind.GAUGE, unit, meaning, read)


def _breaker(measures: Measures) -> Iterator[Sample]:
    if measures.windows is not None:
        for state in BreakerState:
            yield (state.value,), float(measures.windows.breaker.state is state)


def _settled(measures: Measures) -> Iterator[Sample]:
    limit = None if measures.windows is None else measures.windows.limit
    if limit is not None and limit.adapts:
        yield (), limit.settled


def _limit_changes(measures: Measures) -> Iterator[Sample]:
    limit = None if measures.windows is None else measures.windows.limit
    if limit is not None and limit.adapts:
        for cause in LimitCause:
            yield (cause.value,), measures.counters.limit_changes[cause]


def _known(figure: float | None) -> Iterable[Sample]:
    return [] if figure is None else [((), figure)]


def _of_loop(measures: Measures, of: Callable[[LoopSnapshot], float]) -> Iterable[Sample]:
    loop = None if measures.windows is None else measures.windows.loop
    return [] if loop is None else [((), of(loop))]


def _durations(measures: Measures) -> Iterator[Sample]:
    if measures.durations is not None:
        yield (), measures.durations
    elif measures.windows is not None:
        yield (), measures.windows.durations


METRICS: tuple[Metric, ...] = (
    Metric(
        "window_consumer.worker.ready",
        MetricKind.GAUGE,
        "1",
        "1 while the worker is in its group, with or without partitions; else 0. With"
        " delivery: broadcast, 1 once it has handled its initial backlog.",
        lambda measures: [
            ((measures.snapshot.group, measures.ordering), float(measures.snapshot.is_ready))
        ],
        ("group", "ordering"),
    ),
    Metric(
        "window_consumer.catch_up.records",
        MetricKind.GAUGE,
        "{record}",
        "How many records a worker with delivery: broadcast must handle before it is ready.",
        lambda measures: _known(measures.snapshot.catching_up),
    ),
    Metric(
        "window_consumer.poll.silence",
        MetricKind.GAUGE,
        "s",
        "How long the poll thread has shown no activity; /livez fails after 60 s.",
        lambda measures: [((), measures.snapshot.silent_s)],
    ),
    Metric(
        "window_consumer.records.delivered",
        MetricKind.COUNTER,
        "{record}",
        "Records that were read.",
        lambda measures: [((), measures.counters.delivered)],
        convention=Convention(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        ),
    ),
    *map(_of_outcome, (row for row in OUTCOMES if row.metric)),
    _count(
        "records.produced",
        "{record}",
        "Records that handlers returned and that were acked.",
        lambda did: did.produced,
    ),
    _count(
        "calls.retried",
        "{call}",
        "Repeated calls of a handler after a failure, in the same process.",
        lambda did: did.retried,
    ),
    _count(
        "records.gone",
        "{record}",
        "Offsets that the log had deleted before they were read (retention), or that"
        " on_out_of_range: latest skipped.",
        lambda did: did.gone,
    ),
    _count(
        "records.taken_back",
        "{record}",
        "Records that moved to another slot, because an earlier one is slow.",
        lambda did: did.taken_back,
    ),
    _count(
        "results.late",
        "{record}",
        "Ignored results: their partition was lost, or their call was abandoned.",
        lambda did: did.late,
    ),
    _count(
        "calls.outlived",
        "{call}",
        "Calls that were still running when their partition was given up.",
        lambda did: did.outlived,
    ),
    _count(
        "calls.stalled",
        "{call}",
        "Calls that did not return in time and were reported.",
        lambda did: did.stalled,
    ),
    _count(
        "calls.abandoned",
        "{call}",
        "Calls that did not return in time and were abandoned.",
        lambda did: did.abandoned,
    ),
    _count(
        "publish.failures",
        "{attempt}",
        "Copies and results that the broker did not ack; each is retried.",
        lambda did: did.publish_failures,
    ),
    _count("commits", "{commit}", "Acked commits of a partition.", lambda did: did.commits),
    _count(
        "commits.failures",
        "{commit}",
        "Commits that failed; the next one includes their content.",
        lambda did: did.commit_failures,
    ),
    _count(
        "commits.waited",
        "s",
        "Total time from sending commits to receiving their acks.",
        lambda did: did.commits_s,
    ),
    _count(
        "transactions",
        "{transaction}",
        "Committed transactions, with delivery: exactly_once.",
        lambda did: did.transactions,
    ),
    _count(
        "transactions.aborted",
        "{transaction}",
        "Transactions whose results and offsets are not visible; their records run again.",
        lambda did: did.transactions_aborted,
    ),
    _count(
        "transactions.waited",
        "s",
        "Total time from freezing transactions to their commits, while results wait.",
        lambda did: did.transactions_s,
    ),
    _count(
        "rebalances",
        "{time}",
        "How often partitions were assigned to the worker, or taken from it.",
        lambda did: did.rebalances,
    ),
    _count(
        "breaker.opened",
        "{time}",
        "How often the circuit breaker has opened.",
        lambda did: did.breaker_opened,
    ),
    Metric(
        "messaging.process.duration",
        MetricKind.HISTOGRAM,
        "s",
        "How long handler calls take; fast ones, which run many in a row, count with their mean.",
        _durations,
    ),
    Metric(
        "window_consumer.calls.computed",
        MetricKind.COUNTER,
        "s",
        "Total processor time of handler calls on threads; 0 for other calls.",
        lambda measures: _known(
            None if measures.windows is None else measures.windows.durations.computed_s
        ),
    ),
    Metric(
        "window_consumer.event_loop.computed",
        MetricKind.COUNTER,
        "s",
        "Processor time of the event loop of coroutines.",
        lambda measures: _of_loop(measures, lambda loop: loop.computed_s),
    ),
    Metric(
        "window_consumer.event_loop.late",
        MetricKind.COUNTER,
        "s",
        "How late the turns of the coroutines' event loop were: calls block it, or compute.",
        lambda measures: _of_loop(measures, lambda loop: loop.late_s),
    ),
    Metric(
        "window_consumer.busy_ratio",
        MetricKind.GAUGE,
        "1",
        "The share of the slots' time spent in calls in the last minute.",
        lambda measures: _known(measures.snapshot.busy_ratio),
    ),
    Metric(
        "window_consumer.time_to_drain",
        MetricKind.GAUGE,
        "s",
        "How long the lag would take at the pace of the last minute; +Inf if nothing finished"
        " in it. Records that are not due do not count.",
        lambda measures: _known(measures.snapshot.drain_s),
    ),
    _gauge(
        "worker.halted",
        "1",
        "1 while the worker is manually paused.",
        lambda windows: float(windows.halted),
    ),
    _gauge("slots", "{slot}", "Calls that may run at once.", lambda windows: windows.slots),
    _gauge(
        "slots.busy",
        "{slot}",
        "Calls that are running, without abandoned ones.",
        lambda windows: windows.running,
    ),
    _gauge(
        "slots.abandoned",
        "{call}",
        "Abandoned calls that have not returned.",
        lambda windows: windows.abandoned,
    ),
    _gauge(
        "concurrency.limit",
        "{slot}",
        "How many slots may be busy now; differs from the slots with concurrency: auto, and after"
        " a user has set it.",
        lambda windows: windows.limit_now,
    ),
    Metric(
        "window_consumer.concurrency.settled",
        MetricKind.GAUGE,
        "{slot}",
        "With concurrency: auto, the best number of slots found; the limit tries others.",
        _settled,
    ),
    Metric(
        "window_consumer.concurrency.changes",
        MetricKind.COUNTER,
        "{change}",
        "With concurrency: auto, how often a better number was found, by reason.",
        _limit_changes,
        ("reason",),
    ),
    Metric(
        "window_consumer.breaker.state",
        MetricKind.GAUGE,
        "1",
        "1 for the circuit breaker's state, 0 for the others.",
        _breaker,
        ("state",),
    ),
    Metric(
        "window_consumer.telemetry.events.lost",
        MetricKind.COUNTER,
        "{event}",
        "Events missing in traces, audits and spans because one of them failed.",
        lambda measures: [((), measures.events_lost)],
    ),
    *CLASS_METRICS,
    *PARTITION_METRICS,
)
