"""Runs a backfill: checks the command line, prints the progress and the result."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

import click
from attrs import frozen

from window_consumer.cli.output import (
    INTERRUPTED,
    OK,
    application_output,
    duration,
    explain,
    print_json,
    print_result,
)
from window_consumer.cli.signals import Signals
from window_consumer.config.cores import usable_cores
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.loading import load_app
from window_consumer.spark.backfill import planning, ranges
from window_consumer.spark.backfill.planning import SampledSizes, sizes_of
from window_consumer.spark.backfill.ranges import Spans, WantedRange, count_of, readable_time
from window_consumer.spark.commands.backfill_progress import ProgressDisplay
from window_consumer.spark.jars import default_directory, ready
from window_consumer.spark.wire import optional_module

if TYPE_CHECKING:
    from window_consumer.spark.backfill.backlog import BackfillEnd
    from window_consumer.spark.backfill.held_records import AtEnd

_NOTHING_S: Final = 10e-6
"""Core time per record that is read, passed to a no-op handler and recorded: see
docs/benchmarks.md.
"""


@frozen(kw_only=True)
class BackfillOptions:
    """The options of the command line."""

    application: str
    config: Path
    topic: str
    worker: str | None
    from_ms: int | None
    to_ms: int | None
    from_offsets: Sequence[tuple[int, int]]
    to_offsets: Sequence[tuple[int, int]]
    results: str
    name: str | None
    chunk: int
    pool: int | None
    rate: float | None
    master: str | None
    spark: Sequence[str]
    py_files: Sequence[str]
    skip_lost: bool
    at_end: AtEnd
    dry_run: bool
    overrides: Sequence[str]
    start_timeout: float | None
    as_json: bool = False

    @property
    def wanted(self) -> WantedRange:
        """The range."""
        starts, ends = dict(self.from_offsets), dict(self.to_offsets)
        return WantedRange(self.topic, self.from_ms, self.to_ms, starts, ends)

    @property
    def range_text(self) -> str:
        """The range as the user gave it."""
        parts = [
            "the beginning" if self.from_ms is None else readable_time(self.from_ms),
            "to",
            "the end" if self.to_ms is None else readable_time(self.to_ms),
            *(f"from {partition}={offset}" for partition, offset in sorted(self.from_offsets)),
            *(f"to {partition}={offset}" for partition, offset in sorted(self.to_offsets)),
        ]
        return " ".join(parts)

    def name_for(self, worker: str) -> str:
        """Return the backfill's name: the same command continues the same backfill."""
        return self.name or f"{worker}: {self.topic} from {self.range_text}"

    @property
    def spark_master(self) -> str | None:
        """Where Spark runs; None if the environment or a property already decides it.

        Locally a task gets four attempts, as on a cluster.
        """
        is_set = "MASTER" in os.environ or "spark.master" in self.properties
        return self.master or (None if is_set else "local[*,4]")

    @property
    def properties(self) -> dict[str, str]:
        """Spark's properties as given. Raises UsageError."""
        found = {}
        for each in self.spark:
            key, sign, value = each.partition("=")
            if not (key and sign):
                raise UsageError(f"--spark {each}: write KEY=VALUE, as in spark.driver.memory=4g")
            found[key] = value
        return found

    @property
    def directory(self) -> str:
        """Where the tables are, as Spark needs it: a URL or an absolute path."""
        return self.results if "://" in self.results else str(Path(self.results).absolute())


def backfill(asked: BackfillOptions) -> int:
    """Run a backfill; return the exit code."""
    with application_output():
        app = load_app(asked.application)
    only = [asked.worker] if asked.worker else []
    plan = app.plan(asked.config, only=only, overrides=asked.overrides, for_cluster=True)
    try:
        return _backfill(app, plan, asked)
    except BaseException as error:
        return explain(error, plan.mask)


def _backfill(app: AppDefinition, plan: AppPlan, asked: BackfillOptions) -> int:
    wanted, properties = asked.wanted, asked.properties
    jars: Sequence[Path] = ()
    if not asked.dry_run:
        for module in ("pyarrow", "pyspark.sql"):
            optional_module(module)
        jars = ready(default_directory())
    chosen = planning.choose(
        plan,
        asked.topic,
        name=asked.worker,
        pool=asked.pool,
        start_timeout=asked.start_timeout,
        dry=asked.dry_run,
    )
    worker = chosen.worker
    with TopicReader(worker.consumer, chosen.prepared.log) as reader:
        spans = ranges.resolve(wanted, reader)
        settings = chosen.prepared.cluster.topic_config(asked.topic)
        for text in ranges.warnings(wanted, spans, reader, settings, int(time() * 1000)):
            click.echo(f"warning: {text}", err=True)
        if not spans:
            text = f"{asked.topic} has no records from {asked.range_text}"
            print_result({"topic": asked.topic, "offsets": 0}, text, as_json=asked.as_json)
            return OK
        if asked.dry_run:
            _print_plan(asked, spans, sizes_of(reader, asked.topic, spans), worker.config.slots)
            return OK
    return _run(app, asked, chosen, spans, jars, properties)


def _run(
    app: AppDefinition,
    asked: BackfillOptions,
    chosen: planning.ChosenHandler,
    spans: Spans,
    jars: Sequence[Path],
    properties: Mapping[str, str],
) -> int:
    from window_consumer.spark import session  # noqa: PLC0415 - as above
    from window_consumer.spark.backfill import backlog  # noqa: PLC0415 - it imports Spark
    from window_consumer.spark.backfill.chunk_log import BackfillIdentity, BackfillLedger  # noqa: PLC0415 - as above

    worker, topic = chosen.worker, asked.topic
    about = BackfillIdentity(
        asked.name_for(worker.name),
        worker.name,
        worker.config.group,
        topic,
        chosen.prepared.topics[topic].topic_id,
        asked.range_text,
    )
    spark = session.start("window-consumer backfill", asked.spark_master, jars, properties)
    try:
        for file in asked.py_files:
            spark.sparkContext.addPyFile(file)
        signals = Signals.install()
        with ProgressDisplay.on(sys.stderr, about.name) as shown:
            job = backlog.BackfillRun(
                session=spark,
                ledger=BackfillLedger(spark, asked.directory),
                about=about,
                plan=planning.worker_plan(app, chosen, at_end=asked.at_end),
                consumer=worker.consumer,
                chunk_records=asked.chunk,
                rate_per_s=asked.rate,
                skip_lost=asked.skip_lost,
                on_progress=shown.show,
                stop_requested=signals.stop.is_set,
            )
            ended = job.run(spans)
    finally:
        spark.stop()
    return _print_end(ended, asked)


def _print_end(ended: BackfillEnd, asked: BackfillOptions) -> int:
    progress = ended.progress
    if ended.left:
        click.echo(
            f"stopped with {count_of(ended.left):,} offsets left; the same command continues from"
            f" there:\n  {shlex.join(['window-consumer', *sys.argv[1:]])}",
            err=True,
        )
        return INTERRUPTED
    what = f"{progress.here:,} offsets in {duration(progress.seconds)}"
    again = "" if progress.here else " (all were recorded before; --name NAME runs them again)"
    results = f"{asked.directory}/tables/results"
    fields = {
        "topic": asked.topic,
        "offsets": progress.total,
        "failed": progress.failed,
        "here": progress.here,
        "results": results,
    }
    text = (
        f"done: {progress.total:,} offsets of {asked.topic}, {progress.failed:,} failed; {what}"
        f"{again}\nresults: {results}"
    )
    print_result(fields, text, as_json=asked.as_json)
    return OK


def _print_plan(asked: BackfillOptions, spans: Spans, sizes: SampledSizes, slots: int) -> None:
    """Print counts, sizes and the expected time."""
    total = count_of(spans)
    if asked.as_json:
        partitions = {str(partition): [s.first, s.end] for partition, s in sorted(spans.items())}
        print_json({"topic": asked.topic, "offsets": total, "partitions": partitions})
        return
    click.echo(f"{asked.topic} from {asked.range_text}:")
    for partition, span in sorted(spans.items()):
        click.echo(f"  partition {partition}: offsets {span.first:,} to {span.end:,} (exclusive)")
    click.echo(
        f"{total:,} offsets in {len(spans)} partitions, about {sizes.describe(total)};"
        f" {-(-total // asked.chunk):,} chunks"
    )
    cores = usable_cores()
    where = f"{asked.pool or slots} concurrent calls on each of {cores} cores"
    if asked.master and not asked.master.startswith("local"):
        where = f"{asked.pool or slots} concurrent calls per core on {cores} cores; more are faster"
    click.echo(f"expected time with {where}, by the duration of one call:")
    for call_s in (0.0, 0.001, 0.01, 0.1, 1.0):
        seconds = total * max(_NOTHING_S / cores, call_s / ((asked.pool or slots) * cores))
        if asked.rate:
            seconds = max(seconds, total / asked.rate)
        name = "nothing" if not call_s else f"{call_s * 1000:g} ms"
        click.echo(f"  {name:>8}: {duration(seconds)}")
    if asked.rate:
        click.echo(f"--rate: at least {duration(total / asked.rate)}")
