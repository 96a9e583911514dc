"""Rules for records that wait too long: parked or hot keys, hot partitions, rates, slow calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean
from typing import Final

from window_consumer.admin.doctor.causes import BUSY, IDLE, duration
from window_consumer.admin.doctor.evidence import OLD_S, WorkerEvidence
from window_consumer.admin.doctor.rules.interpreter import is_one_thread_bound
from window_consumer.engine.windows_snapshot import PartitionSnapshot
from window_consumer.plan.diagnosis import CauseKind, Figure, LikelyCause

LINE_SHARE: Final = 0.5
LEAST_LINE: Final = 8
"""A key counts as hot only if at least this many of the waiting records have it."""

PARTITION_SHARE: Final = 0.8

LONG_DRAIN_S: Final = 60.0
"""A worker that catches up within this time needs no advice."""


def parked_keys(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find keys that have been in the ladder for long, and the records behind them."""
    parked = seen.now.parked
    if parked is None or not parked.longest or parked.longest[0].in_ladder_s < OLD_S:
        return
    head = parked.longest[0]
    leaves = ""
    if head.copy:
        where = f" --url {seen.admin_url}" if seen.admin_url else ""
        leaves = (
            ", or remove it while it waits for its next call: window-consumer skip,"
            f" or dead-letter, --worker {seen.worker}{where} --record {head.copy}"
        )
    yield LikelyCause(
        CauseKind.PARKED_KEYS,
        seen.worker,
        f"{parked.followers} records wait for an earlier one of their key that has failed"
        f" (retry.on_failure: park); keys in the ladder: {parked.keys}. The key"
        f" {head.key!r} has been there longest, for {duration(head.in_ladder_s)}: {head.followers}"
        f" of them wait for offset {head.offset} of {head.name}. They are called when it"
        f" succeeds or leaves the ladder: fix the cause of its failures{leaves}",
        {
            "keys": parked.keys,
            "waiting": parked.followers,
            "key": head.key,
            "offset": head.offset,
            "waiting_for_key": head.followers,
            "in_ladder_s": head.in_ladder_s,
        },
        head.name,
        weight=72,
    )


def starved(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find the class of records that has waited longest without a call while others have calls."""
    shares = seen.now.shares
    if shares is None:
        return
    worst = max(shares.largest, key=lambda each: each.starved_s, default=None)
    busy = [each for each in shares.largest if each.slots]
    if worst is None or not busy or worst.starved_s < OLD_S:
        return
    most = max(busy, key=lambda each: each.slots)
    advice = "raise its weight, or bound the others with fair.at_most"
    if shares.order == "strict":
        advice = "raise fair.floor or its weight, or write fair.order: shares"
    yield LikelyCause(
        CauseKind.STARVED,
        seen.worker,
        f"{worst.waiting} records of the class {worst.name} wait, and none has started for"
        f" {duration(worst.starved_s)}, while {most.name} has {most.slots} of"
        f" {seen.now.slots} slots (fair.order: {shares.order}): {advice}, or add slots"
        " (concurrency)",
        {
            "class": worst.name,
            "waiting": worst.waiting,
            "starved_s": worst.starved_s,
            "busiest": most.name,
            "busiest_slots": most.slots,
        },
        weight=70,
    )


def hot_key(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a key that most waiting records have: a key runs one call at a time."""
    if not seen.is_behind or seen.busy_ratio >= BUSY:
        return
    for partition in seen.now.partitions:
        line, held = _line_of(seen, partition)
        if not _is_held_by_a_key(seen, partition) or seen.poison_of(partition) is not None:
            continue
        key = "" if partition.hottest_key is None else f" {partition.hottest_key!r}"
        yield LikelyCause(
            CauseKind.HOT_KEY,
            seen.worker,
            f"{line:.0f} of the {held:.0f} records in the window of {partition.name} have one"
            f" key{key}, which runs one call at a time, while"
            f" {(1 - seen.busy_ratio):.0%} of the slots' time is idle: spread that key, or do"
            f" less for each of its records (a batch handler, deduplication)"
            f"{_or_poison(seen, partition)}",
            {
                "waiting_for_key": line,
                "open": held,
                "key": partition.hottest_key,
                "busy_ratio": seen.busy_ratio,
                "finished_per_s": seen.finished_per_s,
            },
            partition.name,
            weight=75,
        )


def _or_poison(seen: WorkerEvidence, partition: PartitionSnapshot) -> str:
    """Return the other possible cause, if the failed records are unknown."""
    if not seen.blocks or not partition.failed or seen.last.blocking(partition.name):
        return ""
    return (
        f"; or one of its {partition.failed} failed records blocks that key (on_failure: block):"
        " the log names it, and so does doctor with the admin address"
    )


def _line_of(seen: WorkerEvidence, partition: PartitionSnapshot) -> tuple[float, float]:
    """Return the mean numbers of records that waited for the hottest key, and of open records."""
    lines = seen.of_partition(partition.name, lambda each: each.longest_line)
    held = seen.of_partition(partition.name, lambda each: each.open)
    return fmean(lines), fmean(held)


def _is_held_by_a_key(seen: WorkerEvidence, partition: PartitionSnapshot) -> bool:
    line, held = _line_of(seen, partition)
    return line >= max(LEAST_LINE, LINE_SHARE * held)


def hot_partition(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a partition with most of the lag while slots are idle."""
    if not seen.is_behind or seen.busy_ratio >= BUSY or not seen.lag or seen.lacks_clients:
        return
    worst = max(seen.now.partitions, key=lambda each: each.unfinished or 0)
    share = (worst.unfinished or 0) / seen.lag
    several = len(seen.now.partitions) > 1
    one_by_one = seen.ordering == "partition"
    if not (share >= PARTITION_SHARE and several) and not (one_by_one and not several):
        return
    if not one_by_one and worst.open + worst.buffered <= seen.now.limit_now:
        return  # its records do not arrive: another cause
    if _is_held_by_a_key(seen, worst) or worst.waits_for_rate or worst.halted:
        return
    if seen.poison_of(worst) is not None:
        return
    why = "its records run one after another (ordering: partition)" if one_by_one else "it is hot"
    yield LikelyCause(
        CauseKind.HOT_PARTITION,
        seen.worker,
        f"{worst.name} has {worst.unfinished} of the {seen.lag} records that lag ({share:.0%}):"
        f" {why}, while {(1 - seen.busy_ratio):.0%} of the slots' time is idle; spread the"
        " records over more partitions" + (", or order by key" if one_by_one else ""),
        {
            "lag": worst.unfinished,
            "lag_of_all": seen.lag,
            "share": share,
            "busy_ratio": seen.busy_ratio,
            "finished_per_s": seen.finished_per_s,
        },
        worst.name,
        weight=70,
    )


def rate(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a configured rate that delays calls."""
    waiting = seen.mean(
        # The share of observations.
        lambda look: any(each.waits_for_rate for each in look.windows.partitions)
    )
    if not seen.is_behind or seen.busy_ratio >= BUSY or waiting < IDLE:
        return
    yield LikelyCause(
        CauseKind.RATE,
        seen.worker,
        f"rate_per_process holds it back: {seen.finished_per_s:.1f} records/s finish,"
        f" {seen.arriving_per_s:.1f} arrive, and {(1 - seen.busy_ratio):.0%} of the slots' time is"
        " idle; raise it, or start more processes",
        {
            "finished_per_s": seen.finished_per_s,
            "arriving_per_s": seen.arriving_per_s,
            "busy_ratio": seen.busy_ratio,
        },
        weight=72,
    )


def no_clients(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find a queue whose clients ask for fewer records than there are."""
    if not seen.is_behind or seen.busy_ratio >= BUSY or not seen.lacks_clients:
        return
    leased = seen.mean(lambda look: look.windows.running)
    yield LikelyCause(
        CauseKind.NO_CLIENTS,
        seen.worker,
        f"{seen.lag} records wait and no client asks for more: clients hold {leased:.0f} of at"
        f" most {seen.now.slots} and finish {seen.finished_per_s:.1f} a second, while"
        f" {seen.arriving_per_s:.1f} arrive; start more clients of this process",
        {
            "lag": seen.lag,
            "leased": leased,
            "finished_per_s": seen.finished_per_s,
            "arriving_per_s": seen.arriving_per_s,
        },
        weight=65,
    )


def handler_slow(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find workers that need more parallel calls than they have slots (Little's law)."""
    if not seen.is_behind or seen.busy_ratio < BUSY or is_one_thread_bound(seen):
        return
    slots = seen.mean(lambda look: look.windows.limit_now)
    took_s = seen.seconds_a_record
    needed = None if took_s is None else seen.arriving_per_s * took_s
    if needed is not None and needed < slots * BUSY and seen.drain_s <= LONG_DRAIN_S:
        return  # it catches up
    figures: dict[str, Figure] = {
        "slots": slots,
        "busy_ratio": seen.busy_ratio,
        "seconds_a_record": took_s,
        "arriving_per_s": seen.arriving_per_s,
        "finished_per_s": seen.finished_per_s,
        "needed_slots": needed,
    }
    if took_s is None or needed is None:
        longest = max((call.seconds for call in seen.now.calls), default=0.0)
        said = (
            f"all {slots:.0f} slots are busy and none has finished a record within"
            f" {seen.seconds:.0f} s; the longest call has been running for {longest:.0f} s"
        )
    elif needed < slots * BUSY:
        said = (
            f"a record takes {duration(took_s)} of a slot, and all {slots:.0f} are busy with a"
            f" backlog of {seen.lag} records, for {seen.drain_s:.0f} s more"
        )
    else:
        said = (
            f"a record takes {duration(took_s)} of a slot, and {seen.arriving_per_s:.1f} arrive a"
            f" second: that needs {needed:.1f} slots, but there are {slots:.0f},"
            f" {seen.busy_ratio:.0%} busy"
        )
    better = math.ceil((needed or slots) / BUSY)
    key = "concurrency" if seen.now.asking is None else "pull.max_in_flight"
    more = f"raise {key} to {better} or more" if better > slots else f"raise {key}"
    if seen.now.limit is not None and seen.now.limit.why:
        adapted = "concurrency" if seen.now.limit.manual is not None else "concurrency: auto"
        more = f"{adapted} is at {slots:.0f} ({seen.now.limit.why})"
    yield LikelyCause(
        CauseKind.HANDLER_SLOW,
        seen.worker,
        f"{said}: {more}, start more processes, or make the handler faster",
        figures,
        weight=60,
    )
