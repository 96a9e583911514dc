"""The dead-letter job: it reads their topics into one table."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from window_consumer.dlq.spark import ranges as places
from window_consumer.dlq.spark.config import DeadLetterSection, Reading
from window_consumer.dlq.spark.reader import RECORD
from window_consumer.dlq.spark.schema import LETTERS
from window_consumer.dlq.spark.summary import ReportRequest, findings
from window_consumer.dlq.spark.table import judge, letters
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import Job


def _warm_up(session: SparkSession, plan: PipelinePlan) -> None:
    wishes = ReportRequest(asked_ms=0)
    if (place := places.table(session, plan, wishes)) is not None:
        findings(place.letters, wishes, place.name, place.unreadable)


JOB: Final = Job(
    "dlq",
    LETTERS,
    judge,
    lambda records, plan: letters(records, Reading.of(plan)),
    lambda plan: plan.section(DeadLetterSection).pattern,
    is_pattern=True,
    rows_each=20,
    keep_days=lambda plan: plan.section(DeadLetterSection).keep_days,
    may_lack_day=True,
    record_of=RECORD,
    warm_up=_warm_up,
)
