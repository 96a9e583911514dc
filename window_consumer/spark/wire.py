"""Wires features into the pipeline: the jobs they add, and the services that their commands need.

Features import the pipeline; the pipeline finds them here by name when it needs them. A feature
with a table adds its folder to ``FEATURES``, its ``SECTION`` of pipeline.yaml in its
``spark/config``, and a ``JOB`` in its ``spark/job``. Commands get the pipeline's plan, a Spark
session, and the maintenance of tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final

from attrs import frozen

from window_consumer.config.options import Sections
from window_consumer.config.sections.kafka_login import with_login
from window_consumer.config.sections.mask import MaskRules
from window_consumer.model.errors import RunError, UsageError
from window_consumer.spark.config import read_pipeline
from window_consumer.spark.jars import default_directory, ready
from window_consumer.spark.plan import PipelinePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from window_consumer.spark.tables import Table

FEATURES: Final = ("trace", "audit", "dlq")
"""Folders with a job, in the order in which jobs run."""

_LETTERS_OF_KEY: Final = "window_consumer.dlq.spark.deletion"

_MOST_TEXT: Final = 2000
"""The longest part of a Java error in a message; it has the whole stack."""


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
    """SQL for a row's record id, as in the trace; None if rows have none.

    Such a table also has a column ``key``.
    """
    warm_up: Callable[[SparkSession, PipelinePlan], None] | None = None
    """Runs the feature's queries on its table, so that Java loads their classes."""


def jobs() -> Mapping[str, Job]:
    """Return all jobs by name; imports pyspark."""
    parts = (import_module(f"window_consumer.{each}.spark.job").JOB for each in FEATURES)
    return MappingProxyType({job.name: job for job in parts})


def sections() -> Sections:
    """Return the features' sections of pipeline.yaml; imports no optional package."""
    parts = (import_module(f"window_consumer.{each}.spark.config") for each in FEATURES)
    return Sections(file=tuple(each.SECTION for each in parts))


def load_pipeline(
    path: Path, environ: Mapping[str, str] = os.environ, *, master: str | None = None
) -> PipelinePlan:
    """Return the plan of a pipeline.yaml; ``master`` overrides the configuration.

    Raises ConfigError with all problems, secrets masked.
    """
    config, secrets = read_pipeline(path, environ, sections())
    kafka, directory = config.kafka, config.directory
    return PipelinePlan(
        kafka=with_login({**kafka.common, **kafka.consumer}, kafka.login),
        producer=with_login({**kafka.common, **kafka.producer}, kafka.login),
        secrets=secrets,
        directory=directory if "://" in directory else str((path.parent / directory).resolve()),
        master=master or config.spark.master,
        spark=config.spark.properties,
        mask=MaskRules(config.mask),
        batch_records=config.batch_records,
        fail_on_data_loss=config.fail_on_data_loss,
        features=config.features,
    )


@contextmanager
def session_for(plan: PipelinePlan, *, short: bool = False) -> Iterator[SparkSession]:
    """Yield a session for a plan, and stop it at the end; ``short``: see ``session.start``.

    An active session is used unchanged, and not stopped. Raises UsageError if pyspark, Java or a
    jar is missing.
    """
    session = optional_module("window_consumer.spark.session")
    # Under spark-submit, --jars and --packages provide the connectors.
    jars = [] if session.is_submitted() else ready(default_directory())
    from py4j.protocol import Py4JError  # noqa: PLC0415 - optional, and slow
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    is_ours = SparkSession.getActiveSession() is None
    try:
        spark = session.start(
            "window-consumer pipeline", plan.master, jars, plan.spark, short=short
        )
    except Py4JError as error:
        raise RunError(f"cannot start Spark: {str(error)[:_MOST_TEXT]}") from error
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def letters_of_key() -> ModuleType:
    """Return ``dlq.spark.deletion``, which finds a key's dead letters without Spark.

    Raises UsageError if a package is missing.
    """
    return optional_module(_LETTERS_OF_KEY)


def maintenance() -> ModuleType:
    """Return ``spark.maintenance``; raises UsageError if a package is missing."""
    return optional_module("window_consumer.spark.maintenance")


def optional_module(module: str) -> ModuleType:
    """Import a module that needs the extra ``spark``; this takes time.

    Raises UsageError if a package is missing.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
