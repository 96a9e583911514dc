"""The diagnosis: applies all rules to all evidence, and ranks the causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from attrs import evolve

from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.admin.doctor.rules.fetching import broker_away, broker_slow, fetch_bound
from window_consumer.admin.doctor.rules.interpreter import gil_bound, loop_blocked, loop_bound
from window_consumer.admin.doctor.rules.load import (
    handler_slow,
    hot_key,
    hot_partition,
    no_clients,
    parked_keys,
    rate,
    starved,
)
from window_consumer.admin.doctor.rules.stuck import (
    breaker_open,
    cannot_write,
    findings,
    halted,
    hovering,
    not_in_group,
    poison_record,
    rebalances,
)
from window_consumer.admin.doctor.samples import GroupLook
from window_consumer.plan.diagnosis import CauseKind, Diagnosis, LikelyCause

RULES: Final[tuple[Callable[[WorkerEvidence], Iterator[LikelyCause]], ...]] = (
    breaker_open,
    cannot_write,
    findings,
    halted,
    rebalances,
    not_in_group,
    poison_record,
    parked_keys,
    starved,
    hovering,
    hot_key,
    rate,
    hot_partition,
    gil_bound,
    loop_bound,
    loop_blocked,
    handler_slow,
    no_clients,
    broker_away,
    broker_slow,
    fetch_bound,
)


def diagnose(
    evidence: Sequence[WorkerEvidence],
    groups: Iterable[tuple[str, Sequence[GroupLook]]] = (),
    others: Iterable[tuple[str, Sequence[GroupLook]]] = (),
    notes: Sequence[str] = (),
    *,
    were_asked: bool = False,
) -> Diagnosis:
    """Return the likely causes, the likeliest first.

    ``groups`` maps each worker that could not be queried to observations of its group; ``others``
    does so for queried workers, without the partitions that they own. ``were_asked`` says that
    processes were queried, whether they answered or not.
    """
    causes: list[LikelyCause] = []
    well: list[str] = []
    for seen in evidence:
        found = _without_consequences(seen, [cause for rule in RULES for cause in rule(seen)])
        if not found and seen.is_behind and not _catches_up(seen):
            found = [_unknown(seen)]
        causes += [evolve(cause, where=seen.where) for cause in found]
        if not found:
            well.append(_well(seen))
    for worker, looks in groups:
        found = list(_of_group(worker, looks, were_asked=were_asked))
        causes += found
        if not found and looks:
            well.append(f"{worker}: its group shows no problem")
    for worker, looks in others:
        causes += [each for each in _of_group(worker, looks) if each.figures["lag"]]
    causes.sort(key=lambda cause: -cause.weight)
    return Diagnosis(tuple(causes), tuple(well), tuple(notes))


def _without_consequences(seen: WorkerEvidence, found: list[LikelyCause]) -> list[LikelyCause]:
    """Leave out what only follows from no call starting: standing windows, lagging partitions."""
    holding = {each.kind for each in seen.now.findings if each.holds_all}
    if not holding:
        return found
    least = min(each.weight for each in found if each.kind in holding)
    return [each for each in found if each.weight >= least]


def _catches_up(seen: WorkerEvidence) -> bool:
    """Return whether the lag shrinks and will be gone soon."""
    return seen.finished_per_s > seen.arriving_per_s and seen.drain_s < _SOON_S


_SOON_S: Final = 60.0


def _well(seen: WorkerEvidence) -> str:
    lag = f"{seen.lag} records lag, {seen.lag_s:.1f} s"
    if seen.is_behind:
        lag += f", and will be done in {seen.drain_s:.0f} s"
    of = f" of {seen.where}" if seen.where else ""
    return (
        f"{seen.worker}{of}: nothing is wrong: {lag}; {seen.finished_per_s:.1f} records/s,"
        f" {seen.busy_ratio:.0%} of the slots' time is busy"
    )


def _unknown(seen: WorkerEvidence) -> LikelyCause:
    return LikelyCause(
        CauseKind.UNKNOWN,
        seen.worker,
        f"{seen.lag} records lag, the oldest that was read is {seen.lag_s:.0f} s old, and no known"
        f" cause fits: {seen.finished_per_s:.1f} records/s finish, {seen.arriving_per_s:.1f}"
        f" arrive, {seen.busy_ratio:.0%} of the slots' time is busy",
        {
            "lag": seen.lag,
            "lag_s": seen.lag_s,
            "finished_per_s": seen.finished_per_s,
            "arriving_per_s": seen.arriving_per_s,
            "busy_ratio": seen.busy_ratio,
        },
    )


def _of_group(
    worker: str, looks: Sequence[GroupLook], *, were_asked: bool = False
) -> Iterator[LikelyCause]:
    """Yield causes visible in the cluster, for a worker that was not queried."""
    if not looks:
        return
    first, last = looks[0], looks[-1]
    lag = sum(last.lags.values())
    seconds = last.at_s - first.at_s
    if not any(look.is_stable for look in looks):
        yield LikelyCause(
            CauseKind.REBALANCES,
            worker,
            f"its group has been rebalancing for at least {seconds:.0f} s, with {lag} records not"
            " committed",
            {"lag": lag, "within_s": seconds, "members": last.members},
            weight=90,
        )
    elif lag and last.members == 0:
        yield LikelyCause(
            CauseKind.NOBODY_READS,
            worker,
            f"nothing reads: its group has no members, and {lag} records are not committed",
            {"lag": lag, "members": 0},
            weight=95,
        )
    elif lag and sum(first.lags.values()) <= lag and _stands(first, last):
        worst = max(last.lags, key=lambda name: last.lags[name])
        advice = "give --url, or configure admin or health"
        if were_asked:
            advice = "no known address answers; is its process frozen, or elsewhere (--url)?"
        yield LikelyCause(
            CauseKind.UNKNOWN,
            worker,
            f"{lag} records are not committed, {last.lags[worst]} of them in {worst}, and"
            f" the lag has not shrunk within {seconds:.0f} s; only a worker knows why: {advice}",
            {"lag": lag, "lag_before": sum(first.lags.values()), "members": last.members},
            worst,
        )


def _stands(first: GroupLook, last: GroupLook) -> bool:
    """Return whether one partition lags in both: even a healthy worker has a few open records."""
    return any(first.lags.get(name, 0) and lag for name, lag in last.lags.items())
