"""Runs a backfill chunk by chunk. Each chunk is recorded as a whole before the next begins."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any, Final

from attrs import evolve, field, frozen
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.spark.backfill import job as reading
from window_consumer.spark.backfill.chunk_log import BackfillIdentity, BackfillLedger
from window_consumer.spark.backfill.job import handled, read_and_handled
from window_consumer.spark.backfill.ranges import Spans, count_of, next_chunk, without
from window_consumer.spark.backfill.shares import shared_out
from window_consumer.spark.backfill.task import WorkerPlan
from window_consumer.spark.backfill.task_reports import Mailbox, ReportAddress, TaskReport

_CHECK_S: Final = 0.5


@frozen
class BackfillProgress:
    """The progress of a backfill, counted in offsets, some of which may be gaps in the log."""

    total: int
    done: int
    failed: int
    """The number of records recorded as failed."""
    seconds: float
    """Time since this run began."""
    here: int
    """Offsets recorded in this run."""
    tasks: tuple[int, int] = (0, 0)
    """The current chunk's tasks: those that have ended, and all."""
    retried: int = 0
    """Tasks that ended without a result; Spark retries them."""
    running: int = 0
    """Records of the current chunk that have an outcome but are not recorded yet."""
    held_up: int = 0
    """Tasks with an open circuit breaker."""

    @property
    def reached(self) -> int:
        """Recorded offsets, and those that the current chunk has processed."""
        return min(self.total, self.done + self.running)

    @property
    def per_s(self) -> float:
        """Records per second in this run; 0 before the first."""
        return (self.here + self.running) / self.seconds if self.seconds else 0.0


@frozen
class BackfillEnd:
    """The end of a run of a backfill."""

    progress: BackfillProgress
    left: Spans
    """The remaining offsets, empty if all are done."""


@frozen(kw_only=True)
class BackfillRun:
    """One backfill, ready to run. Owner: the driver's main thread."""

    session: SparkSession = field(repr=False)
    ledger: BackfillLedger
    about: BackfillIdentity
    plan: WorkerPlan
    consumer: Mapping[str, Any] = field(repr=False)
    """The user's Kafka properties of consumers."""
    chunk_records: int
    rate_per_s: float | None = None
    skip_lost: bool = False
    """Continue if retention removes records in the meantime."""
    on_progress: Callable[[BackfillProgress], None] = lambda _progress: None
    """Called after each chunk, and periodically on a separate thread."""
    stop_requested: Callable[[], bool] = lambda: False

    def run(self, spans: Spans) -> BackfillEnd:
        """Run the offsets not recorded as done, until ``stop_requested`` is true after a chunk.

        Raises RunError if a chunk fails. Then nothing of the chunk is recorded, and its records
        run again the next time.
        """
        spans = self.ledger.begin(self.about, spans)
        total = count_of(spans)
        before = self.ledger.done(self.about.name)
        left, chunk, failed = without(spans, before.ends), before.chunk, before.failed
        at_first = count_of(left)
        began = time.monotonic()

        def progress() -> BackfillProgress:
            todo = count_of(left)
            seconds = time.monotonic() - began
            return BackfillProgress(total, total - todo, failed, seconds, at_first - todo)

        while left and not self.stop_requested():
            piece = next_chunk(left, self.chunk_records)
            chunk += 1
            failed += self._run_chunk(piece, chunk, progress())
            left = without(left, {each: span.end for each, span in piece.items()})
            self.on_progress(progress())
        return BackfillEnd(progress(), left)

    def _run_chunk(self, piece: Spans, chunk: int, progress: BackfillProgress) -> int:
        """Run a chunk and record it; return how many of its records failed."""
        group = f"{self.about.name}/{chunk}"
        self.session.sparkContext.setJobGroup(group, f"backfill {group}")
        watch = ChunkWatch(self.session, group, progress, self.on_progress, count_of(piece))
        with watch as address:
            try:
                rows = self._rows(piece, address)
                return self.ledger.record(rows, self.about.name, chunk)
            except RunError:
                raise
            except Exception as error:
                if watch.gave_up is not None:
                    raise RunError(
                        f"chunk {chunk} of {self.about.topic} failed, and none of it is recorded:"
                        f" {watch.gave_up}"
                    ) from error
                offsets = ", ".join(f"{p}: {s.first} to {s.end}" for p, s in piece.items())
                raise RunError(
                    f"chunk {chunk} of {self.about.topic} ended without a result, and none of it is"
                    f" recorded (offsets by partition, end exclusive: {offsets}): {end_of(error)}"
                ) from error

    def _rows(self, piece: Spans, driver: ReportAddress | None) -> DataFrame:
        """Return the outcomes of a chunk's records, lazily.

        Tasks read their shares themselves. But with order by key and fewer partitions than cores,
        Spark reads and distributes the records by key.
        """
        ordering = self.plan.engine.ordering
        cores = self.session.sparkContext.defaultParallelism
        by_keys = ordering == "key" and len(piece) < cores
        shares = shared_out(piece, cores, may_split=ordering == "unordered")
        at_once = cores if by_keys else len(shares)
        rate_per_s = None if self.rate_per_s is None else self.rate_per_s / at_once
        plan = evolve(self.plan, rate_per_s=rate_per_s, driver=driver)
        if not by_keys:
            consumer, skip_lost = self.consumer, self.skip_lost
            return read_and_handled(self.session, plan, consumer, shares, skip_lost=skip_lost)
        reading.set_batches(self.session, rate_per_s)
        records = reading.by_keys(
            self.session, self.consumer, plan.topic, piece, skip_lost=self.skip_lost
        )
        return handled(records, plan)


_PROCESS_ENDED: Final = (
    "a Python worker of Spark died while it ran handlers: a handler that calls os._exit, crashes in"
    " C or runs out of memory kills it every time"
)
_GONE: Final = (
    "retention has removed records since the backfill began: --skip-lost continues without them"
)
_SIGNS: Final = (
    ("Python worker exited unexpectedly", _PROCESS_ENDED),
    ("offsets out of range", _GONE),
    ("data may have been lost", _GONE),
)
_OUR_ERROR: Final = re.compile(r"\s*window_consumer\.[a-z_.]+\.[A-Z]\w+: (.+)")
"""A traceback's last line, if the error is ours."""
_NOT_IMPORTED: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")

_MOST_TEXT: Final = 1500


def end_of(error: Exception) -> str:
    """Return why a chunk failed, and what to do, without Spark's own frames."""
    text = str(error)
    lines = [line for line in text.splitlines() if line and not line.startswith("\tat ")]
    ours = [found for line in lines if (found := _OUR_ERROR.match(line))]
    if missing := _NOT_IMPORTED.search(text):
        return (
            f"executors cannot import {missing[1]}: --py-files sends your own files; installed"
            " packages must be in the executors' Python environment (PYSPARK_PYTHON)"
        )
    for sign, advice in _SIGNS:
        if sign.lower() in text.lower():
            return advice
    return (ours[-1][1] if ours else "\n".join(lines))[:_MOST_TEXT]


class ChunkWatch:
    """Reports the progress of a chunk's tasks. Its thread only reads.

    As a context manager it returns the address that receives the tasks' reports, None if it cannot
    listen.
    """

    def __init__(
        self,
        session: SparkSession,
        group: str,
        progress: BackfillProgress,
        on_progress: Callable[[BackfillProgress], None],
        records: int,
    ):
        self._context = session.sparkContext
        self._group = group
        self._progress = progress
        self._began = time.monotonic()
        self._on_progress = on_progress
        self._records = records
        self._mailbox: Mailbox | None = None
        self._retried = 0
        self._held_up: set[int] = set()
        self.gave_up: str | None = None
        """Why a task has failed permanently; None if no task has."""
        self._ended = Event()
        self._thread = Thread(target=self._run, name="wc-backfill-watch", daemon=True)

    def __enter__(self) -> ReportAddress | None:
        self._mailbox = _mailbox(self._context)
        self._thread.start()
        return None if self._mailbox is None else self._mailbox.address

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._mailbox is not None:
            self._mailbox.close()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(_CHECK_S)
            progress = self._tasks(self._progress)
            reports = [] if self._mailbox is None else self._mailbox.reports()
            for each in reports:
                self._report_breaker(each)
                if each.gives_up is not None and self.gave_up is None:
                    self.gave_up = each.gives_up
                    self._context.cancelJobGroup(self._group)
            running = min(self._records, sum(each.done for each in reports))
            seconds = progress.seconds + time.monotonic() - self._began
            held_up = len(self._held_up)
            self._on_progress(evolve(progress, running=running, held_up=held_up, seconds=seconds))

    def _tasks(self, progress: BackfillProgress) -> BackfillProgress:
        """Return the progress with Spark's counts of the chunk's tasks."""
        ended = tasks = retried = 0
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                found = tracker.getStageInfo(stage)
                if found is not None:
                    ended += found.numCompletedTasks
                    tasks += found.numTasks
                    retried += found.numFailedTasks
        if retried > self._retried:
            self._retried = retried
            LOGGER.warning(
                "%s: tasks that ended without a result: %d; Spark retries them, and their records"
                " run again",
                self._group,
                retried,
                extra={"event": LogEvent.BACKFILL_TASKS_LOST},
            )
        return evolve(progress, tasks=(ended, tasks), retried=retried)

    def _report_breaker(self, report: TaskReport) -> None:
        """Log when the breaker of a task opens, and when it closes."""
        if report.is_held_up is (report.task in self._held_up):
            return
        partitions = ", ".join(map(str, report.partitions))
        where = f"{self._group}, task {report.task} (partitions {partitions})"
        if report.is_held_up:
            self._held_up.add(report.task)
            why = f": {report.why}" if report.why else ""
            LOGGER.warning(
                "%s: breaker %s%s",
                where,
                report.breaker,
                why,
                extra={"event": LogEvent.BACKFILL_BREAKER_OPENED},
            )
        else:
            self._held_up.discard(report.task)
            LOGGER.warning(
                "%s: breaker %s again",
                where,
                report.breaker,
                extra={"event": LogEvent.BACKFILL_BREAKER_CLOSED},
            )


def _mailbox(context: SparkContext) -> Mailbox | None:
    """Listen for tasks at an address that the executors can reach."""
    conf = context.getConf()
    is_here = str(context.master).startswith("local")
    host = "127.0.0.1" if is_here else conf.get("spark.driver.host")
    bind = None if is_here else conf.get("spark.driver.bindAddress", host)
    try:
        return Mailbox.open(str(host).strip("[]"), bind and bind.strip("[]"))
    except OSError as error:
        LOGGER.info(
            "tasks cannot report their progress to %s: %s",
            host,
            error,
            extra={"event": LogEvent.BACKFILL_REPORTS_MISSING},
        )
        return None
