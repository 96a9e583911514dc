"""Pictures as plain values, and back."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.engine.support import ORDERS, OTHERS, Driven, notes
from window_consumer.admin.snapshots import (
    plain,
    snapshot_of,
)
from window_consumer.engine.snapshot import (
    LimitPicture,
    Snapshot,
    picture,
)


def taken(offsets: int, claimed: int, failed: list[int]) -> Snapshot:
    driven = Driven(slots=3, window_cells=4, cell_records=2, names=(ORDERS, OTHERS))
    driven.deliver(*notes(*range(offsets)))
    driven.tick()
    for slice_ in driven.out[:claimed]:
        driven.claim(slice_, 1)
    for slice_ in [each for each in driven.out if each.messages[0].offset() in failed]:
        driven.fail(slice_, slice_.messages[0].offset())
    driven.engine.counters.dead_by["FATAL"] += offsets
    return picture(driven.engine, driven.now, driven.wall_ms)


@settings(max_examples=50, deadline=None)
@given(
    some.integers(1, 12),
    some.integers(0, 3),
    some.lists(some.integers(0, 3), max_size=2),
    some.none() | some.builds(LimitPicture, some.integers(), some.integers(), some.text()),
)
def test_who_looks_from_elsewhere_sees_the_same(
    offsets: int, claimed: int, failed: list[int], limit: LimitPicture | None
) -> None:
    seen = attrs.evolve(taken(offsets, claimed, failed), limit=limit)
    assert snapshot_of(json.loads(json.dumps(plain(seen)))) == seen


def test_what_another_version_adds_is_left_out() -> None:
    seen = taken(4, 1, [])
    assert snapshot_of({**plain(seen), "of_tomorrow": 1}) == seen


@pytest.mark.parametrize("fields", [None, [], "a picture", {}, {"partitions": [{"name": 7}]}])
def test_what_is_no_picture_is_told_apart(fields: Any) -> None:
    with pytest.raises(ValueError, match="no picture of a worker, or one of another version"):
        snapshot_of(fields)
