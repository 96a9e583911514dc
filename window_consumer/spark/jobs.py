"""Runs jobs: each reads a source, transforms it, writes tables, and resumes where it stopped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Final

from attrs import define, evolve, field, frozen
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.streaming.query import StreamingQuery

from window_consumer.model.errors import RunError
from window_consumer.spark import checkpoints, sources, tables
from window_consumer.spark.checkpoints import Checkpoint, JobSource, Place, Spans
from window_consumer.spark.plan import PipelinePlan, writer_of
from window_consumer.spark.tables import BROKEN
from window_consumer.spark.wire import Job, jobs


class BatchFailedError(RunError):
    """A batch was not written; the sink has the reason."""

    code = "WC176"


class SecondWriterError(RunError):
    """Two processes run one job."""

    code = "WC177"


JOBS: Final = jobs()

COUNTED_S: Final = 60.0
"""Counts arrive with the batch; this is the delay that a busy machine may add."""


def explained(error: Exception) -> str:
    """Return why a job ended, and what to do, in a few lines."""
    whole = str(error)
    text = whole.split("=== Streaming Query ===", 1)[0].strip()
    for sign, advice in _ADVICE:
        if sign in text:
            gone = "".join(
                f"\n{place}: offsets {first} to {int(end) - 1}"
                for first, end, place in sorted(set(_RANGE.findall(whole)))
            )
            return f"{advice}{gone}\n{text[:_MOST_TEXT]}"
    return text[:_MOST_TEXT]


def is_absence(error: Exception) -> bool:
    """Return whether a job ended because Kafka did not respond, so that it can resume later."""
    text = str(error)
    return any(sign in text for sign in _ABSENCES)


_ABSENCES: Final = (
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
    "java.util.concurrent.TimeoutException",
)
_MOST_TEXT: Final = 2000
_RANGE: Final = re.compile(r"records in offset \[(\d+), (\d+)\) for topic partition (\S+)")
_GONE: Final = (
    "records were deleted before they were read; `fail_on_data_loss: false` continues without them"
)
_NO_ROOM: Final = (
    "no disk space is left for the tables: they are unchanged, and the next run repeats the batch"
)
_ADVICE: Final = tuple(
    {
        "DATA_LOSS": _GONE,
        "not available in Kafka any more": _GONE,
        "No space left on device": _NO_ROOM,
        "File too large": _NO_ROOM,
        "Python worker exited unexpectedly": "a Python worker of Spark was killed, or ran out of"
        " memory: the table is unchanged, and the next run repeats the batch",
        "UnknownTopicOrPartition": "an event topic does not exist: workers with a `trace:` or"
        " `audit:` section create theirs",
    }.items()
)


@frozen(kw_only=True)
class JobOptions:
    """How a job runs."""

    origin: JobSource = field(factory=JobSource)
    """The cluster and the topics to read, as known at the start."""
    origin_now: Callable[[], JobSource] | None = None
    """Queries them again before each batch: a topic may be recreated while a job runs."""
    restart: bool = False
    """Whether to start at Kafka's first record."""
    before_batch: Callable[[Spans], None] | None = None
    """Called with the offsets of each batch before it is read."""


ONCE: Final = JobOptions()


def start(
    session: SparkSession, plan: PipelinePlan, job: Job, how: JobOptions = ONCE
) -> RunningJob:
    """Start a job over Kafka's current records, in as many batches as needed; it ends by itself.

    Each batch is written exactly once, even if processes are killed: the checkpoint defines the
    batches, and the tables record which they have. Raises CheckpointError, see ``checkpoints.of``.
    """
    topic = job.topic_of(plan)
    given = sources.options(plan.kafka, topic, pattern=job.is_pattern)
    records = sources.stream(
        session,
        given,
        most_records=plan.batch_records * 1000 // job.rows_each,
        fail_on_data_loss=plan.fail_on_data_loss,
    )
    table, broken = job.table.make(session, plan), BROKEN.make(session, plan)
    named = {} if job.is_pattern else {topic: None}

    def wanted(there: JobSource) -> JobSource:
        return evolve(there, topics={**named, **there.topics}, is_pattern=job.is_pattern)

    checkpoint = checkpoints.of(
        session, plan, job.name, table, wanted(how.origin), restart=how.restart
    )

    def before_batch(batch: int) -> None:
        if how.origin_now is not None:
            now = wanted(how.origin_now())
            checkpoints.confirm(session, plan, job.name, checkpoint.path, now)
        if how.before_batch is not None:
            how.before_batch(checkpoint.spans(session, batch))

    sink = BatchSink(job, plan, table, broken, checkpoint, before_batch)
    writer = records.writeStream.queryName(job.name).foreachBatch(sink.write)
    writer = writer.option("checkpointLocation", checkpoint.path)
    return RunningJob(writer.trigger(availableNow=True).start(), sink, session)


@define
class BatchSink:
    """Writes a job's batches."""

    job: Job
    plan: PipelinePlan
    path: str
    broken: str
    checkpoint: Checkpoint
    before_batch: Callable[[int], None] = lambda _batch: None
    """Called with the number of each batch before it is read."""
    counted_s: float = COUNTED_S
    records: int = field(default=0, init=False)
    """How many Kafka records were written so far."""
    rows: int = field(default=0, init=False)
    """How many rows the table got from them."""
    quarantined: int = field(default=0, init=False)
    """How many of them were unreadable."""

    failure: Exception | None = field(default=None, init=False)
    """Why the last batch failed."""

    def write(self, records: DataFrame, batch: int) -> None:
        """Write one batch to the job's table, and unreadable records to the quarantine.

        Raises BatchFailedError with the cause in ``failure``: a SecondWriterError if another
        process has written the batch.
        """
        try:
            self._write(records, batch)
        except Exception as error:
            self.failure = _second_writer(self.path) if _SAME_BATCH in str(error) else error
            # While a query stops, Spark matches the error text against a pattern that overflows
            # the stack, and prints that. A short text avoids it.
            raise BatchFailedError(f"batch {batch} of {self.job.name} was not written") from None

    def _write(self, records: DataFrame, batch: int) -> None:
        judged = self.job.judge(records)
        name, number = writer_of(self.job.name), self.checkpoint.number(batch)
        has_broken = True
        if number > self.checkpoint.written:
            self.before_batch(batch)
            seen, made = Observation(), Observation()
            bad = F.count(F.when(F.col("reason").isNotNull(), 1)).alias("bad")
            counted = judged.observe(seen, bad, F.count(F.lit(1)).alias("all"))
            rows = self.job.rows(tables.readable(counted), self.plan)
            rows = rows.observe(made, F.count(F.lit(1)).alias("rows"))
            self.job.table.append(rows, self.path, name, number)
            found = _observed(seen, self.path, self.counted_s)
            self.records += found["all"]
            self.rows += _observed(made, self.path, self.counted_s)["rows"]
            self.quarantined += found["bad"]
            has_broken = found["bad"] > 0
        # Otherwise the batch was written before a crash, but its quarantine perhaps was not.
        if has_broken:
            BROKEN.append(tables.quarantined(judged, self.job.name), self.broken, name, number)


def _observed(seen: Observation, path: str, timeout_s: float) -> dict[str, int]:
    """Return the counts of a batch's write; raise if the table already has the batch."""
    answer: Future[dict[str, int]] = Future()
    Thread(target=lambda: answer.set_result(seen.get), name="wc-observed", daemon=True).start()
    try:
        return answer.result(timeout_s)
    except TimeoutError:
        raise _second_writer(path) from None


_SAME_BATCH: Final = "DELTA_CONCURRENT_TRANSACTION"
"""Delta's error if another process wrote the batch in the meantime."""


def _second_writer(path: str) -> SecondWriterError:
    return SecondWriterError(
        f"another process has written this batch to {path}: run each job in one process"
    )


@frozen
class RunningJob:
    """A job that was started."""

    query: StreamingQuery
    sink: BatchSink
    session: SparkSession

    def wait(self, timeout_s: int | None = None) -> bool:
        """Wait for the end; return False if the job is still running. Raises the job's error."""
        try:
            if timeout_s is None:
                self.query.awaitTermination()
                ended = True
            else:
                ended = bool(self.query.awaitTermination(timeout_s))
        except StreamingQueryException:
            if self.sink.failure is None:
                raise
            ended = True
        if ended and self.sink.failure is not None:
            raise self.sink.failure
        return ended

    def read_to(self) -> Mapping[Place, int]:
        """Return each partition's end, by topic and number; empty before the first batch."""
        return self.sink.checkpoint.ends(self.session)

    def is_busy(self) -> bool:
        """Return whether a batch is running."""
        return bool(self.query.status["isTriggerActive"])

    def batches(self) -> int:
        """Return how many batches have ended."""
        last = self.query.lastProgress
        return 0 if last is None else int(last["batchId"]) + 1

    def stop(self) -> None:
        """Stop the query without waiting for its batch."""
        self.query.stop()
