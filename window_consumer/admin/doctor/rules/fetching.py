"""Rules for workers that wait for records: slow brokers, slow fetching."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from window_consumer.admin.doctor.causes import BUSY, IDLE, duration
from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.plan.diagnosis import CauseKind, LikelyCause

SLOW_TRIP_S: Final = 0.2
"""Within a data centre a broker answers in a few milliseconds."""
SLOW_COMMIT_S: Final = 0.5
"""A commit's ack is noticed up to 0.1 s late."""


def broker_away(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a cluster that neither answers this command nor delivers records to the worker."""
    if not seen.is_cluster_silent or seen.finished_per_s or seen.last.running:
        return
    yield LikelyCause(
        CauseKind.BROKER_AWAY,
        seen.worker,
        f"no broker answers, and the worker has finished nothing for {seen.seconds:.0f} s: the lag"
        " is unknown; are the brokers up and reachable? The worker continues by itself when they"
        " answer",
        {"within_s": seen.seconds, "lag_before": seen.lag},
        weight=92,
    )


def broker_slow(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find slow answers of brokers."""
    trip_s, commit_s = seen.round_trip_s, seen.commit_s
    if seen.is_cluster_silent:
        return  # the delay is unknown
    is_slow = (trip_s or 0.0) >= SLOW_TRIP_S or (commit_s or 0.0) >= SLOW_COMMIT_S
    if not is_slow or not seen.is_behind or seen.busy_ratio >= BUSY or seen.lacks_clients:
        return
    said = []
    if trip_s is not None:
        said.append(f"a ping takes {duration(trip_s)}")
    if commit_s is not None:
        said.append(f"the ack of a commit {duration(commit_s)}")
    yield LikelyCause(
        CauseKind.BROKER_SLOW,
        seen.worker,
        f"the brokers are slow: {' and '.join(said)}, while {(1 - seen.busy_ratio):.0%} of the"
        " slots' time is idle; check their load, their disks and the network",
        {
            "round_trip_s": trip_s,
            "commit_s": commit_s,
            "busy_ratio": seen.busy_ratio,
            "unread": seen.unread,
        },
        weight=55,
    )


def fetch_bound(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find records in the log that do not reach idle slots."""
    now = seen.now
    held = seen.mean(
        lambda look: sum(each.open + each.buffered for each in look.windows.partitions)
    )
    starves = seen.busy_ratio < IDLE and held <= max(2 * now.limit_now, seen.finished_per_s * 0.1)
    if not seen.is_behind or not starves or not seen.unread or seen.lacks_clients:
        return
    if now.breaker.state != "closed" or any(each.paused for each in now.partitions):
        return
    yield LikelyCause(
        CauseKind.FETCH_BOUND,
        seen.worker,
        f"{(1 - seen.busy_ratio):.0%} of the slots' time is idle and its windows hold {held:.0f}"
        f" records, while {seen.unread} in the log have not arrived: check the network,"
        " fetch.* and queued.* below kafka:, and the brokers",
        {
            "busy_ratio": seen.busy_ratio,
            "held": held,
            "unread": seen.unread,
            "finished_per_s": seen.finished_per_s,
            "arriving_per_s": seen.arriving_per_s,
        },
        weight=50,
    )
