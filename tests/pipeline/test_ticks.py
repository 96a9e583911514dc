"""A job that goes on takes all that there is each time, however little a batch may take."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from tests.conftest import MakeTopic
from tests.pipeline.gates import DEADLINE_S
from tests.pipeline.streams import batch, configured, counted, write
from window_consumer.spark.commands.runner import runner_of
from window_consumer.spark.wire import load_pipeline
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from window_consumer.spark.checkpoints import Place


def test_a_tick_takes_all_there_is_and_tells_it_in_a_line(
    spark: SparkSession,
    kafka: RealKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = make_topic("events", 2)
    write(kafka.bootstrap, events, [*map(batch, range(7)), b"no event"])
    plan = load_pipeline(configured(tmp_path, kafka.bootstrap, events, batch_records=4))
    stop = threading.Event()
    runner = runner_of(plan)
    logs_of = runner.logs
    assert logs_of is not None

    def logs(topics: Sequence[str]) -> Mapping[Place, tuple[int, int]]:
        stop.set()  # it is asked once a tick
        return logs_of(topics)

    end = threading.Timer(DEADLINE_S, stop.set)
    end.start()
    evolve(runner, listen=lambda: stop, logs=logs).run(("trace",), 3600.0)
    end.cancel()
    spark.sparkContext.setLogLevel("WARN")  # a job that is stopped silences its session
    assert counted(runner.plan) == {"rows": 700, "distinct": 700}
    assert counted(runner.plan, "quarantine")["rows"] == 1
    tick, _ = capsys.readouterr().out.splitlines()
    assert tick == "trace: 8 records, 700 rows, lag 0, quarantine 1"
