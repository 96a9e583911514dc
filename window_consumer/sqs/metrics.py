"""The metrics of queues and of the endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from attrs import frozen

from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric, MetricKind, Sample, metric_of


@frozen
class LeaseFigures:
    """The counts of one queue's leases."""

    in_flight: int
    received: int
    deleted: int
    returned: int
    late: int
    invalid: int


@frozen
class CallFigures:
    """The endpoint's counts."""

    requests: int
    refused: int
    refused_signatures: int
    failed: int
    waiting: int


def _lease(
    name: str, kind: MetricKind, unit: str, meaning: str, of: Callable[[LeaseFigures], int]
) -> Metric:
    def read(measures: Measures) -> Iterable[Sample]:
        found = measures.features.of(LeaseFigures)
        return [] if found is None else [((), of(found))]

    return Metric(f"window_consumer.pull.{name}", kind, unit, meaning, read)


def _call(
    name: str, kind: MetricKind, unit: str, meaning: str, of: Callable[[CallFigures], int]
) -> Metric:
    return metric_of(CallFigures, f"sqs.{name}", kind, unit, meaning, of)


METRICS: Final[tuple[Metric, ...]] = (
    _lease(
        "in_flight",
        MetricKind.GAUGE,
        "{record}",
        "Records that clients have leased. At `max_in_flight` they get no more.",
        lambda figures: figures.in_flight,
    ),
    _lease(
        "received",
        MetricKind.COUNTER,
        "{record}",
        "Leases that clients were given.",
        lambda figures: figures.received,
    ),
    _lease(
        "deleted",
        MetricKind.COUNTER,
        "{record}",
        "Leases that ended because their records were deleted in time.",
        lambda figures: figures.deleted,
    ),
    _lease(
        "returned",
        MetricKind.COUNTER,
        "{record}",
        "Leases that clients gave back with a visibility timeout of 0.",
        lambda figures: figures.returned,
    ),
    _lease(
        "late",
        MetricKind.COUNTER,
        "{request}",
        "Answers of clients whose lease had ended. Raise `visibility_timeout`, or let clients renew"
        " their leases.",
        lambda figures: figures.late,
    ),
    _lease(
        "invalid_receipts",
        MetricKind.COUNTER,
        "{request}",
        "Receipt handles of another process or an earlier assignment. Each client needs one"
        " address.",
        lambda figures: figures.invalid,
    ),
    _call(
        "requests",
        MetricKind.COUNTER,
        "{request}",
        "Requests at `sqs.listen`.",
        lambda figures: figures.requests,
    ),
    _call(
        "refused",
        MetricKind.COUNTER,
        "{request}",
        "Requests answered with a client error.",
        lambda figures: figures.refused,
    ),
    _call(
        "refused_signatures",
        MetricKind.COUNTER,
        "{request}",
        "Requests with a missing or wrong signature, also counted as client errors.",
        lambda figures: figures.refused_signatures,
    ),
    _call(
        "failed",
        MetricKind.COUNTER,
        "{request}",
        "Requests answered with a server error, which clients repeat.",
        lambda figures: figures.failed,
    ),
    _call(
        "waiting",
        MetricKind.GAUGE,
        "{client}",
        "Clients that are waiting for records.",
        lambda figures: figures.waiting,
    ),
)
