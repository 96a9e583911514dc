"""The bounds that a configuration implies, for ``check`` to print."""

from __future__ import annotations

import math
from collections.abc import Iterator
from socket import gethostname
from typing import Final

from attrs import frozen

from window_consumer.app.limits.group_times import GroupTimes, group_times
from window_consumer.app.limits.warnings import (
    kafka_warnings,
    once_keep_s,
    once_warnings,
    process_warnings,
    producer_warnings,
    retry_warnings,
    routing_warnings,
    stall_warnings,
    transaction_warnings,
    window_warnings,
)
from window_consumer.config.sections.broadcast import begin_kind
from window_consumer.config.sections.fair import FairConfig
from window_consumer.config.sections.ttl import ttl_kind
from window_consumer.config.units import format_percent
from window_consumer.engine.commits.commit_metadata import MAX_BYTES, worst_case_bytes
from window_consumer.engine.commits.commit_state import MAX_BYTES_PER_S
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.backpressure import BATCH_SHARE, BUFFER_BATCHES, WAITING_CELLS
from window_consumer.engine.guards.crash_history import most_ends
from window_consumer.plan.app_plan import PlannedWorker

RESIDENT_FACTOR = 1.5
RESIDENT_BYTES_PER_RECORD = 600
"""Resident memory is about 1.5 times the payload and 600 bytes a record (measured)."""

STOP_GRACE_S = 5.0


@frozen
class RetryWait:
    """The range of the wait before one further call, in seconds."""

    call: int
    shortest_s: float
    longest_s: float
    level: str | None
    """The retry level where the record waits; None for a local wait."""


@frozen
class WorkerBounds:
    """Upper bounds of one worker, in seconds, bytes and records."""

    worker: str
    delivery: DeliveryMode
    """How often a record runs, as written in the configuration."""
    begins: str | None
    """Where each process begins with ``delivery: broadcast``, as written in the configuration."""
    ordering: str
    concurrency: int
    """The upper end of the range where the concurrency adapts."""
    least_concurrency: int | None
    """The lower end; None for a fixed concurrency."""
    fair: str | None
    """How classes of records share the slots; None if records start as they arrive."""
    rate: str | None
    """The limit on starts of calls in this process, as written in the configuration."""
    max_abandoned: int
    """Abandoned calls that may run beside the slots."""
    window_records: int
    """Per partition."""
    buffer_records: int
    """Per partition, delivered while its window was full."""
    waiting_records: int
    """Per partition of a retry topic, delivered before they are due; 0 without levels."""
    max_bytes: int
    """Payload of prefetch, windows, buffers and copies of the worker."""
    overshoot_bytes: int
    """Excess over ``max_bytes``: a batch is measured after it arrives, and a single larger record
    passes alone."""
    resident_bytes: int
    """The resident memory, with one partition's window full of small records and as many waiting
    coroutines as allowed."""
    children_bytes: int
    """Resident memory of the child processes, without what the application loads; 0 without
    children."""
    metadata_bytes: int
    """The longest commit metadata that a window without holes can need."""
    metadata_fits: bool
    rerun_finished_s: float
    """Records that finished longer ago than this do not run again after a crash."""
    rerun_running: int
    """The number of running records that run again after a crash, whole batches included."""
    rerun_records_without_metadata: int
    """Per partition, where another program overwrote the commit's metadata."""
    group_times: GroupTimes
    """How soon the group notices a lost member."""
    revoke_timeout_s: float
    """The longest time that a call delays a rebalance."""
    crash_takeover_s: float
    """The time from a crash until another member owns the partitions: session, heartbeat, and the
    longest call of the others, which must revoke theirs."""
    planned_takeover_s: float
    """The time of a planned rebalance with one hanging member: the same, because that member must
    time out first."""
    stop_s: float
    """The time from a stop request until the process has ended."""
    calls: int | None
    """The number of handler calls for a record that always fails, None without a limit."""
    retry_waits: tuple[RetryWait, ...]
    retry_elapsed_s: tuple[float, float] | None
    """Shortest and longest time from the first failure to the last call, excluding the calls."""
    retry_later_longest_s: float
    """The longest wait for RetryLater, however long a wait a handler requests."""
    when_spent: str
    """What happens to the record after its last call."""
    crash_ends: tuple[int, int]
    """How many crashes it takes until a record that kills the process leaves: the fewest, if it is
    among the first to run, and the most within a window."""
    child_deaths: tuple[int, int] | None
    """How many child processes die until a record that kills them leaves: alone, and about how many
    from a full batch; None without children."""
    routes: tuple[str, ...]
    """The handlers in routing order, each with the records that it accepts."""
    otherwise: str | None
    """What happens to a record that no handler accepts; None if every record has one."""
    ttl: str | None
    """The time to live of records, as written in the configuration."""
    on_expired: str
    once_table_bytes: int | None
    """The size of the ids of ``once`` in the database; None without ``once`` or a rate."""
    warnings: tuple[str, ...]

    def records_per_s_beside(self, open_s: float) -> float:
        """Return the records/s that one open record leaves its partition for ``open_s`` seconds."""
        return self.window_records / open_s


def bounds_of(
    worker: PlannedWorker,
    times: GroupTimes | None = None,
    *,
    dlq_retention_s: float = 0.0,
    rate: float | None = None,
) -> WorkerBounds:
    """Return the bounds of a worker's configuration; ``times`` are the cluster's group times.

    ``rate`` is the expected number of records a second.
    """
    config, rules = worker.config, worker.engine
    window = rules.window_cells * rules.cell_records
    buffer = (BUFFER_BATCHES + 1) * rules.batch_records
    metadata = worst_case_bytes(window)
    times = times or group_times(worker.consumer)
    takeover = times.session_s + times.heartbeat_s + config.revoke_timeout
    waits = tuple(
        RetryWait(call, wait.shortest_s, wait.longest_s, wait.level.name if wait.level else None)
        for call, wait in enumerate(worker.retry.schedule(), start=2)
    )
    endless = not worker.retry.moves
    elapsed = (sum(wait.shortest_s for wait in waits), sum(wait.longest_s for wait in waits))
    commit_every = max(config.commit_interval_s, min(metadata, MAX_BYTES) / MAX_BYTES_PER_S)
    return WorkerBounds(
        worker=worker.name,
        delivery=config.delivery,
        begins=begin_kind().write(config.broadcast.from_) if config.is_broadcast else None,
        ordering=config.ordering,
        concurrency=config.slots,
        least_concurrency=rules.limit.lower if rules.limit else None,
        fair=_fair(config.fair),
        rate=None if config.rate_per_process is None else str(config.rate_per_process),
        max_abandoned=_most_abandoned(worker),
        window_records=window,
        buffer_records=buffer,
        waiting_records=_waiting_records(rules) if worker.retry.levels else 0,
        max_bytes=config.memory,
        overshoot_bytes=int(rules.window_bytes * BATCH_SHARE),
        resident_bytes=_resident_bytes(worker, window),
        children_bytes=config.slots * worker.pool.slot_bytes if worker.pool.has_children else 0,
        metadata_bytes=metadata,
        metadata_fits=metadata <= MAX_BYTES,
        rerun_finished_s=commit_every + 1.0,
        rerun_running=config.slots * (config.batch.max_records if worker.is_batch else 1),
        rerun_records_without_metadata=window,
        group_times=times,
        revoke_timeout_s=config.revoke_timeout,
        crash_takeover_s=takeover,
        planned_takeover_s=takeover,
        stop_s=config.stop_timeout + STOP_GRACE_S,
        calls=None if endless else 1 + len(waits),
        retry_waits=() if endless else waits,
        retry_elapsed_s=None if endless else elapsed,
        retry_later_longest_s=worker.retry.longest_later_s,
        when_spent=config.retry.when_spent,
        crash_ends=most_ends(rules.retry.crash_attempts, rules.slots, window),
        child_deaths=_child_deaths(worker),
        routes=tuple(route.in_words for route in worker.routes),
        otherwise=config.otherwise if worker.may_be_unroutable else None,
        ttl=None if config.ttl is None else ttl_kind().write(config.ttl),
        on_expired=config.on_expired,
        once_table_bytes=_once_table_bytes(worker, rate),
        warnings=(
            *_warnings(worker, window, metadata, times),
            *once_warnings(worker, dlq_retention_s),
        ),
    )


ONCE_ROW_BYTES = 300
"""An id's row and index entries, with an allowance for rows that wait for VACUUM."""


def _fair(fair: FairConfig) -> str | None:
    if fair.by is None:
        return None
    if fair.order == "shares":
        return f"share the slots by {fair.by}, in proportion to their weights"
    highest = max(fair.weights.values(), default=1.0)
    first = ", ".join(name for name, weight in fair.weights.items() if weight == highest)
    others = f"get {format_percent(fair.floor)}" if fair.floor else "starve"
    return f"share the slots by {fair.by}: {first} first; while it has records, the others {others}"


def _once_table_bytes(worker: PlannedWorker, rate: float | None) -> int | None:
    keep_s = once_keep_s(worker)
    return None if keep_s is None or rate is None else round(keep_s * rate * ONCE_ROW_BYTES)


def _resident_bytes(worker: PlannedWorker, window: int) -> int:
    config = worker.config
    slots = 0 if worker.pool.has_children else config.slots * worker.pool.slot_bytes
    records = RESIDENT_BYTES_PER_RECORD * window
    return round(RESIDENT_FACTOR * config.memory + records) + slots


def _child_deaths(worker: PlannedWorker) -> tuple[int, int] | None:
    if not worker.pool.has_children:
        return None
    alone, batch = worker.retry.crash_attempts, worker.engine.batch
    return alone, alone + (batch.max_records - 1 if batch else 0).bit_length()


def _waiting_records(rules: EngineRules) -> int:
    return WAITING_CELLS * rules.cell_records + rules.batch_records


def _most_abandoned(worker: PlannedWorker) -> int:
    if worker.pool.has_children or worker.pool.leases:
        return 0  # their calls are killed, or end with their leases
    moves = worker.retry.moves and worker.config.stall.action != "report"
    return worker.config.max_abandoned if moves else 0


def _warnings(
    worker: PlannedWorker, window: int, metadata: int, times: GroupTimes
) -> Iterator[str]:
    """Yield warnings about contradictions and surprising effects."""
    yield from window_warnings(worker, window, metadata)
    yield from retry_warnings(worker)
    yield from routing_warnings(worker)
    yield from stall_warnings(worker, window, _most_abandoned(worker))
    yield from process_warnings(worker)
    yield from kafka_warnings(worker, times)
    yield from transaction_warnings(worker, gethostname())
    yield from producer_warnings(worker)
    config = worker.config
    period_s = grace_period_s(config.stop_timeout + STOP_GRACE_S)
    if period_s > _KUBERNETES_S:
        yield (
            f"stop_timeout {config.stop_timeout:g} s: Kubernetes kills after 30 s unless"
            f" terminationGracePeriodSeconds is at least {period_s}"
        )


def grace_period_s(stop_s: float) -> int:
    """Return Kubernetes' terminationGracePeriodSeconds for a stop of at most ``stop_s``."""
    return math.ceil(stop_s + _KILL_S)


_KILL_S: Final = 2.0
"""How long after the longest stop a supervisor kills the last replica."""

_KUBERNETES_S = 30.0
