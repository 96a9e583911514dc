"""``window-consumer audit report``: prints what was lost and what was duplicated."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from window_consumer.audit.commands.alerts import Alerts
from window_consumer.audit.commands.kafka_state import GroupOffsets, beyond, standing
from window_consumer.audit.commands.printing import (
    bucket_of,
    findings_in,
    print_explanation,
    print_json,
    print_report,
)
from window_consumer.audit.commands.progress import (
    SeenOffsets,
    UnreadCounts,
    clipped,
    ends_of,
    last_ms,
    unread_counts,
)
from window_consumer.audit.spark.config import AuditSection
from window_consumer.audit.states import ALARMING
from window_consumer.cli.options import DURATION, TextParam, pipeline_config, topics_named
from window_consumer.cli.output import LOST, OK, exits, explain
from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import UsageError
from window_consumer.model.redaction import Mask
from window_consumer.spark.commands.runner import runner_of
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline, session_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from window_consumer.audit.spark.report import AuditReport, Scope

_DAY_S: Final = 86400.0


@click.command("report")
@pipeline_config
@click.option(
    "--since",
    "since_s",
    type=DURATION,
    default=None,
    metavar="DURATION",
    help="How far back to report. [default: 1d]",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=topics_named,
    help="Only this one, or these.",
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this one, or these.")
@click.option(
    "--no-refresh", is_flag=True, help="Use the current table, without reading the topic first."
)
@click.option(
    "--explain",
    "bucket_ms",
    type=TextParam("bucket", bucket_of),
    metavar="BUCKET",
    default=None,
    help="List the records that a bucket lacks or has twice; give its start.",
)
@click.option(
    "--alerts",
    "alerts_topic",
    metavar="TOPIC",
    shell_complete=topics_named,
    default=None,
    help="Write one alert there for each bucket with lost records. [default: audit.alerts_topic]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--master", metavar="MASTER", default=None, help="Where Spark runs: local[*] ...")
@exits(
    {
        OK: "no final bucket has lost records",
        LOST: "a final bucket has lost or exchanged records; with --explain, that bucket",
    }
)
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
    """Show what happened to the records that were sent, and which were lost or duplicated.

    First reads new records of the topic of counts, like `pipeline run audit`.
    """
    if bucket_ms is not None:
        _check_alone(since_s, alerts_topic)
    plan = load_pipeline(config, master=master)
    now_ms = time.time_ns() // 1_000_000
    ago_ms = int((_DAY_S if since_s is None else since_s) * 1000)
    since_ms = max(0, now_ms - ago_ms) if bucket_ms is None else bucket_ms
    try:
        log = ClientLog(logging.getLogger("window_consumer.client"), Mask(plan.secrets))
        if no_refresh:
            _check_table(plan)
        with session_for(plan, short=True) as spark:
            from window_consumer.audit.spark.report import Scope  # noqa: PLC0415 - optional, slow

            scope = Scope(since_ms=since_ms, topics=topics, groups=groups)
            asked = _ReportRequest(plan, log, spark, now_ms, scope)
            # Records that finish from now on may be counted after the table is read.
            earlier = asked.before()
            if not no_refresh:
                runner_of(plan, aside=True).refresh(spark, "audit")
            report, seen = asked.report(earlier, fresh=not no_refresh)
            if bucket_ms is not None:
                findings = findings_in(report, bucket_ms)
                print_explanation(report.explain(bucket_ms), as_json=as_json)
                return _code(findings)
            if as_json:
                findings = print_json(report, since_ms, now_ms, seen.as_fields())
            else:
                findings = print_report(report, since_ms, seen.reach_ms or now_ms)
            to = alerts_topic or plan.section(AuditSection).alerts_topic
            if to is not None and ALARMING.intersection(findings):
                Alerts(to, plan.producer, log, plan.directory).write_new(_alarming(report))
    except BaseException as error:
        return explain(error, Mask(plan.secrets))
    return _code(findings)


def _check_alone(since_s: float | None, alerts_topic: str | None) -> None:
    """Raise UsageError for options that exclude --explain."""
    if since_s is not None:
        raise click.UsageError(
            "--explain and --since are mutually exclusive: a bucket is given by its start"
        )
    if alerts_topic is not None:
        raise click.UsageError(
            "--explain and --alerts are mutually exclusive: a report without --explain covers all"
            " buckets"
        )


def _code(findings: set[str]) -> int:
    return LOST if ALARMING.intersection(findings) else OK


def _check_table(plan: PipelinePlan) -> None:
    """Raise UsageError before Spark starts if the table is visibly missing."""
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


Places = list[tuple[str, str]]
"""Topics and groups."""


@frozen
class _ReportRequest:
    """A request for a report, with the means to ask Kafka."""

    plan: PipelinePlan
    log: ClientLog
    spark: SparkSession
    now_ms: int
    scope: Scope

    def before(self) -> tuple[Places, GroupOffsets]:
        """Ask Kafka about the current contents of the table, before anything more is read."""
        from window_consumer.audit.spark.report import NoCountsError  # noqa: PLC0415 - slow

        try:
            places = self._places(self._rows())
        except NoCountsError:
            return [], GroupOffsets()
        return places, self._standing(places)

    def report(
        self, before: tuple[Places, GroupOffsets], *, fresh: bool
    ) -> tuple[AuditReport, SeenOffsets]:
        """Return the report and the part of the counts that it covers; print what it lacks.

        ``before`` is Kafka's first answer. ``fresh``: the table has been refreshed since then.
        """
        from window_consumer.audit.spark import counts as audit  # noqa: PLC0415 - optional, and slow
        from window_consumer.audit.spark import report as audit_report  # noqa: PLC0415 - as above
        from window_consumer.audit.spark.coverage import HELD  # noqa: PLC0415 - as above
        from window_consumer.audit.spark.findings import Rules  # noqa: PLC0415 - as above
        from window_consumer.spark import checkpoints  # noqa: PLC0415 - as above

        spark, section = self.spark, self.plan.section(AuditSection)
        table, quarantine = self.plan.table("audit"), self.plan.table("quarantine")
        # Before the table: a running pipeline may add to it.
        read = None if fresh else checkpoints.reached(spark, self.plan, "audit", table)
        rows = self._rows()
        broken = audit_report.quarantined(spark, quarantine, self.scope.since_ms)
        places = self._places(rows)
        known = self._standing(places).around(before[1], before[0])
        unread = UnreadCounts(None)
        if not fresh:
            unread = unread_counts(section.topic, read, self.plan.kafka, self.log)
        reach = unread.reach_ms if unread.is_known else last_ms(rows)
        seen = SeenOffsets(reach, self.now_ms, 0 if broken is None else broken.count(), quarantine)
        seen.print_unseen(known.problem)
        ends = ends_of(rows) if unread.finished else {}
        held = [*known.held, *beyond(clipped(unread.finished, ends), known.held)]
        if broken is not None:
            rows = rows.unionByName(audit.unread(broken))
        rules = Rules(
            now_ms=self.now_ms if reach is None else min(self.now_ms, reach),
            grace_ms=int(section.grace * 1000),
            unaudited=section.unaudited,
            compacted=known.compacted,
            knows_held=reach is None or (unread.is_complete and known.problem is None),
        )
        # "Caught up" refers to now, and the table ends earlier.
        through = list(known.caught_up) if reach is None else []
        caught_up = spark.createDataFrame(through, "`group` string, topic string, partition int")
        held_rows = spark.createDataFrame(held, HELD) if held else None
        return audit_report.report(rows, rules, self.scope, caught_up, held_rows), seen

    def _rows(self) -> DataFrame:
        from window_consumer.audit.spark import report  # noqa: PLC0415 - optional, and slow

        return report.counts(self.spark, self.plan.table("audit"), self.scope.since_ms)

    def _places(self, rows: DataFrame) -> Places:
        from window_consumer.audit.spark.report import places  # noqa: PLC0415 - optional, slow

        return [(row.topic, row.group) for row in places(rows, self.scope).collect()]

    def _standing(self, places: Places) -> GroupOffsets:
        until_ms = self.now_ms - int(self.plan.section(AuditSection).grace * 1000)
        return standing(places, self.plan.kafka, self.log, until_ms=until_ms)
