"""Commands and jobs in the process of the tests: they get its session, and start no Spark."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.commands import Ended
from window_consumer.cli.main import main
from window_consumer.spark.commands.runner import runner_of
from window_consumer.spark.wire import load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, *arguments: str) -> Ended:
    """Run ``window-consumer`` with these arguments, in the session that is active."""
    active = spark.getActiveSession()
    assert active is not None
    assert active.sparkContext is spark.sparkContext
    with (
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        main([*arguments])
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, out.getvalue(), err.getvalue())


def run_job(spark: SparkSession, file: Path, name: str = "trace") -> None:
    """Run a job of a pipeline.yaml once, as a report does before it answers."""
    runner_of(load_pipeline(file)).refresh(spark, name)
