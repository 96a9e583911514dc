"""The trace event: one step of one record. Part of the wire contract.

``TraceEvent`` is the only definition of the fields, their types and their meaning; the readers of
the trace topic derive their schemas from it. ``event_batch`` defines how events travel.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

import attrs
from attrs import frozen

from window_consumer.model.outcome import OUTCOMES


class Role(StrEnum):
    """The kind of client that writes an event."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


class Step(StrEnum):
    """What happened to a record: a step on its way, or an outcome's step from the table."""

    SENT = "sent"
    """The broker acked it."""
    SEND_FAILED = "send_failed"
    RECEIVED = "received"
    """It entered a worker's window."""
    REDRIVEN = "redriven"
    """It was received after a manual redrive."""
    REPLAYED = "replayed"
    """A replay's copy of it was received."""
    FAILED = "failed"
    """A call of its handler failed; status says what follows."""
    STALLED = "stalled"
    """A call of its handler does not return; status says what follows."""
    PROCESSED = "processed"
    """Its handler returned, and the handler's results are acked."""

    _ignore_ = "_row"
    for _row in OUTCOMES:
        if _row.step and _row.step not in vars().values():
            vars()[_row.step.upper()] = _row.step


def _means(meaning: str) -> Any:
    return attrs.field(metadata={"meaning": meaning})


def _may_mean(meaning: str, default: Any = None) -> Any:
    return attrs.field(default=default, metadata={"meaning": meaning})


@frozen(kw_only=True)
class TraceEvent:
    """One step of one record. Times are in microseconds, by the writer's clock."""

    event_id: str = _means("Unique; the same when an event comes twice.")
    record_id: str | None = _may_mean(
        "The record's `wc-id`, else `<topic>/<partition>/<offset>` of its first delivery."
    )
    root_id: str | None = _may_mean(
        "The `record_id` that all began with: that of the record whose handler produced this one,"
        " else its own."
    )
    trace_id: str | None = _may_mean("32 hex digits, of the record's `traceparent`.")
    span_id: str | None = _may_mean("16 hex digits, of the record's `traceparent`.")
    role: str = _means("`producer` or `consumer`.")
    step: str = _means("What happened, one of the steps.")
    key: str | None = _may_mean("The record's key, in a form of `model/key_forms`.")
    tags: str | None = _may_mean("The record's `wc-tags`: words with commas between them.")
    time_us: int = _means("The time of the step, since 1970.")
    duration_us: int | None = _may_mean(
        "For a producer, from the call of produce to the answer; for a consumer, since it received"
        " the record."
    )
    status: str = _may_mean(
        "`ok`; for a failed call `retry`, or why its record leaves: `RETRIES_EXHAUSTED` ...; for a"
        " stalled one `ended`, `abandoned` or `reported`.",
        "ok",
    )
    attempt: int | None = _may_mean("Handler calls so far, over all hops.")
    cluster: str | None = _may_mean("The cluster's `bootstrap.servers`.")
    topic: str = _means("The record's topic, or its destination if it was not written.")
    partition: int | None = _may_mean("Its partition; none if it was never sent.")
    offset: int | None = _may_mean("Its offset; none if it was never sent.")
    orig_topic: str | None = _may_mean("The topic of its first delivery.")
    orig_partition: int | None = _may_mean("As `orig_topic`.")
    orig_offset: int | None = _may_mean("As `orig_topic`.")
    group: str | None = _may_mean("The consumer group.")
    client_id: str | None = _may_mean("The Kafka client's `client.id`.")
    host: str | None = _may_mean("The address of the writer's host.")
    app: str | None = _may_mean("The application's name and version.")
    worker: str | None = _may_mean("The worker's name.")
    handler: str | None = _may_mean("The handler's name.")
    error_class: str | None = _may_mean("The dotted name of the exception's class.")
    error_fingerprint: str | None = _may_mean("Equal for errors of one class from one place.")
    dropped: int = _may_mean("How many events its writer had lost so far.", 0)
    sample: float = _may_mean("The share of the records whose events are written.", 1.0)


@frozen
class EventField:
    """One field of an event."""

    name: str
    kind: type[str | int | float]
    meaning: str


def _fields() -> tuple[EventField, ...]:
    found = []
    for each in attrs.fields(attrs.resolve_types(TraceEvent)):
        kinds = get_args(each.type) or (each.type,)
        found.append(EventField(each.name, kinds[0], each.metadata["meaning"]))
    return tuple(found)


FIELDS: tuple[EventField, ...] = _fields()
"""All fields, in order."""
