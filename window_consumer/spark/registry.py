"""What features bring to the pipeline: jobs with their tables, and answers without Spark.

Features import the pipeline; the pipeline finds them here, by name, when they are used. A feature
with a table of its own adds its folder to ``FEATURES`` and a ``JOB`` in its ``spark/job``.
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
    """The topic, or a pattern of Java's for several."""
    is_pattern: bool = False
    rows_each: int = 1000
    """How many rows a record is, roughly: of what is one row a batch takes more records."""
    keep_days: Callable[[PipelinePlan], int] | None = None
    """How many days of the table, and of its quarantined records, are kept; None for all."""
    may_lack_day: bool = False
    """A row without a ``day`` is as old as its ``written_at``."""
    record_of: str | None = None
    """SQL for the record that a row is about, as the trace names it; None where it is about none.
    The table has a column ``key``, too."""
    rehearse: Callable[[SparkSession, PipelinePlan], None] | None = None
    """Answers the feature's questions from its table, so that Java loads the classes for it."""


def jobs() -> Mapping[str, Job]:
    """Return all jobs by name; imports pyspark."""
    parts = (import_module(f"window_consumer.{each}.spark.job").JOB for each in FEATURES)
    return MappingProxyType({job.name: job for job in parts})


def letters_of_key() -> ModuleType:
    """Return what finds the dead letters of a key without Spark, see ``dlq.spark.deletion``.

    Raises UsageError where a package is missing.
    """
    try:
        return import_module(_LETTERS_OF_KEY)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
