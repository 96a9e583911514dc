"""The snapshot of a worker as JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes
from tests.golden_texts import Golden
from window_consumer.engine.windows_snapshot import LimitSnapshot, WindowsSnapshot
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot, from_json, to_json


def taken(offsets: int, claimed: int, failed: list[int]) -> WindowsSnapshot:
    driven = Driven(slots=3, window_cells=4, cell_records=2, names=(ORDERS, OTHERS))
    driven.deliver(*notes(*range(offsets)))
    driven.tick()
    for slice_ in driven.out[:claimed]:
        driven.claim(slice_, 1)
    for slice_ in [each for each in driven.out if each.messages[0].offset() in failed]:
        driven.fail(slice_, slice_.messages[0].offset())
    driven.engine.counters.dead_by["FATAL"] += offsets
    return driven.snapshot()


@settings(max_examples=50, deadline=None)
@given(
    some.integers(1, 12),
    some.integers(0, 3),
    some.lists(some.integers(0, 3), max_size=2),
    some.none() | some.builds(LimitSnapshot, some.integers(), some.integers(), some.text()),
)
def test_who_looks_from_elsewhere_sees_the_same(
    offsets: int, claimed: int, failed: list[int], limit: LimitSnapshot | None
) -> None:
    seen = attrs.evolve(taken(offsets, claimed, failed), limit=limit)
    assert from_json(json.loads(json.dumps(to_json(seen))), WindowsSnapshot) == seen


def test_what_another_version_adds_is_left_out() -> None:
    seen = taken(4, 1, [])
    assert from_json({**to_json(seen), "of_tomorrow": 1}, WindowsSnapshot) == seen


@pytest.mark.parametrize("fields", [None, [], "a picture", {}, {"partitions": [{"name": 7}]}])
def test_what_is_no_snapshot_is_refused(fields: Any, golden: Golden) -> None:
    with golden.raises(ValueError):
        from_json(fields, WindowsSnapshot)


def test_what_an_earlier_version_does_not_say_has_its_default() -> None:
    name = {"topic": "orders", "partition": 0}
    cell, call = {"state": "done", "first_offset": 7}, {"name": name, "offset": 7}
    windows = {"partitions": [{"name": name, "cells": [cell], "lag": {}}], "calls": [call]}
    failing = {**name, "offset": 7}
    worker = {"name": "charge", "snapshot": windows, "failing": [failing], "stacks": [failing]}
    seen = from_json(worker, WorkerSnapshot)
    assert seen.windows is not None
    (partition,) = seen.windows.partitions
    assert (partition.open, partition.lag.records, partition.cells[0].records) == (0, None, 0)
    assert (seen.windows.breaker.state, seen.windows.breaker.calls) == ("closed", None)
    assert (seen.is_ready, seen.windows.counters.finished, seen.drain_s) == (False, 0, None)
    assert (seen.failing[0].attempts, seen.failing[0].name) == (0, ORDERS)


def test_whoever_is_asked_for_stacks_says_so_even_without_a_call() -> None:
    assert "stacks" not in to_json(WorkerSnapshot(name="charge"))
    assert to_json(WorkerSnapshot(name="charge", stacks=[]))["stacks"] == []
