"""Running jobs, with a Spark session of their own."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from window_consumer.cli.pipeline.skipped import Beginnings, Skipped
from window_consumer.cli.pipeline.spark import session_for
from window_consumer.cli.run import Signals
from window_consumer.config.pipeline import LoadedPipeline
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_id import cluster_id, topic_id, topic_ids
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import BrokerUnavailableError, RunError, UsageError
from window_consumer.model.mask import Mask
from window_consumer.pipeline.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from window_consumer.pipeline.checkpoints import Origin, Spans
    from window_consumer.pipeline.jobs import Running

AGAIN_S: Final = 10.0
"""Between two attempts of a job that goes on, while Kafka does not answer."""
Origins = dict[str, "Origin"]
"""Where the records of jobs come from, by the names of the jobs."""
BATCH_S: Final = 30.0
"""How long a batch that runs may take when the end is asked for; the next run does it again."""


@frozen
class Runner:
    """Runs jobs of one plan.

    Raises UsageError where pyspark, Java or a jar is missing, where a topic is not there, and
    where another process runs the same job.
    """

    plan: Plan
    topic_id: Callable[[str], str | None]
    """Asks the cluster; raises a WindowConsumerError where it is away, or has no such topic."""
    topic_ids: Callable[[str], Mapping[str, str | None]]
    """Asks for all topics whose names match a pattern."""
    beginnings: Beginnings | None = None
    """Asks the cluster what is not gone yet, where the plan goes on behind what is."""
    listen: Callable[[], threading.Event] = threading.Event
    """Begins to hear what asks for the end, after Spark's start, which takes SIGINT."""
    aside: bool = False
    """What was read is told on stderr: stdout is for something else."""
    cluster_id: Callable[[], str | None] = lambda: None
    """Asks the cluster who it is; raises a WindowConsumerError where it is away: Spark by itself
    tries for minutes."""

    def run(self, names: Sequence[str], every_s: float | None, *, restart: bool = False) -> bool:
        """Run jobs by their names, every so many seconds, or once for None.

        False where it was ended before all was read that was there.
        """
        origins = self._origins_of(names)
        with ExitStack() as held:
            for name in names:
                held.enter_context(_alone(self.plan.directory, name))
            spark = held.enter_context(session_for(self.plan))
            stop = self.listen()
            while not stop.is_set():
                if self._ended(spark, origins, every_s, stop, restart=restart):
                    break
                restart = False
        return every_s is not None or not stop.is_set()

    def refresh(self, spark: SparkSession, name: str) -> None:
        """Run a job once, in a session that is there."""
        origins = self._origins_of([name])
        with _alone(self.plan.directory, name):
            self._ended(spark, origins, None, threading.Event(), restart=False)

    def _ended(
        self,
        spark: SparkSession,
        origins: Origins,
        every_s: float | None,
        stop: threading.Event,
        *,
        restart: bool,
    ) -> bool:
        """Run jobs until they end, or have to; False where they are to be run again."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - optional, and slow
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

        jobs = _jobs()
        every = None if every_s is None else f"{int(every_s * 1000)} milliseconds"
        running: list[Running] = []
        try:
            for name, origin in origins.items():
                how = jobs.How(
                    every=every,
                    origin=origin,
                    origin_now=partial(self._origin_of, name),
                    restart=restart,
                    before_batch=self._look_of(name),
                )
                running.append(jobs.start(spark, self.plan, jobs.JOBS[name], how))
            _wait_for(running, stop)
            if stop.is_set():
                # What is cut off is no news, and Spark tells it with the stack of each thread.
                spark.sparkContext.setLogLevel("OFF")
        except (PySparkException, Py4JJavaError) as error:
            if every is None or not jobs.is_absence(error):
                raise RunError(jobs.explained(error)) from error
            click.echo(f"Kafka does not answer, tried again in {AGAIN_S:g} s", err=True)
        except BrokerUnavailableError as error:
            if every is None:
                raise
            click.echo(f"{error}; tried again in {AGAIN_S:g} s", err=True)
        else:
            for each in running:
                job = each.sink.job
                text = f"{job.name}: {each.sink.records:,} records read into {each.sink.path}"
                click.echo(text, err=self.aside)
            return True
        finally:
            for each in running:
                each.stop()
        stop.wait(AGAIN_S)
        self._until_there(origins, stop)
        return False

    def _look_of(self, job: str) -> Callable[[Spans], None] | None:
        if self.beginnings is None or self.plan.fail_on_data_loss:
            return None
        return Skipped(job, self.beginnings, lambda text: click.echo(text, err=True)).look

    def _until_there(self, origins: Origins, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                origins.update(self._origins_of(list(origins)))
            except BrokerUnavailableError as error:
                click.echo(f"{error}; tried again in {AGAIN_S:g} s", err=True)
                stop.wait(AGAIN_S)
            else:
                return

    def _origins_of(self, names: Sequence[str]) -> Origins:
        return {name: self._origin_of(name) for name in names}

    def _origin_of(self, name: str) -> Origin:
        """Ask for the cluster's id, and for those of a job's topics."""
        jobs = _jobs()
        job, cluster = jobs.JOBS[name], self.cluster_id()
        topic = job.topic_of(self.plan)
        ids = self.topic_ids(topic) if job.is_pattern else {topic: self.topic_id(topic)}
        origin: Origin = jobs.Origin(cluster=cluster, topics=ids)
        return origin


def runner_of(loaded: LoadedPipeline, plan: Plan, *, aside: bool = False) -> Runner:
    """Return a runner that asks the cluster of the configuration."""
    client = {**loaded.config.kafka.common, **loaded.config.kafka.consumer}
    log = ClientLog(logging.getLogger("window_consumer.client"), Mask(loaded.secrets))

    def beginnings(topic: str) -> dict[int, int]:
        with TopicReader(client, log) as reader:
            return {name.partition: span.first for name, span in reader.spans(topic).items()}

    return Runner(
        plan,
        lambda name: topic_id(name, client, log),
        lambda pattern: topic_ids(pattern, client, log),
        beginnings,
        lambda: Signals.install().stop,
        aside,
        lambda: cluster_id(client, log),
    )


def _wait_for(running: Sequence[Running], stop: threading.Event) -> None:
    """Wait for all to end; what one of them ends with is raised at once.

    Where the end is asked for, each batch that runs may end first.
    """
    left = list(running)
    while left and not stop.is_set():
        left = [each for each in left if not each.wait(1)]
    busy = [(each, each.batches()) for each in left]
    deadline = time.monotonic() + BATCH_S
    while busy and time.monotonic() < deadline:
        busy = [
            (each, batches)
            for each, batches in busy
            if each.is_busy() and each.batches() == batches and not each.wait(1)
        ]


def _jobs() -> Any:
    try:
        from window_consumer.pipeline import jobs  # noqa: PLC0415 - optional, and slow
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
    return jobs


@contextmanager
def _alone(directory: str, job: str) -> Iterator[None]:
    """Hold a job in a directory of this machine; raises UsageError where another process does.

    In other places nobody holds it: there the tables refuse the second writer.
    """
    if "://" in directory:
        yield
        return
    place = Path(directory, "locks")
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = Path(place, job).open("w")  # noqa: SIM115 - closed below, held meanwhile
    except OSError as error:
        raise UsageError(f"directory: cannot write to {place}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process runs the job {job} in {directory}: wait for its end, or stop it"
            ) from None
        yield
