"""Where a job's checkpoint lies, and whether it still belongs to the topic and to the table.

The checkpoint says what batch 17 is, the table says that it has batch 17. Each alone is worth
nothing: a table whose job began anew would take the first batches for those that it has. So
batches are numbered through the generations of a checkpoint, and a job that does not find its own
says so before it reads anything.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen
from pyspark.sql import SparkSession

from window_consumer.model.errors import UsageError
from window_consumer.pipeline.plan import GENERATION, Plan, writer_of

_NOTE: Final = "window_consumer.json"
"""The file within a checkpoint that tells which topics it is of."""


Place = tuple[str, int]
"""Topic and partition."""
Spans = Mapping[Place, tuple[int, int]]


class CheckpointError(UsageError):
    """A checkpoint is not there, or of another topic; the message says what to do."""


@frozen
class Checkpoint:
    """How far a job has read."""

    path: str
    generation: int
    written: int
    """The number of the last batch that the table has, -1 before the first."""

    def number(self, batch: int) -> int:
        """Return the number by which the table knows a batch."""
        return self.generation * GENERATION + batch

    def spans(self, session: SparkSession, batch: int) -> Spans:
        """Return the offsets of a batch, by topic and partition: first and end (exclusive).

        Partitions that no batch has read before are left out, as are all of the first batch: it
        begins at what Kafka has.
        """
        if batch == 0:
            return {}
        files = _Files(session)
        before, after = (
            _offsets(files.read(posixpath.join(self.path, "offsets", str(number))))
            for number in (batch - 1, batch)
        )
        return {place: (before[place], end) for place, end in after.items() if place in before}


def _offsets(text: str) -> dict[Place, int]:
    """Return how far each partition is read after a batch, from Spark's note of it."""
    last = json.loads(text.splitlines()[-1])  # a version, what all sources share, a line for each
    return {
        (topic, int(partition)): offset
        for topic, partitions in last.items()
        for partition, offset in partitions.items()
    }


def of(
    session: SparkSession,
    plan: Plan,
    job: str,
    table: str,
    topics: Mapping[str, str | None],
    *,
    restart: bool,
) -> Checkpoint:
    """Return where a job goes on, a new place with ``restart``.

    ``topics`` are those that are read now, with their ids where the cluster has such; none for a
    job that reads by a pattern. Raises CheckpointError where the table has batches and their
    checkpoint is away, and where it is of another topic, or of one that was made anew since.
    """
    files = _Files(session)
    version = _last_batch(session, table, writer_of(job))
    generation = 0 if version is None else version // GENERATION
    if restart and version is not None:
        generation += 1
    path = plan.checkpoint(job, generation)
    last = posixpath.join(path, "offsets", str((version or 0) % GENERATION))
    again = (
        f"`pipeline run {job} --restart` reads from the beginning of what Kafka has, into the same"
        " table; answers count nothing twice"
    )
    if version is not None and not restart and not files.exists(last):
        raise CheckpointError(
            f"the table {table} has what was read up to a checkpoint that is not there, or is of"
            f" before: {path}. Bring it back, or: {again}"
        )
    if topics:
        _check(files, path, dict(topics), again)
    return Checkpoint(path, generation, -1 if version is None else version)


def _check(files: _Files, path: str, topics: dict[str, str | None], again: str) -> None:
    note = posixpath.join(path, _NOTE)
    text = files.read(note) if files.exists(note) else ""
    if not text:  # or one that a kill has left empty
        files.write(note, json.dumps({"topics": topics}))
        return
    before: dict[str, str | None] = json.loads(text)["topics"]
    if set(before) != set(topics):
        raise CheckpointError(
            f"the checkpoint {path} is of {', '.join(before)}, and {', '.join(topics)} is to be"
            f" read: name the former in the configuration, or another directory. Or: {again}"
        )
    anew = [name for name, its in topics.items() if its and before[name] not in {None, its}]
    if anew:
        raise CheckpointError(
            f"{', '.join(anew)} was deleted and made anew since it was read last: its offsets mean"
            f" other records now. {again}"
        )


def _last_batch(session: SparkSession, table: str, writer: str) -> int | None:
    """Return the number of the last batch that a table has, None before the first."""
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark has no other way to Delta's log
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, table)  # noqa: SLF001 - as above
    found = log.unsafeVolatileSnapshot().transactions().get(writer)
    return int(found.get()) if found.isDefined() else None


class _Files:
    """Files wherever Spark can write: a directory, or an address."""

    def __init__(self, session: SparkSession):
        self._jvm: Any = session._jvm  # noqa: SLF001 - Hadoop's file systems have no Python
        self._conf = session._jsc.hadoopConfiguration()  # noqa: SLF001 - as above

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._conf), place

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file or directory."""
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

    def write(self, path: str, text: str) -> None:
        """Write a file, whole or not at all; an empty one of that name goes."""
        system, place = self._at(path)
        _, part = self._at(f"{path}.part")
        stream = system.create(part)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(place, False)
        system.rename(part, place)
