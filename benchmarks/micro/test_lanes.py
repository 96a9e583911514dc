"""Ordering by key: which records may start, and which wait in line."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.micro.messages import messages
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.lanes import LaneHold, Lanes
from window_consumer.engine.scheduling.ordering import Ordering, Unordered
from window_consumer.engine.scheduling.record_queue import RecordRun

RECORDS = 2_000
SLICE = 100


def pass_through(ordering: Ordering, run: RecordRun) -> int:
    """Let all records through, eight slices at a time."""
    ordering.add(run)
    passed = 0
    out: list[LaneHold] = []
    while passed < RECORDS:
        taken = ordering.take(SLICE) if len(out) < 8 else None
        if taken is None:
            out.pop(0).release()
            continue
        passed += len(taken[0])
        out.append(taken[1])
    for hold in out:
        hold.release()
    return passed


@pytest.mark.parametrize("keys", [10, 250, 100_000])
def test_pass_2_000_records_through_lanes(benchmark: Any, keys: int) -> None:
    """With few keys nearly all records wait in line, with many nearly none."""
    batch = messages(RECORDS, keys)
    run = RecordRun.of(batch, range(RECORDS))
    assert benchmark(lambda: pass_through(ByKey(Lanes()), run)) == RECORDS


def test_pass_2_000_records_through_without_lanes(benchmark: Any) -> None:
    """The baseline for the lanes."""
    run = RecordRun.of(messages(RECORDS), range(RECORDS))
    assert benchmark(lambda: pass_through(Unordered(Lanes()), run)) == RECORDS
