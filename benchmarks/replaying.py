"""Replays of a topic: timed as a whole, with a rate, and killed midway."""

from __future__ import annotations

import json
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from benchmarks import usage
from benchmarks.results import Run
from benchmarks.workloads import PARTITIONS
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, tune
from window_consumer.config import load
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition
from window_consumer.plan.feature_list import FeatureList
from window_consumer.replay.job import ReplayJob, ReplayRequest
from window_consumer.replay.ranges import Selection
from window_consumer.replay.setup import replay_jobs

_RATE = 5_000.0
_PACED_RECORDS = 20_000
"""Four seconds: long enough that a twentieth is not one late batch."""


def run(bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Replay all records as the command does, timed without the start; then some with a rate."""
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    job = _job(bootstrap, topic, group, dict.fromkeys(range(PARTITIONS), 0))
    used, began = usage.cpu_s(), time.perf_counter()
    job.replay(lambda: False, FeatureList())
    seconds = time.perf_counter() - began
    found = Run(job.counts.replayed / seconds, usage.cpu_s() - used, usage.max_rss_mb())
    return {**attrs.asdict(found), "progress_group": job.group}


def run_paced(bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """Replay some records with a rate; return by which share it was missed."""
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    whole = _job(bootstrap, topic, group, dict.fromkeys(range(PARTITIONS), 0))
    ends = {name.partition: each.span.end for name, each in whole.ranges.items()}
    each = _PACED_RECORDS // PARTITIONS
    firsts = {number: max(0, end - each) for number, end in ends.items()}
    job = _job(bootstrap, topic, group, firsts, rate=_RATE)
    job.replay(lambda: False, FeatureList())
    with TopicReader(job.clients.consumer, job.clients.log) as reader:
        copies = reader.read(_written(reader.spans(job.entry)))
        times = sorted(message.timestamp()[1] for message in chain.from_iterable(copies))
    seconds = (times[-1] - times[0]) / 1000
    return {"rate_error": abs((len(times) - 1) / seconds / _RATE - 1)}


def _written(spans: dict[TopicPartition, Span]) -> dict[TopicPartition, Span]:
    return {name: span for name, span in spans.items() if span.count}


def _job(
    bootstrap: str, topic: str, group: str, offsets: dict[int, int], rate: float | None = None
) -> ReplayJob:
    worker = {"topics": [topic], "group": group}
    config = {"kafka": {"bootstrap.servers": bootstrap}, "workers": {"work": worker}}
    request = ReplayRequest(
        Selection(offsets=offsets), json.dumps(sorted(offsets.items())), rate=rate
    )
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "workers.yaml")
        file.write_text(json.dumps(config))
        (job,) = replay_jobs(load(file), request, worker="work")
    return job
