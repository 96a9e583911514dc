"""The whole Engine: batches come in, slices go out and come back, the window slides."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.micro.messages import ORDERS, messages, no_copy
from window_consumer.engine.decisions import Assigned, EngineRules, OrderingName
from window_consumer.engine.engine import Engine
from window_consumer.model.protocols import Batch

RECORDS = 16_000
BATCH = 500


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_drive_an_engine_through_16_000_records(benchmark: Any, ordering: OrderingName) -> None:
    """The poll thread's cost for records whose handler does nothing."""
    batch = messages(RECORDS, keys=2_500)
    pieces = [batch[start : start + BATCH] for start in range(0, RECORDS, BATCH)]
    batches = [Batch.of(ORDERS, piece) for piece in pieces]

    def drive() -> int:
        engine = Engine(EngineRules(slots=16, ordering=ordering), lambda: 0.0, {}, no_copy)
        engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""))], 0.0)
        now = 0.0
        for each in batches:
            now += 0.001
            engine.on_records(each, now, 0.0)
            for slice_ in engine.on_tick(now, 0.0).dispatch:
                list(slice_.unclaimed)
                slice_.started = now
                slice_.elapsed = len(slice_.messages) * 1e-7
                engine.on_completion(slice_, now)
        while engine.work.busy([ORDERS]) or engine.counters.processed < RECORDS:
            now += 0.001
            for slice_ in engine.on_tick(now, 0.0).dispatch:
                list(slice_.unclaimed)
                slice_.elapsed = len(slice_.messages) * 1e-7
                engine.on_completion(slice_, now)
        return engine.counters.processed

    assert benchmark(drive) == RECORDS
