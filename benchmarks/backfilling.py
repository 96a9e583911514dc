"""A backfill on Spark: a no-op handler and one of a millisecond, over a topic."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.results import Run
from benchmarks.workloads import Workload
from window_consumer import App, Record
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import RunError
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.spark import jars, session
from window_consumer.spark.backfill import planning, ranges
from window_consumer.spark.backfill.backlog import BackfillRun
from window_consumer.spark.backfill.chunk_log import BackfillIdentity, BackfillLedger
from window_consumer.spark.backfill.ranges import Spans

MASTER: Final = "local[2]"
WAIT_S: Final = 0.001
_WARM: Final = 20_000
_CHUNK: Final = 500_000
"""The command's default."""

_MEMORY: Final = "2g"

app = App("benchmarks")


@app.handler(name="noop")
def noop(_: Record) -> None:
    """Do nothing."""


@app.handler(name="wait1")
def wait(_: Record) -> None:
    """Take a millisecond."""
    time.sleep(WAIT_S)


def run(
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    memory: str = _MEMORY,
) -> Run:
    """Run both handlers over the topic, after a short range as a warm-up.

    The time runs from the first chunk to the last one's commit, without the session's start.
    """
    properties = {"spark.driver.memory": memory, "spark.ui.enabled": "false"}
    spark = session.start("benchmark", MASTER, jars.ready(jars.default_directory()), properties)
    notes = {}
    with TemporaryDirectory() as directory:
        file = Path(directory, "workers.yaml")
        worker = {
            "topics": [topic],
            "concurrency": workload.slots,
            "retry": {"attempts": 1, "when_spent": "stop"},
        }
        config = {
            "kafka": {"bootstrap.servers": bootstrap},
            "workers": {name: {**worker, "group": f"{group}-{name}"} for name in app.handlers},
        }
        file.write_text(json.dumps(config), "utf-8")
        for name in app.handlers:
            chosen = planning.choose(app.plan(file), topic, name=name)
            with TopicReader(chosen.worker.consumer, ClientLog(LOGGER)) as reader:
                spans = ranges.resolve(ranges.WantedRange(topic), reader)
            if ranges.count_of(spans) != sum(counts):
                raise RunError(f"{topic} holds {ranges.count_of(spans)} records, not {sum(counts)}")
            _rate(spark, directory, chosen, f"{name}, warm", ranges.next_chunk(spans, _WARM))
            notes[name] = _rate(spark, directory, chosen, name, spans)
    spark.stop()
    return Run(notes["noop"], notes=notes)


def _rate(
    spark: SparkSession, directory: str, chosen: planning.ChosenHandler, name: str, spans: Spans
) -> float:
    """Run a range and return its records per second."""
    about = BackfillIdentity(
        name, chosen.worker.name, chosen.worker.config.group, chosen.topic, None, name
    )
    ended = BackfillRun(
        session=spark,
        ledger=BackfillLedger(spark, directory),
        about=about,
        plan=planning.worker_plan(app, chosen),
        consumer=chosen.worker.consumer,
        chunk_records=_CHUNK,
    ).run(spans)
    if ended.left or ended.progress.failed:
        raise RunError(f"{name}: not all records are done: {ended}")
    return ended.progress.per_s
