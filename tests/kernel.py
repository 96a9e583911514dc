"""Creates the parts of the kernel that features are given, for the features' tests.

A rename in the kernel touches this file and no test of a feature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from window_consumer import App
from window_consumer.engine.retry.copy_record import Target
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import EventNeeds, admin_settings
from window_consumer.metrics.catalog import METRICS as _OF_WORKERS
from window_consumer.metrics.exposition import exposition
from window_consumer.model.protocols import TopicFacts
from window_consumer.model.record import Record
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.topics.copy_topics import Ladder
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.plan.topics.problems import TopicTroubles
from window_consumer.runtime.context import current_slot
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.metric import Metric
from window_consumer.runtime.log import own_logger

FEATURES: FeatureList = App("tests").features
"""The features of an application."""

METRICS: tuple[Metric, ...] = (*_OF_WORKERS, *FEATURES.metrics)
"""All metrics of the framework: those of workers, then those of features."""


def client_log() -> ClientLog:
    """Return the logger of a Kafka client."""
    return ClientLog(own_logger("window_consumer.client"))


def cluster_at(bootstrap: str, worker: str = "charge") -> Cluster:
    """Return the object that queries the cluster for a worker."""
    return Cluster(admin_settings({"bootstrap.servers": bootstrap}, worker), client_log())


def event_writer(
    settings: Mapping[str, Any],
    topic: str,
    acks: Literal["0", "1", "all"],
    timeout_s: float,
    logger: logging.Logger,
) -> EventWriter:
    """Return the writer of event batches."""
    needs = EventNeeds("wc-trace", acks, timeout_s=timeout_s)
    return EventWriter(settings, needs, topic, ClientLog(logger))


def scrape_of(workers: Sequence[Measures], **common: str) -> str:
    """Return what Prometheus scrapes from workers."""
    return exposition(workers, common=common)


def error_reports(redact: Callable[[str], str] | None = None) -> ErrorReports:
    """Return the object that describes handlers' exceptions."""
    return ErrorReports(redact=redact)


@contextmanager
def in_a_call(record: Record) -> Iterator[None]:
    """Run the block within the call of a record, as its handler runs."""
    token = current_slot.set(record)
    try:
        yield
    finally:
        current_slot.reset(token)


def prepared(planned: PlannedWorker, topic: str, partitions: int) -> PreparedWorker:
    """Return a worker whose one topic exists, without retry topics; nothing is queried."""
    return PreparedWorker(
        planned,
        Cluster(planned.admin, client_log()),
        client_log(),
        {topic: TopicFacts(partitions, None)},
        {topic: Ladder({}, Target("dlq", partitions, partitions))},
        troubles=TopicTroubles(planned.name, str),
    )
