"""Runs jobs in their own Spark session."""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from window_consumer.cli.signals import Signals
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster.topic_id import cluster_id, topic_id, topic_ids
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import (
    BrokerUnavailableError,
    RunError,
    UsageError,
    WindowConsumerError,
)
from window_consumer.model.redaction import Mask
from window_consumer.spark.commands.schedule import BATCH_S, Turn, run_every, run_once
from window_consumer.spark.commands.skipped import Beginnings, SkippedRanges
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import optional_module, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from window_consumer.spark.checkpoints import JobSource, Place, Spans
    from window_consumer.spark.jobs import RunningJob


class JobRunningError(UsageError):
    """Another process runs the job."""

    code = "WC175"


AGAIN_S: Final = 10.0
"""Time between attempts of a repeated job while Kafka does not respond."""
Origins = dict[str, "JobSource"]
"""The sources of jobs, by job name."""
Logs = Callable[[Sequence[str]], Mapping["Place", tuple[int, int]]]
"""Returns the first offset and the end of each partition; raises a WindowConsumerError."""


@frozen
class Runner:
    """Runs jobs of one plan.

    Raises UsageError if pyspark, Java, a jar or a topic is missing, and if another process runs the
    same job.
    """

    plan: PipelinePlan
    topic_id: Callable[[str], str | None]
    """Queries a topic's id; raises a WindowConsumerError if it or the cluster is unavailable."""
    topic_ids: Callable[[str], Mapping[str, str | None]]
    """Queries the ids of all topics whose names match a pattern."""
    beginnings: Beginnings | None = None
    """Queries first offsets, if the plan skips deleted records."""
    listen: Callable[[], threading.Event] = threading.Event
    """Installs signal handlers after Spark's start, because Spark takes over SIGINT."""
    aside: bool = False
    """Report on stderr, because stdout has another use."""
    cluster_id: Callable[[], str | None] = lambda: None
    """Queries the cluster's id; raises a WindowConsumerError if the cluster is unavailable. Spark
    itself would retry for minutes.
    """
    logs: Logs | None = None
    """Queries the current offsets of topics' partitions."""
    again_s: float = AGAIN_S
    batch_s: float = BATCH_S
    open_session: Callable[[PipelinePlan], AbstractContextManager[SparkSession]] = session_for
    load_jobs: Callable[[], Any] = lambda: optional_module("window_consumer.spark.jobs")
    """Returns the module of the jobs; raises UsageError if pyspark is missing."""

    def run(self, names: Sequence[str], every_s: float | None, *, restart: bool = False) -> bool:
        """Run jobs by name, every ``every_s`` seconds, or once for None.

        Returns False if it was stopped before everything was read.
        """
        origins = self._origins_of(names)
        restarts = set(names) if restart else set()
        with ExitStack() as held:
            for name in names:
                held.enter_context(_alone(self.plan.directory, name))
            spark = held.enter_context(self.open_session(self.plan))
            stop = self.listen()
            while not stop.is_set():
                if self._ended(spark, origins, every_s, stop, restarts):
                    break
        return every_s is not None or not stop.is_set()

    def refresh(self, spark: SparkSession, name: str) -> None:
        """Run a job once, in an existing session."""
        origins = self._origins_of([name])
        with _alone(self.plan.directory, name):
            self._ended(spark, origins, None, threading.Event(), set())

    def _ended(
        self,
        spark: SparkSession,
        origins: Origins,
        every_s: float | None,
        stop: threading.Event,
        restarts: set[str],
    ) -> bool:
        """Run jobs until they end or must stop; return False if they must run again.

        ``restarts`` are jobs that start over; each is removed once it has started.
        """
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - optional, and slow
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        jobs = self.load_jobs()
        start = partial(self._start, spark, dict(origins), restarts)
        turns = [Turn(name, start) for name in origins]
        try:
            self._run_all(turns, every_s, stop)
            if stop.is_set():
                # The interruption is intended, but Spark logs it with the stack of each thread.
                spark.sparkContext.setLogLevel("OFF")
        except (PySparkException, Py4JJavaError) as error:
            if every_s is None or not jobs.is_absence(error):
                raise RunError(jobs.explained(error)) from error
            click.echo(f"Kafka does not respond; retrying in {self.again_s:g} s", err=True)
        except BrokerUnavailableError as error:
            if every_s is None:
                raise
            click.echo(f"{error}; retrying in {self.again_s:g} s", err=True)
        else:
            self._report_end(turns)
            return True
        finally:
            for turn in turns:
                turn.stop()
        stop.wait(self.again_s)
        self._until_there(origins, stop)
        return False

    def _run_all(self, turns: Sequence[Turn], every_s: float | None, stop: threading.Event) -> None:
        if every_s is None:
            run_once(turns, stop, self.batch_s)
        else:
            run_every(turns, every_s, stop, self._report_tick, self.batch_s)

    def _start(
        self, spark: SparkSession, origins: Origins, restarts: set[str], name: str
    ) -> RunningJob:
        """Start a run of a job. The first takes its source from ``origins``, others query it."""
        jobs = self.load_jobs()
        how = jobs.JobOptions(
            origin=origins.pop(name, None) or self._origin_of(name),
            origin_now=partial(self._origin_of, name),
            restart=name in restarts,
            before_batch=self._before_batch_of(name),
        )
        running: RunningJob = jobs.start(spark, self.plan, jobs.JOBS[name], how)
        restarts.discard(name)
        return running

    def _report_end(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.path:
                text = f"{turn.name}: {turn.records:,} records read into {turn.path}"
                click.echo(text, err=self.aside)

    def _report_tick(self, name: str, running: RunningJob) -> None:
        """Print a line with the result of one run, and the lag."""
        sink = running.sink
        click.echo(
            f"{name}: {sink.records:,} records, {sink.rows:,} rows, lag"
            f" {self._lag_of(name, running.read_to())}, quarantine {sink.quarantined:,}",
            err=self.aside,
        )

    def _lag_of(self, name: str, read_to: Mapping[Place, int]) -> str:
        """Return how many offsets the table lacks, as text."""
        if self.logs is None:
            return "unknown"
        job = self.load_jobs().JOBS[name]
        topic = job.topic_of(self.plan)
        try:
            topics = list(self.topic_ids(topic)) if job.is_pattern else [topic]
            logs = self.logs(topics)
        except WindowConsumerError as error:
            return f"unknown ({error})"
        left = (end - max(first, read_to.get(at, 0)) for at, (first, end) in logs.items())
        return f"{sum(max(0, each) for each in left):,}"

    def _before_batch_of(self, job: str) -> Callable[[Spans], None] | None:
        if self.beginnings is None or self.plan.fail_on_data_loss:
            return None
        return SkippedRanges(job, self.beginnings, lambda text: click.echo(text, err=True)).check

    def _until_there(self, origins: Origins, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                origins.update(self._origins_of(list(origins)))
            except BrokerUnavailableError as error:
                click.echo(f"{error}; retrying in {self.again_s:g} s", err=True)
                stop.wait(self.again_s)
            else:
                return

    def _origins_of(self, names: Sequence[str]) -> Origins:
        return {name: self._origin_of(name) for name in names}

    def _origin_of(self, name: str) -> JobSource:
        """Query the cluster's id, and the ids of a job's topics."""
        jobs = self.load_jobs()
        job, cluster = jobs.JOBS[name], self.cluster_id()
        topic = job.topic_of(self.plan)
        ids = self.topic_ids(topic) if job.is_pattern else {topic: self.topic_id(topic)}
        origin: JobSource = jobs.JobSource(cluster=cluster, topics=ids)
        return origin


def runner_of(plan: PipelinePlan, *, aside: bool = False) -> Runner:
    """Return a runner for the plan's cluster."""
    client = plan.kafka
    log = ClientLog(logging.getLogger("window_consumer.client"), Mask(plan.secrets))

    def logs(topics: Sequence[str]) -> dict[Place, tuple[int, int]]:
        with TopicReader(client, log) as reader:
            spans = [each for topic in topics for each in reader.spans(topic).items()]
        return {(at.topic, at.partition): (span.first, span.end) for at, span in spans}

    def beginnings(topic: str) -> dict[int, int]:
        return {partition: first for (_, partition), (first, _) in logs([topic]).items()}

    return Runner(
        plan,
        lambda name: topic_id(name, client, log),
        lambda pattern: topic_ids(pattern, client, log),
        beginnings,
        lambda: Signals.install().stop,
        aside,
        lambda: cluster_id(client, log),
        logs,
    )


@contextmanager
def _alone(directory: str, job: str) -> Iterator[None]:
    """Lock a job in a local directory; raises UsageError if another process holds the lock.

    Elsewhere there is no lock, but the tables refuse the second writer.
    """
    if "://" in directory:
        yield
        return
    place = Path(directory, "locks")
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = Path(place, job).open("w")  # noqa: SIM115 - held until closed below
    except OSError as error:
        raise UsageError(f"directory: cannot write to {place}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobRunningError(
                f"another process is running the job {job} in {directory}: wait for it, or stop it"
            ) from None
        yield
