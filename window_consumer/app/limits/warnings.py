"""Warnings of ``check``: contradictory settings of a worker, and costly ones."""

from __future__ import annotations

from collections.abc import Iterator

from window_consumer.app.limits.group_times import GroupTimes
from window_consumer.config import RetryConfig, format_duration
from window_consumer.config.checks.client_properties import DEFAULT_MAX_POLL_INTERVAL_MS
from window_consumer.config.cores import usable_cores
from window_consumer.config.sections.ttl import HeaderTtl
from window_consumer.config.units import brief_duration
from window_consumer.engine.commits.commit_metadata import MAX_BYTES
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.kafka import settings
from window_consumer.kafka.settings.transactions import is_drawn
from window_consumer.model.headers import MAX_SKEW_S
from window_consumer.plan.app_plan import PlannedWorker

_DEFAULTS = RetryConfig()


def retry_warnings(worker: PlannedWorker) -> Iterator[str]:
    """Yield settings that have no effect, lose records, or surprise."""
    retry = worker.config.retry
    if worker.retry.on_failure == "block" and retry.attempts != _DEFAULTS.attempts:
        yield "retry.attempts has no effect with on_failure: block: it retries without end"
    if retry.on_oversize != "hold" and not (worker.writes_dead_letters or retry.levels):
        yield (
            f"retry.on_oversize has no effect with when_spent: {retry.when_spent}: no copies are"
            " written"
        )
    chosen = worker.config.delivery is not DeliveryMode.AT_MOST_ONCE
    if chosen and retry.when_spent == "drop":
        key = "broadcast.when_spent" if worker.config.is_broadcast else "retry.when_spent"
        yield f"{key}: drop loses records that keep failing; they are only counted"
    yield from _fatal_warnings(worker)
    yield from _level_warnings(worker)


def once_warnings(worker: PlannedWorker, dlq_retention_s: float) -> Iterator[str]:
    """Warn if the database may forget an id before its record comes back."""
    keep_s = once_keep_s(worker)
    way_s = sum(wait.longest_s for wait in worker.retry.schedule())
    way_s += dlq_retention_s if worker.writes_dead_letters else 0.0
    if keep_s is not None and keep_s < way_s:
        yield (
            f"once.keep {format_duration(keep_s)} is shorter than a record's longest way through"
            f" the ladder and the dead letters ({brief_duration(way_s)}): a record that returns"
            " later takes effect again"
        )


def once_keep_s(worker: PlannedWorker) -> float | None:
    """Return for how long the database remembers ids; None without ``once``."""
    onces = [route.handler.once for route in worker.routes if route.handler.once is not None]
    return min((once.keep_s(worker.config) for once in onces), default=None)


def _fatal_warnings(worker: PlannedWorker) -> Iterator[str]:
    rules = worker.retry
    everything = [each.__name__ for each in (Exception, BaseException) if each in rules.fatal]
    if everything and not rules.retryable:
        unused = "attempts and levels have" if rules.levels else "attempts has"
        yield f"retry.{unused} no effect: fatal lists {everything[0]}, so nothing is called again"


def _level_warnings(worker: PlannedWorker) -> Iterator[str]:
    retry, rules = worker.config.retry, worker.retry
    if not rules.levels:
        if retry.attempts_per_level != _DEFAULTS.attempts_per_level:
            yield "retry.attempts_per_level has no effect without levels"
        return
    first = rules.levels[0]
    waits_locally = any(wait.level is None for wait in rules.schedule())
    if waits_locally and first.delay_s < rules.backoff_max_s:
        yield (
            f"retry.levels: {first.name} is shorter than the upper end of backoff"
            f" ({format_duration(rules.backoff_max_s)}): a record can wait longer for a local call"
            " than at that level"
        )
    yield from _ttl_warnings(worker)


def _ttl_warnings(worker: PlannedWorker) -> Iterator[str]:
    """Yield the first level where every record has already expired."""
    ttl_s = worker.config.ttl
    if ttl_s is None or isinstance(ttl_s, HeaderTtl):
        return
    elapsed_s = 0.0
    for wait in worker.retry.schedule():
        elapsed_s += wait.shortest_s
        if wait.level is not None and elapsed_s > ttl_s + MAX_SKEW_S:
            yield (
                f"ttl {format_duration(ttl_s)} ends before the level {wait.level.name}: every"
                " record that gets there expires"
            )
            return


_DEFAULT_FETCH_WAIT_MS = 500


def window_warnings(worker: PlannedWorker, window: int, metadata: int) -> Iterator[str]:
    """Warn about settings that do not fit the window's size or its commit metadata, in bytes."""
    config = worker.config
    if metadata > MAX_BYTES and not config.is_broadcast:
        yield (
            f"window: {window} records can need {metadata} bytes of commit metadata, but a commit"
            f" takes {MAX_BYTES}: after a crash finished records may run again, and intake pauses"
            " when three quarters are used; make the window smaller"
        )
    if window < config.slots:
        yield (
            f"concurrency {config.slots} is more than a window of {window} records can"
            " feed from one partition"
        )
    if config.ordering == "partition" and config.slots > 1:
        yield (
            f"ordering: partition runs one record of a partition at a time: concurrency"
            f" {config.slots} is used only with at least as many partitions"
        )


def routing_warnings(worker: PlannedWorker) -> Iterator[str]:
    """Yield settings about records without a call that have no effect, or lose them."""
    config = worker.config
    if config.is_broadcast or config.delivery is DeliveryMode.AT_MOST_ONCE:
        return  # the delivery has chosen both
    if config.otherwise != "dead_letter" and not worker.may_be_unroutable:
        yield (
            f"otherwise: {config.otherwise} has no effect: {worker.routes[-1].handler.name} has no"
            " condition and takes every record"
        )
    if config.ttl is None and config.on_expired != "dead_letter":
        yield "on_expired has no effect without ttl"
    if config.ttl is not None and config.on_expired == "drop":
        yield "on_expired: drop loses records that are too old; they are only counted"


def stall_warnings(worker: PlannedWorker, window: int, max_abandoned: int) -> Iterator[str]:
    """Yield settings about hanging calls without effect; ``max_abandoned`` is the actual limit."""
    stall = worker.config.stall
    poll_ms = int(worker.consumer.get("max.poll.interval.ms", DEFAULT_MAX_POLL_INTERVAL_MS))
    if stall.after > poll_ms / 1000:
        yield (
            f"stall.after {stall.after:g} s is longer than max.poll.interval.ms ({poll_ms}): until"
            f" a hanging call is noticed, its partition does at most {window / stall.after:.0f}"
            " records/s"
        )
    if stall.max_abandoned is not None and not max_abandoned and stall.max_abandoned:
        why = "stall.action: report" if stall.action == "report" else "on_failure: block"
        if worker.pool.has_children:
            why = f"pool: {worker.pool.name}"
        yield f"stall.max_abandoned has no effect with {why}: no call is abandoned"


def kafka_warnings(worker: PlannedWorker, times: GroupTimes) -> Iterator[str]:
    """Yield costly properties of the consumer."""
    config, consumer = worker.config, worker.consumer
    if "group.instance.id" in consumer and not config.is_broadcast:
        yield (
            "kafka.group.instance.id: a static member does not leave at its stop: its partitions"
            f" wait for the session to time out ({times.session_s:g} s) or for its return"
        )
    wait_ms = int(consumer.get("fetch.wait.max.ms", _DEFAULT_FETCH_WAIT_MS))
    if wait_ms < _DEFAULT_FETCH_WAIT_MS / 2:
        yield (
            f"kafka.fetch.wait.max.ms {wait_ms}: an idle worker polls the broker more than twice"
            " as often as a default client"
        )
    prefetch = int(consumer.get("queued.max.messages.kbytes", 0)) * 1024
    if prefetch > config.memory // settings.PREFETCH_SHARE:
        yield (
            f"kafka.queued.max.messages.kbytes allows {prefetch} bytes of prefetch, more than its"
            f" quarter of memory ({config.memory // settings.PREFETCH_SHARE}): the worker may"
            " exceed memory"
        )


def process_warnings(worker: PlannedWorker) -> Iterator[str]:
    """Yield a warning if more slots compute than there are cores, unless their number adapts."""
    config, pool, cores = worker.config, worker.pool, usable_cores()
    is_fixed = isinstance(config.concurrency, int)
    if pool.computes_in_parallel and is_fixed and config.slots > cores:
        yield (
            f"concurrency {config.slots} with pool: {pool.name}, but this process may use only"
            f" {cores} of the machine's processor cores: handlers that compute take turns, and"
            " each needs its own memory; omit concurrency to use one slot per core, or write auto"
        )


_ELECTION_MS = 30_000
"""The longest time that a partition may lack a leader."""


def producer_warnings(worker: PlannedWorker) -> Iterator[str]:
    """Yield properties that make the producer give up during a leader election."""
    for key in ("message.timeout.ms", "delivery.timeout.ms"):
        if 0 < int(worker.producer.get(key, 0)) < _ELECTION_MS:
            yield (
                f"kafka.{key} {worker.producer[key]}: a leader election may take 30 s; until then"
                " the producer keeps giving up records, which are then written twice or, if the"
                " application does not send them again, lost: remove this property"
            )
    for key in ("retries", "message.send.max.retries"):
        if key in worker.producer and int(worker.producer[key]) < _FEW_RETRIES:
            yield (
                f"kafka.{key} {worker.producer[key]}: a leader election may need more, and the"
                " producer then gives up records: remove this property"
            )


_FEW_RETRIES = 100
"""One retry every 0.1 s, for ten seconds."""


def transaction_warnings(worker: PlannedWorker, host: str) -> Iterator[str]:
    """Warn about a transactional.id that changes with each start."""
    is_transactional = worker.config.delivery is DeliveryMode.EXACTLY_ONCE
    if is_transactional and is_drawn(worker.consumer, host):
        yield (
            f"delivery: exactly_once: the transactional.id follows the host name {host}, which"
            " changes with each start: after a crash, readers wait until the transaction times out;"
            " set kafka.group.instance.id, or give the host a stable name"
        )
