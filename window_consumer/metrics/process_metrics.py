"""Metrics of a whole process: what became of the message trace and of the audit.

All workers of a process share them, so they have no label ``worker``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from window_consumer.runtime.figures.measures import (
    AuditFigures,
    Measures,
    OutboxFigures,
    TraceFigures,
)
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample


def _of_trace(
    name: str, kind: MetricKind, unit: str, meaning: str, of: Callable[[TraceFigures], float | None]
) -> Metric:
    """Return a metric for a figure of the message trace."""

    def read(measures: Measures) -> Iterable[Sample]:
        trace = measures.of_process.of(TraceFigures)
        return [] if trace is None else [] if (figure := of(trace)) is None else [((), figure)]

    return Metric(f"window_consumer.trace.{name}", kind, unit, meaning, read, of_process=True)


def _of_audit(
    name: str, kind: MetricKind, unit: str, meaning: str, of: Callable[[AuditFigures], float]
) -> Metric:
    """Return a metric for a figure of the audit."""

    def read(measures: Measures) -> Iterable[Sample]:
        audit = measures.of_process.of(AuditFigures)
        return [] if audit is None else [((), of(audit))]

    return Metric(f"window_consumer.audit.{name}", kind, unit, meaning, read, of_process=True)


def _of_outbox(
    name: str, kind: MetricKind, unit: str, meaning: str, of: Callable[[OutboxFigures], float]
) -> Metric:
    """Make a metric of a figure of the outbox."""

    def read(measures: Measures) -> Iterable[Sample]:
        outbox = measures.of_process.of(OutboxFigures)
        return [] if outbox is None else [((), of(outbox))]

    return Metric(f"window_consumer.outbox.{name}", kind, unit, meaning, read, of_process=True)


def _lost_events(measures: Measures) -> Iterable[Sample]:
    trace = measures.of_process.of(TraceFigures)
    return [] if trace is None else [((why,), count) for why, count in trace.lost.items()]


def _lost_counts(measures: Measures) -> Iterable[Sample]:
    audit = measures.of_process.of(AuditFigures)
    return [] if audit is None else [((why,), count) for why, count in audit.lost.items()]


OF_PROCESS: Final[tuple[Metric, ...]] = (
    _of_trace(
        "events",
        MetricKind.COUNTER,
        "{event}",
        "Events of the message trace that were handed to their way out.",
        lambda trace: trace.written,
    ),
    Metric(
        "window_consumer.trace.dropped",
        MetricKind.COUNTER,
        "{event}",
        "Events of the message trace that nobody gets: they found no room in memory (memory) or on"
        " disk (disk), could not be made a batch of (made), or the brokers did not take them"
        " (broker).",
        _lost_events,
        ("reason",),
        of_process=True,
    ),
    _of_trace(
        "torn",
        MetricKind.COUNTER,
        "{batch}",
        "Batches of the message trace of which an earlier process had written only a part.",
        lambda trace: trace.torn,
    ),
    _of_trace(
        "held",
        MetricKind.GAUGE,
        "By",
        "What lies in the spool of the message trace, of all processes that use its directory.",
        lambda trace: trace.held_bytes,
    ),
    _of_trace(
        "blocked",
        MetricKind.GAUGE,
        "s",
        "For how long no event of the message trace has got away, 0 while they do.",
        lambda trace: trace.blocked_s,
    ),
    _of_audit(
        "counts",
        MetricKind.COUNTER,
        "{count}",
        "Counts of the audit that its topic has taken.",
        lambda audit: audit.shipped,
    ),
    Metric(
        "window_consumer.audit.dropped",
        MetricKind.COUNTER,
        "{record}",
        "Records that the audit misses: their counts could not be written down (disk), or too many"
        " were on their way at once (sends).",
        _lost_counts,
        ("reason",),
        of_process=True,
    ),
    _of_audit(
        "torn",
        MetricKind.COUNTER,
        "{line}",
        "Lines of the audit's log that could not be read.",
        lambda audit: audit.torn,
    ),
    _of_audit(
        "held",
        MetricKind.GAUGE,
        "By",
        "Counts that this process has in its log, because its topic has not taken them yet.",
        lambda audit: audit.held_bytes,
    ),
    _of_audit(
        "blocked",
        MetricKind.GAUGE,
        "s",
        "For how long the topic of the audit has taken nothing, 0 while it does.",
        lambda audit: audit.blocked_s,
    ),
    _of_outbox(
        "sent",
        MetricKind.COUNTER,
        "{row}",
        "Rows of the outbox that this process has sent, and Kafka has acknowledged.",
        lambda outbox: outbox.sent,
    ),
    _of_outbox(
        "refused",
        MetricKind.COUNTER,
        "{row}",
        "Rows of the outbox that Kafka has refused for good, counted at each attempt.",
        lambda outbox: outbox.refused,
    ),
    _of_outbox(
        "oldest",
        MetricKind.GAUGE,
        "s",
        "The age of the oldest row of the outbox that is due and not sent, 0 without one.",
        lambda outbox: outbox.oldest_s,
    ),
)
