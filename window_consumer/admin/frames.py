"""The data that a page gets several times a second: small, with one text per window."""

from __future__ import annotations

import json
from typing import Any, Final

from window_consumer.engine.windows_snapshot import PartitionSnapshot, WindowsSnapshot
from window_consumer.model.outcome import OUTCOMES, counters
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

MOST_CALLS: Final = 12
"""The longest running calls; ``/api/windows`` has all of them."""

_SHORT: Final = {"dead_lettered": "dead"}
"""Counters that have another name in frames."""


def worker_frame(seen: WorkerSnapshot) -> dict[str, Any]:
    """Return what changes constantly about one worker; about a silent one, its identity."""
    fields = {
        "process": seen.process,
        "name": seen.name,
        "group": seen.group,
        "handlers": list(seen.handlers),
        "phase": seen.phase,
        "ready": seen.is_ready,
        "silent_s": seen.silent_s,
        "busy_ratio": seen.busy_ratio,
        "time_to_drain_s": seen.time_to_drain_s,
        "stands_still": seen.stands_still,
        "samples": list(seen.history),
    }
    return fields | ({} if seen.windows is None else _windows_frame(seen.windows))


def outcomes_module() -> str:
    """Return the table of outcomes as a module of JavaScript, with the names that frames use."""
    rows = [
        {
            "counter": _SHORT.get(row.counter, row.counter),
            "words": row.words,
            "step": row.step,
            "end": row.end,
            "beside_done": row.is_beside_done,
        }
        for row in OUTCOMES
    ]
    return f"export const OUTCOMES = {json.dumps(rows)};\n"


def _windows_frame(windows: WindowsSnapshot) -> dict[str, Any]:
    did, breaker, limit = windows.counters, windows.breaker, windows.limit
    calls = sorted(windows.calls, key=lambda call: -call.seconds)[:MOST_CALLS]
    return {
        "halted": windows.halted,
        "slots": windows.slots,
        "busy": windows.busy,
        "abandoned": windows.abandoned,
        "limit": None if limit is None else {"now": limit.limit, "why": limit.why},
        "cost_s": windows.cost_s,
        "breaker": {
            "state": breaker.state.value,
            "failed": breaker.failed,
            "calls": breaker.calls,
            "seconds": breaker.seconds,
            "why": breaker.why,
            "declared": breaker.declared,
        },
        "did": {
            "retried": did.retried,
            "moved_to": dict(did.moved_to),
            "dead_by": dict(did.dead_by),
            **{_SHORT.get(name, name): getattr(did, name) for name in counters(progress=True)},
        },
        "partitions": [_partition_frame(each) for each in windows.partitions],
        "calls": [
            {
                "topic": call.name.topic,
                "partition": call.name.partition,
                "offset": call.offset,
                "attempt": call.attempt,
                "seconds": call.seconds,
                "abandoned": call.abandoned,
            }
            for call in calls
        ],
    }


def _partition_frame(each: PartitionSnapshot) -> dict[str, Any]:
    return {
        "topic": each.name.topic,
        "partition": each.name.partition,
        "level": each.level,
        "next": each.next_offset,
        "slid": each.slid,
        "row": each.row,
        "cells": each.capacity_cells,
        "open": each.open,
        "buffered": each.buffered,
        "failed": each.failed,
        "bytes": each.bytes,
        "paused": each.paused,
        "halted": each.halted,
        "rate": each.waits_for_rate,
        "first_open": each.first_open,
        "hovering": round(each.hovering_s, 1),
        "lag": each.lag.records,
        "lag_s": round(each.lag.seconds, 1),
    }
