"""``window-consumer audit report``: prints what was lost and what was duplicated."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from window_consumer.audit.commands.alerts import Alerts
from window_consumer.audit.commands.kafka_state import standing
from window_consumer.audit.commands.printing import (
    BucketParam,
    findings_in,
    print_explanation,
    print_json,
    print_report,
)
from window_consumer.audit.commands.progress import (
    SeenOffsets,
    reach_ms,
)
from window_consumer.audit.states import ALARMING
from window_consumer.cli.options import Duration, pipeline_config
from window_consumer.cli.output import (
    LOST,
    OK,
    explain,
)
from window_consumer.config.sections.pipeline import (
    LoadedPipeline,
    load_pipeline,
)
from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import Mask
from window_consumer.spark.commands.runner import runner_of
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import plan_of, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from window_consumer.audit.spark.report import (
        AuditReport,
        Scope,
    )

_DAY_S: Final = 86400.0


@click.command("report")
@pipeline_config
@click.option(
    "--since",
    "since_s",
    type=Duration(),
    default=None,
    metavar="DURATION",
    help="How far back to report. [default: 1d]",
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this one, or these.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this one, or these.")
@click.option(
    "--no-refresh", is_flag=True, help="Use the table as it is, without reading the topic first."
)
@click.option(
    "--explain",
    "bucket_ms",
    type=BucketParam(),
    metavar="BUCKET",
    default=None,
    help="List the records that a bucket lacks or has twice; give its start.",
)
@click.option(
    "--alerts",
    "alerts_topic",
    metavar="TOPIC",
    default=None,
    help="Write one alert there for each bucket with lost records. [default: audit.alerts_topic]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
def report_command(  # noqa: PLR0913 - an argument for each option
    *,
    config: Path,
    since_s: float | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    no_refresh: bool,
    bucket_ms: int | None,
    alerts_topic: str | None,
    as_json: bool,
    master: str | None,
) -> int:
    """Say what became of the records that were sent, and which are lost or came twice.

    Reads what is new in the topic of counts first, as `pipeline run audit` does. The exit code is 3
    where something that is final is lost; with --explain, where that bucket lacks something.
    """
    if bucket_ms is not None:
        _check_alone(since_s, alerts_topic)
    loaded = load_pipeline(config)
    now_ms = time.time_ns() // 1_000_000
    ago_ms = int((_DAY_S if since_s is None else since_s) * 1000)
    since_ms = max(0, now_ms - ago_ms) if bucket_ms is None else bucket_ms
    try:
        plan = plan_of(loaded, master)
        client = {**loaded.config.kafka.common, **loaded.config.kafka.consumer}
        log = ClientLog(logging.getLogger("window_consumer.client"), Mask(loaded.secrets))
        if no_refresh:
            _check_table(plan)
        with session_for(plan, short=True) as spark:
            if not no_refresh:
                runner_of(loaded, plan, aside=True).refresh(spark, "audit")
            from window_consumer.audit.spark.report import Scope  # noqa: PLC0415 - optional, slow

            scope = Scope(since_ms=since_ms, topics=topics, groups=groups)
            asked = _ReportRequest(loaded, plan, client, log)
            report, seen = asked.report(spark, now_ms, scope, fresh=not no_refresh)
            if bucket_ms is not None:
                findings = findings_in(report, bucket_ms)
                print_explanation(report.explain(bucket_ms), as_json=as_json)
                return _code(findings)
            if as_json:
                findings = print_json(report, since_ms, now_ms, seen.as_fields())
            else:
                findings = print_report(report, since_ms, seen.reach_ms or now_ms)
            to = alerts_topic or loaded.config.audit.alerts_topic
            if to is not None and ALARMING.intersection(findings):
                own = {**loaded.config.kafka.common, **loaded.config.kafka.producer}
                Alerts(to, own, log, plan.directory).write_new(_alarming(report))
    except BaseException as error:
        return explain(error, Mask(loaded.secrets))
    return _code(findings)


def _check_alone(since_s: float | None, alerts_topic: str | None) -> None:
    """Raise UsageError for options that exclude --explain."""
    if since_s is not None:
        raise click.UsageError(
            "--explain and --since exclude each other: a bucket is given by its start"
        )
    if alerts_topic is not None:
        raise click.UsageError(
            "--explain and --alerts exclude each other: a report without --explain covers all"
            " buckets"
        )


def _code(findings: set[str]) -> int:
    return LOST if ALARMING.intersection(findings) else OK


def _check_table(plan: PipelinePlan) -> None:
    """Raise UsageError before Spark starts where the table is visibly missing."""
    path = plan.table("audit")
    if "://" not in path and not Path(path).is_dir():
        raise UsageError(
            f"there is no table of counts at {path}: `window-consumer pipeline run audit` creates"
            " it, and so does a report without --no-refresh"
        )


def _alarming(report: AuditReport) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; optional

    found = report.findings.where(F.col("finding").isin(*map(str, ALARMING)))
    in_order = found.orderBy("bucket_ms", "topic", "group")
    return [row.asDict() for row in in_order.toLocalIterator()]


@frozen
class _ReportRequest:
    """A request for a report, with what is needed to ask Kafka."""

    loaded: LoadedPipeline
    plan: PipelinePlan
    client: Mapping[str, Any]
    log: ClientLog

    def report(
        self, spark: SparkSession, now_ms: int, scope: Scope, *, fresh: bool
    ) -> tuple[AuditReport, SeenOffsets]:
        """Return the report and the part of the counts it covers; print what it lacks.

        ``fresh``: the table has just been refreshed.
        """
        from window_consumer.audit.spark import (  # noqa: PLC0415 - optional, and slow
            counts as audit,
        )
        from window_consumer.audit.spark import report as audit_report  # noqa: PLC0415 - as above
        from window_consumer.audit.spark.coverage import HELD  # noqa: PLC0415 - as above
        from window_consumer.audit.spark.findings import Rules  # noqa: PLC0415 - as above

        section, quarantine = self.loaded.config.audit, self.plan.table("quarantine")
        rows = audit_report.counts(spark, self.plan.table("audit"), scope.since_ms)
        reach = None if fresh else reach_ms(spark, self.plan, rows, self.client, self.log)
        broken = audit_report.quarantined(spark, quarantine, scope.since_ms)
        seen = SeenOffsets(reach, now_ms, 0 if broken is None else broken.count(), quarantine)
        if broken is not None:
            rows = rows.unionByName(audit.unread(broken))
        places = audit_report.places(rows, scope).collect()
        grace_ms = int(section.grace * 1000)
        known = standing(
            [(row.topic, row.group) for row in places],
            self.client,
            self.log,
            until_ms=now_ms - grace_ms,
        )
        seen.print_unseen(known.problem)
        rules = Rules(
            now_ms=now_ms if reach is None else min(now_ms, reach),
            grace_ms=grace_ms,
            unaudited=section.unaudited,
            compacted=known.compacted,
        )
        # "Caught up" refers to now, and the table ends earlier.
        through = list(known.caught_up) if reach is None else []
        caught_up = spark.createDataFrame(through, "`group` string, topic string, partition int")
        held = spark.createDataFrame(list(known.held), HELD) if known.held else None
        return audit_report.report(rows, rules, scope, caught_up, held), seen
