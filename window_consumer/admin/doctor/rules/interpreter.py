"""Rules for workers whose calls delay each other on one interpreter or one event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.plan.diagnosis import CauseKind, LikelyCause
from window_consumer.runtime.pools.registry import KINDS

CORES: Final = (0.6, 1.3)
"""Computing threads share one core with the poll thread and other programs. They use more only if
native code releases the interpreter's lock."""

LATE: Final = 0.2
"""A larger share of late turns means that calls do not yield to the loop. The poll thread or a busy
machine causes only a few hundredths."""


def gil_bound(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find handlers on threads that compute: one interpreter uses one core at a time."""
    if not is_gil_bound(seen):
        return
    slots = seen.mean(lambda look: look.windows.limit_now)
    yield LikelyCause(
        CauseKind.GIL_BOUND,
        seen.worker,
        f"its handler computes: calls in {slots:.0f} slots used {seen.cores:.2f} processors"
        " together, and one interpreter cannot use more than one; use pool: processes, as more"
        " slots do not help",
        {
            "cores": seen.cores,
            "slots": slots,
            "busy_ratio": seen.busy_ratio,
            "finished_per_s": seen.finished_per_s,
            "arriving_per_s": seen.arriving_per_s,
        },
        weight=65,
    )


def is_gil_bound(seen: WorkerEvidence) -> bool:
    """Return whether computing threads share one processor."""
    return (
        seen.is_behind
        and not KINDS[seen.pool].computes_in_parallel
        and seen.now.limit_now > 1
        # Slot use does not matter: the poll thread waits for the interpreter, too, and slots for
        # it.
        and CORES[0] <= seen.cores <= CORES[1]
    )


def loop_bound(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find coroutines that compute: all of them share one thread."""
    if not _computes_on_loop(seen):
        return
    yield LikelyCause(
        CauseKind.LOOP_BOUND,
        seen.worker,
        f"its coroutines compute: their event loop used {seen.loop_cores:.2f} of a processor, and"
        " cannot use more than one, however many slots there are; move the computation to a plain"
        " function with pool: processes, or start more processes",
        _figures(seen),
        weight=65,
    )


def loop_blocked(seen: WorkerEvidence) -> Iterator[LikelyCause]:
    """Find coroutines that wait without yielding to the event loop."""
    if not _is_loop_blocked(seen):
        return
    yield LikelyCause(
        CauseKind.LOOP_BLOCKED,
        seen.worker,
        f"its coroutines block their event loop: it stood still for {seen.loop_late:.0%} of the"
        f" time and used only {seen.loop_cores:.2f} of a processor, so calls wait for each other;"
        " something in them waits without await (a blocking client, time.sleep): use an"
        " asynchronous one or asyncio.to_thread, or make the handler a plain function",
        _figures(seen),
        weight=65,
    )


def _figures(seen: WorkerEvidence) -> dict[str, float | int | str | None]:
    return {
        "cores": seen.loop_cores,
        "late": seen.loop_late,
        "slots": seen.mean(lambda look: look.windows.limit_now),
        "busy_ratio": seen.busy_ratio,
        "finished_per_s": seen.finished_per_s,
        "arriving_per_s": seen.arriving_per_s,
    }


def _computes_on_loop(seen: WorkerEvidence) -> bool:
    return seen.is_behind and seen.loop_cores is not None and seen.loop_cores >= CORES[0]


def _is_loop_blocked(seen: WorkerEvidence) -> bool:
    late = seen.loop_late
    return seen.is_behind and late is not None and late >= LATE and not _computes_on_loop(seen)


def is_one_thread_bound(seen: WorkerEvidence) -> bool:
    """Return whether calls delay each other, so that more slots would not help."""
    return is_gil_bound(seen) or _computes_on_loop(seen) or _is_loop_blocked(seen)
