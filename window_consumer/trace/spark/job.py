"""The trace job: it reads the trace topic into the table of events."""

from __future__ import annotations

from typing import Final

from window_consumer.spark.wire import Job
from window_consumer.trace.spark.config import TraceSection
from window_consumer.trace.spark.schema import TRACE
from window_consumer.trace.spark.table import events, read

JOB: Final = Job(
    "trace",
    TRACE,
    read,
    lambda records, _: events(records),
    lambda plan: plan.section(TraceSection).topic,
    keep_days=lambda plan: plan.section(TraceSection).keep_days,
    record_of="record_id",
)
