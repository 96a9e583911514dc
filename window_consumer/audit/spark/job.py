"""The audit's job: reads its topic into the table of counts."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from window_consumer.audit.spark import counts, report
from window_consumer.audit.spark.config import AuditSection
from window_consumer.audit.spark.findings import Rules
from window_consumer.audit.spark.schema import AUDIT
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import Job


def _warm_up(session: SparkSession, plan: PipelinePlan) -> None:
    rows = report.counts(session, plan.table(AUDIT.name), 0)
    made = report.report(rows, Rules(now_ms=0, grace_ms=1000), report.Scope(since_ms=0))
    made.findings.collect()
    made.latencies.collect()


JOB: Final = Job(
    "audit",
    AUDIT,
    counts.read,
    lambda records, _: counts.counts(records),
    lambda plan: plan.section(AuditSection).topic,
    warm_up=_warm_up,
)
