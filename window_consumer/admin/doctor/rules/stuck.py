"""Rules for workers that make no progress: the breaker, the membership, a start cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from window_consumer.admin.doctor.causes import duration
from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.admin.doctor.samples import SILENT, UNANSWERED
from window_consumer.engine.windows_snapshot import CallSnapshot, PartitionSnapshot
from window_consumer.plan.diagnosis import CauseKind, Figure, LikelyCause

HOVERS_S: Final = 5.0
"""A start cell that makes no progress for longer is suspicious ..."""
HOVERS_CALLS: Final = 5.0
"""... if this also exceeds the usual call by this factor."""

_LISTED: Final = 4
_LIBRARIES: Final = ("/lib/python", "/site-packages/", "<frozen ")

REBALANCES: Final = 3
"""A single member that joins or leaves causes two changes within seconds; this many need more."""
MANY_REBALANCES: Final = 5
RECENT_S: Final = 300.0
GOES_ON_S: Final = 60.0
"""In the consumer protocol members learn of changes with their heartbeats, about every 5 s, so few
changes fit into seconds. This many within minutes, the last one recent, exceed one restart."""


_THEN: Final = {
    "holding": "nothing leaves until the cause of the failures is known",
    "open": "no call succeeds, so single calls test whether the handler's dependencies work again,"
    " and nothing leaves",
    "overload": "fewer calls fail when fewer run, so it runs fewer, and nothing leaves",
    "half-open": "calls succeed again, and each successful round allows more",
    "paused": "nothing starts until the requested delay is over",
}


def breaker_open(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find an open breaker: most calls fail, so nothing starts."""
    breaker = seen.now.breaker
    is_full, is_open = _is_full(seen.now.partitions), breaker.state == "open"
    holds_long = is_full and (breaker.seconds or 0.0) >= HOVERS_S
    if breaker.state not in _THEN or (breaker.state == "holding" and not holds_long):
        return
    where = f" --url {seen.admin_url}" if seen.admin_url else ""
    command = f"window-consumer breaker --worker {seen.worker}{where}"
    then = _THEN[breaker.state]
    if breaker.declared:
        then += f". A user has declared the outage; to undo that: `{command} --release`"
    elif is_full and (is_open or breaker.state == "holding"):
        then += (
            ". It cannot distinguish bad records that fill all windows from an outage, so it"
            f" holds them until somebody decides: `{command} --release` if the records are bad,"
            " `--hold` if it is an outage"
        )
    elif is_open:
        then += f". If these records are bad, release them: `{command} --release`"
    since = "" if breaker.seconds is None else f" for {duration(breaker.seconds)}"
    yield LikelyCause(
        CauseKind.BREAKER_OPEN,
        seen.worker,
        f"its circuit breaker has been {breaker.state}{since}:"
        f" {breaker.why or 'most new records failed'}; {then}",
        {
            "state": breaker.state,
            "open_s": breaker.seconds,
            "why": breaker.why or None,
            "failed": breaker.failed,
            "calls": breaker.calls,
            "windows_full": is_full,
        },
        weight=100,
    )


def _is_full(partitions: Sequence[PartitionSnapshot]) -> bool:
    """Return whether records wait behind windows, all of which are full."""
    behind = [
        each for each in partitions if each.level is None and (each.lag.records or 0) > each.open
    ]
    return bool(behind) and all(0 < each.capacity_cells <= len(each.cells) for each in behind)


def cannot_write(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a failing producer of copies and results."""
    why = seen.now.cannot_write
    if why is None:
        return
    waiting = sum(each.failed for each in seen.now.partitions)
    yield LikelyCause(
        CauseKind.CANNOT_WRITE,
        seen.worker,
        f"it cannot write copies or results: {why}; {waiting} records wait for that, and no"
        " offsets behind them are committed",
        {"waiting": waiting},
        weight=99,
    )


def findings(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Report the findings of the worker's own rules, see ``engine.guards.pause_rule``."""
    where = f" --url {seen.admin_url}" if seen.admin_url else ""
    command = f"`window-consumer resume --worker {seen.worker}{where}`"
    for each in seen.now.findings:
        then = (
            "the worker is paused and nothing leaves: roll back, or accept it and resume with"
            if each.pauses
            else "to accept it, which ends this message:"
        )
        yield LikelyCause(
            each.kind,
            seen.worker,
            each.text if each.ends_itself else f"{each.text}; {then} {command}",
            each.figures,
            weight=98.5 if each.pauses or each.holds_all else 60,
        )


def halted(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find partitions or workers that a user paused."""
    if any(each.pauses for each in seen.now.findings):
        return
    paused = [each for each in seen.now.partitions if each.halted]
    lag = sum(each.unfinished or 0 for each in paused)
    if not lag:
        return
    pause = seen.now.pause
    who = "" if pause is None else pause.words(duration(pause.seconds))
    which = "the worker" if len(paused) == len(seen.now.partitions) else _listed(paused)
    yield LikelyCause(
        CauseKind.HALTED,
        seen.worker,
        f"paused manually: {which}{who}; {lag} records wait until it is resumed",
        {"partitions": len(paused), "lag": lag},
        paused[0].name if len(paused) == 1 else None,
        weight=98,
    )


def _listed(partitions: Sequence[PartitionSnapshot]) -> str:
    shown = ", ".join(str(each.name) for each in partitions[:_LISTED])
    more = len(partitions) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def rebalances(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find repeated rebalances."""
    before = seen.first.windows.counters.rebalances
    changes, within_s = seen.now.counters.rebalances - before, seen.seconds
    recent = [each for each in seen.now.changes_s if each <= RECENT_S]
    if changes < REBALANCES and len(recent) >= MANY_REBALANCES and min(recent) <= GOES_ON_S:
        changes, within_s = len(recent), max(recent)
    unstable = bool(seen.group) and not any(look.is_stable for look in seen.group)
    if changes < REBALANCES and not unstable:
        return
    said = f"its partitions changed {changes} times within {within_s:.0f} s"
    if changes < REBALANCES:
        said = f"its group has been rebalancing for at least {within_s:.0f} s"
    members = seen.group[-1].members if seen.group else None
    yield LikelyCause(
        CauseKind.REBALANCES,
        seen.worker,
        f"{said}: each change stops work and drains windows; do members die, are they"
        " removed because calls outlast revoke_timeout, or does an autoscaler oscillate?",
        {"changes": changes, "within_s": within_s, "members": members},
        weight=90,
    )


def not_in_group(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a worker that is not a member of its group: not yet, or no longer."""
    if any(look.worker.is_ready for look in seen.looks):
        return
    phase = seen.last.worker.phase
    if phase == "running" and seen.last.worker.catching_up is not None:
        return  # it reads its backlog before it joins
    where = "is not in its group" if phase == "running" else f"is {phase}"
    if phase == SILENT:
        where = "does not answer: its poll thread is blocked"
    if phase == UNANSWERED:
        where = "does not answer, nor does its process: it is frozen, or restarts repeatedly"
    yield LikelyCause(
        CauseKind.NOT_IN_GROUP,
        seen.worker,
        f"the worker {where}, for at least {seen.seconds:.0f} s: it reads nothing; its log has the"
        " reason",
        {"phase": phase, "within_s": seen.seconds},
        weight=85,
    )


def poison_record(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a record that keeps failing and blocks its lane."""
    for partition in seen.now.partitions:
        record = seen.poison_of(partition)
        if record is None or partition.halted:
            continue
        lane, waiting = "the partition", "records wait behind it"
        if seen.ordering == "key":
            key = "" if record.key is None else f" {record.key!r}"
            lane, waiting = f"its key{key}", "records of that key wait behind it"
        yield LikelyCause(
            CauseKind.POISON_RECORD,
            seen.worker,
            f"offset {record.offset} of {partition.name} blocks {lane}"
            f" (retry.on_failure: block): {record.attempts} calls so far, the last failure is"
            f" {record.error or 'an unreported error'}; {record.behind} {waiting}."
            " Fix the cause, or remove the record: window-consumer skip, or dead-letter,"
            f" --worker {seen.worker}"
            f" --record {partition.name.topic}/{partition.name.partition}/{record.offset}",
            {
                "offset": record.offset,
                "key": record.key,
                "attempts": record.attempts,
                "error": record.error,
                "waiting_for_lane": record.behind,
            },
            partition.name,
            weight=88,
        )


def hovering(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a start cell that does not complete."""
    calls = seen.now.durations
    usual_s = calls.seconds / calls.calls if calls.calls else 0.0
    for partition in seen.now.partitions:
        if partition.halted or partition.hovering_s < max(HOVERS_S, HOVERS_CALLS * usual_s):
            continue
        if seen.poison_of(partition) is not None:
            continue  # already reported, with its error
        held = [each for each in seen.now.calls if each.name == partition.name]
        longest = max(held, key=lambda call: call.seconds, default=None)
        if longest is not None and longest.seconds < partition.hovering_s / 2:
            longest = None
        if longest is None and seen.now.breaker.state != "closed":
            continue  # it waits for the breaker, already reported
        yield LikelyCause(
            CauseKind.HOVERING,
            seen.worker,
            f"the start cell of {partition.name} has made no progress for"
            f" {partition.hovering_s:.0f} s: {_what_holds(seen, partition, longest)}",
            {
                "hovering_s": partition.hovering_s,
                "open": partition.open,
                "paused": str(partition.paused).lower(),
                "waiting_for_retry": partition.failed,
                "offset": None if longest is None else longest.offset,
                "attempt": None if longest is None else longest.attempt,
                "running_s": None if longest is None else longest.seconds,
                "usual_call_s": usual_s,
                **_of_lease(longest),
            },
            partition.name,
            weight=80 + min(4.0, partition.hovering_s / 60) + (5 if partition.paused else 0),
            stack="" if longest is None else seen.last.stack_of(longest),
        )


def _of_lease(call: CallSnapshot | None) -> dict[str, Figure]:
    if call is None or call.lease_left_s is None:
        return {}
    return {"lease_left_s": call.lease_left_s}


def _what_holds(
    seen: WorkerEvidence, partition: PartitionSnapshot, call: CallSnapshot | None
) -> str:
    if call is not None and call.lease_left_s is not None:
        return (
            f"a client has leased offset {call.offset} for {call.seconds:.0f} s (attempt"
            f" {call.attempt}); the lease ends in {call.lease_left_s:.0f} s unless it is renewed;"
            " shorten visibility_timeout, or let the client delete or return the record"
        )
    if call is not None:
        stack = seen.last.stack_of(call)
        where = f"; it is at {_last_place(stack)}" if stack else ""
        return (
            f"offset {call.offset} has been running for {call.seconds:.0f} s (attempt"
            f" {call.attempt}){where}; set a timeout for what it waits for"
        )
    blocking = seen.last.blocking(partition.name)
    if blocking:
        first = min(blocking, key=lambda each: each.offset)
        return (
            f"{partition.failed} of its records failed and wait for their next call, or for the"
            f" ack of their copy, among them offset {first.offset}, after {first.attempts} calls,"
            f" with {first.error or 'an unreported error'}"
        )
    if partition.failed:
        return (
            f"{partition.failed} of its records failed and wait for their next call, or for the"
            " ack of their copy; the log names them"
        )
    return "none of its calls seems to be running; see the log and `kill -USR1`"


def _last_place(stack: str) -> str:
    """Return the innermost frame of a stack, preferably in the application's own code."""
    lines = [line.strip() for line in stack.splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ")]
    own = [line for line in places if not any(part in line for part in _LIBRARIES)]
    return (own or places or lines)[-1]
