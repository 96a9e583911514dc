"""Features bring jobs to the pipeline."""

from __future__ import annotations

from pathlib import Path

import window_consumer
from window_consumer.spark import jobs
from window_consumer.spark.wire import FEATURES


def test_each_folder_with_a_job_is_in_the_registry() -> None:
    package = Path(window_consumer.__file__).parent
    assert {job.parents[1].name for job in package.glob("*/spark/job.py")} == set(FEATURES)


def test_jobs_run_in_the_order_of_the_registry_and_each_has_a_table_of_its_own() -> None:
    assert tuple(jobs.JOBS) == FEATURES
    assert len({job.table for job in jobs.JOBS.values()}) == len(FEATURES)
