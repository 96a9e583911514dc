"""Prepares a backfill: its worker, the plan for its tasks, and the size of the records."""

from __future__ import annotations

from math import inf

from attrs import evolve, frozen

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.retry.copy_record import CopyOrigin
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import uses_tokens
from window_consumer.kafka.settings import admin_settings
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.child_spec import child_spec_of
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.start_timeout import LOGGER, StartTimeout
from window_consumer.plan.topics.patterns import matching_topics
from window_consumer.plan.topics.preparation import Preparation
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.runtime.pools.registry import DEFAULT
from window_consumer.spark.backfill.held_records import MAX_HOLD_S, AtEnd, HoldRules
from window_consumer.spark.backfill.ranges import Spans
from window_consumer.spark.backfill.task import WorkerPlan

_START_S = 30.0


@frozen
class ChosenHandler:
    """An existing worker and topic for a backfill."""

    plan: AppPlan
    prepared: PreparedWorker
    topic: str

    @property
    def worker(self) -> PlannedWorker:
        """The worker, without its retry topics."""
        return self.prepared.plan


def worker_of(plan: AppPlan, topic: str, name: str | None = None) -> PlannedWorker:
    """Return the worker of this name, or the one that reads the topic; raises UsageError."""
    workers = {worker.name: worker for worker in plan.workers}
    if name is not None:
        return workers[name]
    found = [
        worker
        for worker in plan.workers
        if topic in worker.config.topics or matching_topics(plan.config, worker.config, [topic])
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(worker.name for worker in found or plan.workers)
    if found:
        raise UsageError(
            f"--topic {topic}: several workers read this topic: choose one of {names} (--worker)"
        )
    raise UsageError(
        f"--topic {topic}: no worker reads this topic: check the name, or choose one of {names}"
        " (--worker)"
    )


def choose(
    plan: AppPlan,
    topic: str,
    *,
    name: str | None = None,
    pool: int | None = None,
    start_timeout: float | None = None,
    dry: bool = False,
) -> ChosenHandler:
    """Query the cluster, and create the dead-letter topic if it is missing.

    A ``dry`` run creates nothing. Retry topics are not used: after its local attempts a record is a
    dead letter. ``pool`` overrides the configuration's ``concurrency``. Raises UsageError for
    problems that the user must fix, AuthenticationError, and BrokerUnavailableError after
    ``start_timeout`` seconds (default 30).
    """
    planned = without_levels(worker_of(plan, topic, name), topic, pool)
    if uses_tokens(planned.admin):
        raise UsageError(
            f"{plan.where('workers', planned.name)}: kafka: a backfill does not support"
            " @app.oauth_token, as its tokens do not reach Spark's tasks: write kafka.login"
            " instead (see docs/login.md)"
        )
    log = ClientLog(LOGGER.getChild("client"), plan.mask)
    patience = StartTimeout(_START_S if start_timeout is None else start_timeout)
    patience.wait_for_token(planned.name, planned.admin, None)
    cluster = Cluster(admin_settings(planned.admin, planned.name), log)
    cluster.wait_until_there(patience.left_s(), patience.waiting(planned.name, cluster))
    prepared = Preparation(plan, planned, cluster, log, dry=dry).prepare()
    return ChosenHandler(plan, prepared, topic)


def without_levels(worker: PlannedWorker, topic: str, pool: int | None) -> PlannedWorker:
    """Return the worker as it runs in a task: local retries only, threads in one process.

    A failed task runs its chunk again, so delivery is at least once, whatever the worker's is.
    """
    config = evolve(
        worker.config,
        delivery=DeliveryMode.AT_LEAST_ONCE,
        topics=(topic,),
        patterns=(),
        pool=DEFAULT.name,
        retry=evolve(worker.config.retry, levels=()),
    )
    if pool is not None:
        config = evolve(config, concurrency=pool)
    return evolve(worker, config=config, retry=evolve(worker.retry, levels=()))


def worker_plan(app: AppDefinition, chosen: ChosenHandler, *, at_end: AtEnd = "fail") -> WorkerPlan:
    """Return the plan for a task; raise UsageError if executors cannot import the application."""
    plan, planned = chosen.plan, chosen.worker
    breaker, path = planned.engine.breaker, ("workers", planned.name, "breaker", "max_hold")
    max_hold_s = breaker.max_hold_s if plan.loaded.is_set(path) else MAX_HOLD_S
    return WorkerPlan(
        child_spec=child_spec_of(app, plan, planned),
        origin=CopyOrigin(planned.config.group, planned.handler_names, app.version),
        # The task ends the hold itself: the Engine does not know when the range is exhausted.
        engine=evolve(planned.engine, breaker=evolve(breaker, max_hold_s=inf)),
        hold=HoldRules(max_hold_s, at_end),
        ladder=chosen.prepared.ladders[chosen.topic],
        topic=chosen.topic,
        facts=chosen.prepared.topics[chosen.topic],
        producer=planned.producer,
        mask_rules=plan.config.mask_rules,
        stop_timeout_s=planned.config.stop_timeout,
    )


_SAMPLE = 200
"""Records sampled from the beginning of each partition."""

_MOST_PARTITIONS = 20
"""Partitions sampled."""


@frozen
class SampledSizes:
    """The size of a sample."""

    records: int
    bytes: int
    """The size of keys and values."""
    offsets: int
    """Offsets sampled; with gaps in the log there are fewer records."""

    def describe(self, offsets: int) -> str:
        """Return the estimated contents of that many offsets, for people."""
        if not self.records:
            return "no records, according to a sample"
        share = self.records / self.offsets
        total = self.bytes / self.records * share * offsets
        each = f"{self.bytes / self.records:,.0f} B of key and value per record"
        return f"{share * offsets:,.0f} records, {_bytes(total)} ({each})"


def sizes_of(reader: TopicReader, topic: str, spans: Spans) -> SampledSizes:
    """Read the beginning of some partitions. Sizes are uncompressed."""
    sample = {
        TopicPartition(topic, partition): Span(span.first, min(span.end, span.first + _SAMPLE))
        for partition, span in sorted(spans.items())[:_MOST_PARTITIONS]
    }
    records = size = 0
    for messages in reader.read(sample):
        records += len(messages)
        size += sum(len(each) + len(each.key() or b"") for each in messages)
    return SampledSizes(records, size, sum(span.count for span in sample.values()))


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
