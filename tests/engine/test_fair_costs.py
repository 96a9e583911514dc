"""What a turn costs with thousands of classes, counted in steps of the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import window_consumer
from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, Note
from tests.engine.test_fair_shares import SLOTS, Shop
from window_consumer.engine.scheduling.record_queue import Place
from window_consumer.engine.scheduling.shares import share_classes

PACKAGE = str(Path(window_consumer.__file__).parent)
TURNS = 10


def files_of(what: Callable[[], object]) -> set[str]:
    """Return the files of the package whose functions a call runs."""
    files = set()

    def collect(frame: FrameType, _event: str, _: Any) -> None:
        files.add(frame.f_code.co_filename)

    before = sys.gettrace()
    sys.settrace(collect)
    try:
        what()
    finally:
        sys.settrace(before)
    return {each for each in files if each.startswith(PACKAGE)}


def steps_of(what: Callable[[], object]) -> int:
    """Return how many instructions of the package's Python code a call takes."""
    steps = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        steps += event == "opcode"
        frame.f_trace_opcodes = True
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        what()
    finally:
        sys.settrace(before)
    return steps


def waiting(classes: int, records: int = 1, slots: int = SLOTS, **fair: Any) -> Shop:
    """Return an Engine in which so many records of each class wait, each with a key of its own."""
    shop = Shop("key", {"slots": slots}.items(), **fair)
    names = [b"t%d" % (number % classes) for number in range(classes * records)]
    keyed = [(at, b"%d" % at, [("tenant", name)]) for at, name in enumerate(names)]
    shop.deliver(*(Note(at, key, headers=headers) for at, key, headers in keyed))
    return shop


def turns_of(shop: Shop, cost_s: float = 0.01) -> int:
    """Return what turns take, in each of which a slot ends a call and gets the next one."""
    length = shop.engine.dispatcher.length
    length.record(10**9, 10**9 * cost_s)
    length.learn()

    def turns() -> None:
        for _ in range(TURNS):
            shop.finish(shop.out[0], cost_s)
            shop.tick(cost_s)
            assert len(shop.out) == busy

    shop.tick()
    busy = len(shop.out)
    turns()  # what a record takes is known then
    return steps_of(turns)


@pytest.mark.parametrize(
    ("fair", "cost_s"),
    [
        ({}, 0.01),
        ({}, 2e-6),
        ({"most_share": 0.25}, 0.01),
        ({"most_slots": 1}, 0.01),
        ({"order": "strict", "weights": {"t1": 10.0}}, 0.01),
    ],
    ids=["shares", "quick calls", "a share at most", "a slot at most", "strict"],
)
def test_a_turn_takes_as_many_steps_with_ten_thousand_classes_as_with_a_thousand(
    fair: dict[str, Any], cost_s: float
) -> None:
    few, many = (turns_of(waiting(classes, **fair), cost_s) for classes in (1_000, 10_000))
    assert many < 1.3 * few


def test_classes_that_hold_as_many_slots_as_they_may_cost_nothing() -> None:
    few, many = (
        turns_of(waiting(classes, 10, slots=2 * classes, most_slots=1)) for classes in (50, 500)
    )
    assert many < 1.3 * few


def test_a_sample_takes_as_many_steps_with_ten_thousand_classes_as_with_a_thousand() -> None:
    def steps_with(classes: int) -> int:
        dispatcher = (shop := waiting(classes)).engine.dispatcher

        def sample() -> None:
            assert dispatcher.sample(shop.now, Place.FIRST, lambda _lane: False)

        sample()
        return steps_of(sample)

    assert steps_with(10_000) < 1.3 * steps_with(1_000)


def all_called(make: Callable[[], Driven]) -> Callable[[], object]:
    """Return what builds an Engine, lets it run records of two partitions, and looks at it."""

    def run() -> None:
        driven = make()
        for name in (ORDERS, OTHERS):
            driven.deliver(*(Note(at, b"%d" % (at % 3)) for at in range(20)), name=name)
        for _ in range(30):
            driven.tick(0.1)
            driven.finish_all()
        assert driven.engine.counters.processed == 40
        driven.snapshot()

    return run


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_without_fair_no_code_of_classes_runs(ordering: str) -> None:
    def plain() -> Driven:
        return Driven(names=(ORDERS, OTHERS), slots=SLOTS, ordering=ordering)

    def shared() -> Driven:
        return Shop(ordering)

    classes = str(Path(share_classes.__file__).parent)
    assert not [each for each in files_of(all_called(plain)) if each.startswith(classes)]
    assert [each for each in files_of(all_called(shared)) if each.startswith(classes)]
