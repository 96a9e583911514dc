"""A job's checkpoint: its location, and whether it still matches the topic and the table.

The checkpoint defines the contents of batch 17; the table records that it has batch 17. Each needs
the other: if a job restarted its batch numbers, its first batches would be skipped as repeats. So
batch numbers continue across generations of a checkpoint, and a job whose checkpoint is missing
fails before it reads anything.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from attrs import asdict, evolve, field, frozen
from pyspark.sql import SparkSession

from window_consumer.model.errors import UsageError
from window_consumer.spark.plan import GENERATION, PipelinePlan, writer_of
from window_consumer.spark.tables import last_batch

_NOTE: Final = "window_consumer.json"
"""The file within a checkpoint that names its cluster and topics."""


Place = tuple[str, int]
"""Topic and partition."""
Spans = Mapping[Place, tuple[int, int]]


class CheckpointError(UsageError):
    """A checkpoint is missing, or belongs to something else; the message says what to do."""

    code = "WC174"

    def __init__(self, message: str, problem: CheckpointProblem):
        super().__init__(message)
        self.problem = problem


class CheckpointProblem(Enum):
    """Why a job cannot continue from its checkpoint."""

    BEHIND_TABLE = auto()
    """The table has batches that the checkpoint lacks."""
    AHEAD_OF_TABLE = auto()
    """The checkpoint has batches that the table lacks."""
    OTHER_CLUSTER = auto()
    OTHER_TOPIC = auto()
    RECREATED_TOPIC = auto()


@frozen(kw_only=True)
class JobSource:
    """Where a job's records come from."""

    cluster: str | None = None
    """The cluster's id, if it reports one."""
    topics: Mapping[str, str | None] = field(factory=dict)
    """The topics read, with their ids if the cluster has them."""
    is_pattern: bool = False
    """Whether topics may come and go."""

    def with_news(self, now: JobSource) -> JobSource:
        """Return this source, updated with current knowledge."""
        reported = {name: its for name, its in now.topics.items() if its or name not in self.topics}
        return evolve(now, cluster=now.cluster or self.cluster, topics={**self.topics, **reported})


@frozen
class Checkpoint:
    """How far a job has read."""

    path: str
    generation: int
    written: int
    """The number of the last batch in the table, -1 before the first."""

    def number(self, batch: int) -> int:
        """Return the number by which the table knows a batch."""
        return self.generation * GENERATION + batch

    def spans(self, session: SparkSession, batch: int) -> Spans:
        """Return the offsets of a batch, by topic and partition: first and end (exclusive).

        Partitions that no earlier batch has read are left out. So the first batch has none: it
        begins at Kafka's first offset.
        """
        if batch == 0:
            return {}
        files = _Files(session)
        before, after = (
            _offsets(files.read(posixpath.join(self.path, "offsets", str(number))))
            for number in (batch - 1, batch)
        )
        return {place: (before[place], end) for place, end in after.items() if place in before}

    def ends(self, session: SparkSession) -> dict[Place, int]:
        """Return the end of each partition in the last planned batch."""
        files, place = _Files(session), posixpath.join(self.path, "offsets")
        numbers = files.numbers(place)
        return _offsets(files.read(posixpath.join(place, str(max(numbers))))) if numbers else {}


def _offsets(text: str) -> dict[Place, int]:
    """Return each partition's end after a batch, from Spark's offset file."""
    last = json.loads(text.splitlines()[-1])  # a version, shared settings, then a line per source
    return {
        (topic, int(partition)): offset
        for topic, partitions in last.items()
        for partition, offset in partitions.items()
    }


def of(
    session: SparkSession,
    plan: PipelinePlan,
    job: str,
    table: str,
    origin: JobSource,
    *,
    restart: bool,
) -> Checkpoint:
    """Return the checkpoint from which a job continues; with ``restart``, a new one.

    Raises CheckpointError if the table or the checkpoint lacks the other's batches, or if the
    checkpoint belongs to another cluster, another topic, or a topic that was recreated.
    """
    files = _Files(session)
    version = last_batch(session, table, writer_of(job))
    generation = 0 if version is None else version // GENERATION
    if restart and version is not None:
        generation += 1
    path = plan.checkpoint(job, generation)
    if restart:
        files.remove(path)  # the table has no batch of it, so it contains only unfinished work
    else:
        _compare(files, path, table, version, _again(job))
    confirm(session, plan, job, path, origin)
    return Checkpoint(path, generation, -1 if version is None else version)


def reached(
    session: SparkSession, plan: PipelinePlan, job: str, table: str
) -> Mapping[Place, int] | None:
    """Return the end (exclusive) of the offsets in a table; None if it is unknown."""
    version = last_batch(session, table, writer_of(job))
    if version is None:
        return None
    files = _Files(session)
    path = plan.checkpoint(job, version // GENERATION)
    note = posixpath.join(path, "offsets", str(version % GENERATION))
    return _offsets(files.read(note)) if files.exists(note) else None


def confirm(
    session: SparkSession, plan: PipelinePlan, job: str, path: str, origin: JobSource
) -> None:
    """Compare a checkpoint with the current source, and record changes.

    Raises CheckpointError if it belongs to another cluster, another topic, or a recreated one.
    """
    files, note = _Files(session), posixpath.join(path, _NOTE)
    text = files.read(note) if files.exists(note) else ""
    if not text:  # or a kill left it empty
        files.write(note, json.dumps(asdict(origin)))
        return
    noted = json.loads(text)
    before = JobSource(
        cluster=noted.get("cluster"), topics=noted["topics"], is_pattern=origin.is_pattern
    )
    _check(path, before, origin, str(plan.kafka.get("bootstrap.servers", "")), _again(job))
    if (known := before.with_news(origin)) != before:
        files.write(note, json.dumps(asdict(known)))


def _again(job: str) -> str:
    return (
        f"`pipeline run {job} --restart` reads everything that Kafka has into the same table;"
        " queries count nothing twice"
    )


def _compare(files: _Files, path: str, table: str, version: int | None, again: str) -> None:
    """Raise CheckpointError unless checkpoint and table have the same batches."""
    last = -1 if version is None else version % GENERATION
    if version is not None and not files.exists(posixpath.join(path, "offsets", str(last))):
        raise CheckpointError(
            f"the table {table} has batches that its checkpoint lacks: {path} is missing, or is an"
            f" older version. Restore it, or: {again}",
            CheckpointProblem.BEHIND_TABLE,
        )
    if any(number > last for number in files.numbers(posixpath.join(path, "commits"))):
        raise CheckpointError(
            f"the checkpoint {path} has batches that the table {table} lacks: the table was"
            f" recreated, or is an older version. Restore it, or: {again}",
            CheckpointProblem.AHEAD_OF_TABLE,
        )


def _check(path: str, before: JobSource, origin: JobSource, bootstrap: str, again: str) -> None:
    """Raise CheckpointError if a checkpoint belongs to another source."""
    if before.cluster and origin.cluster and before.cluster != origin.cluster:
        raise CheckpointError(
            f"the checkpoint {path} belongs to the cluster {before.cluster}, but {bootstrap} is the"
            f" cluster {origin.cluster}: give each cluster its own `directory`, or queries mix"
            " topics of the same name from both. If the new cluster has replaced the old one:"
            f" {again}",
            CheckpointProblem.OTHER_CLUSTER,
        )
    if not origin.is_pattern and set(before.topics) != set(origin.topics):
        raise CheckpointError(
            f"the checkpoint {path} belongs to {', '.join(before.topics)}, but the job reads"
            f" {', '.join(origin.topics)}: configure the first one, or another directory."
            f" Or: {again}",
            CheckpointProblem.OTHER_TOPIC,
        )
    anew = [
        name
        for name, its in origin.topics.items()
        if its and before.topics.get(name) not in {None, its}
    ]
    if anew:
        raise CheckpointError(
            f"{', '.join(anew)} was deleted and recreated since the last run: its offsets now refer"
            f" to other records. {again}",
            CheckpointProblem.RECREATED_TOPIC,
        )


class _Files:
    """Files wherever Spark can write: in a directory, or at a URL."""

    def __init__(self, session: SparkSession):
        self._jvm: Any = session._jvm  # noqa: SLF001 - Hadoop's file systems have no Python API
        self._conf = session._jsc.hadoopConfiguration()  # noqa: SLF001 - as above

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._conf), place

    def exists(self, path: str) -> bool:
        """Return whether the file or directory exists."""
        system, place = self._at(path)
        return bool(system.exists(place))

    def read(self, path: str) -> str:
        """Return a file's text."""
        system, place = self._at(path)
        stream = system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def numbers(self, path: str) -> list[int]:
        """Return a directory's file names that are numbers; none if it does not exist."""
        system, place = self._at(path)
        found = system.listStatus(place) if system.exists(place) else ()
        names = [str(each.getPath().getName()) for each in found]
        return [int(name) for name in names if name.isdecimal()]

    def remove(self, path: str) -> None:
        """Remove a directory with its contents, if it exists."""
        system, place = self._at(path)
        system.delete(place, True)

    def write(self, path: str, text: str) -> None:
        """Write a file atomically, replacing an empty one."""
        system, place = self._at(path)
        _, part = self._at(f"{path}.part")
        stream = system.create(part)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(place, False)
        system.rename(part, place)
