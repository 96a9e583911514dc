"""What commands need of the pipeline: its plan, a Spark session, and table maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Final

from window_consumer.config.sections.kafka_properties import as_text
from window_consumer.config.sections.mask import MaskRules
from window_consumer.config.sections.pipeline import LoadedPipeline
from window_consumer.model.errors import (
    RunError,
    UsageError,
)
from window_consumer.spark.jars import (
    default_directory,
    ready,
)
from window_consumer.spark.plan import PipelinePlan, Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DAY_S = 86400


def plan_of(loaded: LoadedPipeline, master: str | None = None) -> PipelinePlan:
    """Return the pipeline's plan; ``master`` overrides the configuration."""
    config = loaded.config
    properties = {**config.kafka.common, **config.kafka.consumer}
    return PipelinePlan(
        kafka={key: as_text(value) for key, value in properties.items()},
        directory=loaded.directory,
        master=master or config.spark.master,
        spark=config.spark.properties,
        trace_topic=config.trace.topic,
        audit_topic=config.audit.topic,
        dlq_topics=config.dlq.topics,
        dlq_patterns=config.dlq.patterns,
        dlq_reading=Reading(
            mask_of=MaskRules(config.mask).of if config.mask else None,
            keys=config.dlq.keys,
            key_secret=(config.dlq.key_secret or "").encode(),
            values=config.dlq.values,
        ),
        batch_records=config.batch_records,
        fail_on_data_loss=config.fail_on_data_loss,
        keep_days=int(config.trace.keep // _DAY_S),
        dlq_keep_days=int(config.dlq.keep // _DAY_S),
    )


_MOST_TEXT: Final = 2000


@contextmanager
def session_for(plan: PipelinePlan, *, short: bool = False) -> Iterator[SparkSession]:
    """Yield a session for a plan, and stop it at the end; ``short``: see ``session.start``.

    An active session is used as it is, and not stopped. Raises UsageError where pyspark, Java or a
    jar is missing.
    """
    try:
        from window_consumer.spark import session  # noqa: PLC0415 - optional, and slow
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
    # Under spark-submit, --jars and --packages provide the connectors.
    jars = [] if session.is_submitted() else ready(default_directory())
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    is_ours = SparkSession.getActiveSession() is None
    try:
        spark = session.start(
            "window-consumer pipeline", plan.master, jars, plan.spark, short=short
        )
    except Py4JError as error:
        raise RunError(f"Spark could not be started: {str(error)[:_MOST_TEXT]}") from error
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def maintenance() -> ModuleType:
    """Return ``spark.maintenance``; raises UsageError where a package is missing."""
    try:
        from window_consumer.spark import maintenance as found  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no {error.name}: pip install 'window-consumer[spark]'"
        ) from error
    return found
