"""What features add to the pipeline: jobs with their tables, and queries without Spark.

Features import the pipeline; the pipeline finds them here by name when it needs them. A feature
with a table adds its folder to ``FEATURES`` and a ``JOB`` in its ``spark/job``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final

from attrs import frozen

from window_consumer.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from window_consumer.spark.plan import PipelinePlan
    from window_consumer.spark.tables import Table

FEATURES: Final = ("trace", "audit", "dlq")
"""Folders with a job, in the order in which jobs run."""

_LETTERS_OF_KEY: Final = "window_consumer.dlq.spark.deletion"


@frozen
class Job:
    """A topic of events that becomes a table."""

    name: str
    table: Table
    judge: Callable[[DataFrame], DataFrame]
    """Adds ``reason`` to the records of the topic."""
    rows: Callable[[DataFrame, PipelinePlan], DataFrame]
    """The rows of records without a reason."""
    topic_of: Callable[[PipelinePlan], str]
    """The topic, or a Java pattern for several."""
    is_pattern: bool = False
    rows_each: int = 1000
    """Rows per record, roughly; the fewer, the more records a batch takes."""
    keep_days: Callable[[PipelinePlan], int] | None = None
    """Days to keep rows and quarantined records; None keeps all."""
    may_lack_day: bool = False
    """A row without a ``day`` is as old as its ``written_at``."""
    record_of: str | None = None
    """SQL for a row's record, as the trace names it; None where rows have none.

    Such a table also has a column ``key``.
    """
    rehearse: Callable[[SparkSession, PipelinePlan], None] | None = None
    """Runs the feature's queries on its table, so that Java loads their classes."""


def jobs() -> Mapping[str, Job]:
    """Return all jobs by name; imports pyspark."""
    parts = (import_module(f"window_consumer.{each}.spark.job").JOB for each in FEATURES)
    return MappingProxyType({job.name: job for job in parts})


def letters_of_key() -> ModuleType:
    """Return ``dlq.spark.deletion``, which finds a key's dead letters without Spark.

    Raises UsageError where a package is missing.
    """
    try:
        return import_module(_LETTERS_OF_KEY)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
