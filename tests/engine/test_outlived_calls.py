"""Calls that outlive their partition: their lanes wait until the calls have really ended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.laddered import RETRIED, Laddered
from tests.engine.support import ORDERS, failure, notes, spent_after
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.snapshot import running_calls
from window_consumer.model.errors import StalledError

AFTER_S = 30.0


def worker(ordering: str = "key", **rules: Any) -> Driven:
    stall = StallRules(AFTER_S, max_abandoned=1)
    given = {"stall": stall, "retry": spent_after(3), "ordering": ordering, **rules}
    driven = Driven(**given)
    driven.engine.dispatcher.length.records = 1
    return driven


def deliver(driven: Driven, *offsets: int) -> None:
    """Deliver records: those with even offsets have the key a, the others b."""
    driven.deliver(*notes(*offsets, keys=[b"b" if each % 2 else b"a" for each in offsets]))
    driven.tick()


def running_call(driven: Driven, offset: int) -> Slice:
    """Start the call for one record and leave it running."""
    (slice_,) = (each for each in driven.out if each.messages[0].offset() == offset)
    driven.claim(slice_, 1)
    return slice_


def returns(driven: Driven, slice_: Slice) -> None:
    slice_.elapsed = 1.0
    driven.engine.on_completion(slice_, driven.now)
    driven.out.remove(slice_)
    driven.tick()


def lose(driven: Driven) -> None:
    """Lose the partition and get it back, with everything to do again."""
    driven.engine.on_lost([ORDERS], driven.now)
    assign(driven)


def assign(driven: Driven) -> None:
    driven.engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""))], driven.now)


def successor(of: Driven, **rules: Any) -> Driven:
    """Return a worker that takes over from one that has released its partition."""
    driven = worker(**{"ordering": of.engine.rules.ordering, **rules})
    driven.now = of.now
    driven.engine.on_lost([ORDERS], driven.now)
    driven.engine.inherit(of.engine.outlived.calls)
    assign(driven)
    return driven


def test_a_key_waits_for_the_call_that_outlived_its_partition() -> None:
    driven = worker()
    deliver(driven, 0, 1)
    old = running_call(driven, 0)
    returns(driven, running_call(driven, 1))
    lose(driven)
    driven.out.clear()
    deliver(driven, 0, 1, 2)
    assert driven.running_offsets == [1]
    driven.out.append(old)
    returns(driven, old)
    assert driven.running_offsets[:2] == [0, 1]
    driven.finish_all()
    assert driven.committable == 3


def test_a_partition_in_order_waits_for_the_call_that_outlived_it() -> None:
    driven = worker("partition")
    deliver(driven, 0)
    old = running_call(driven, 0)
    lose(driven)
    driven.out.clear()
    deliver(driven, 0, 1)
    assert driven.running_offsets == []
    driven.out.append(old)
    returns(driven, old)
    assert driven.running_offsets[:1] == [0]
    driven.finish_all()
    assert driven.committable == 2


def test_without_order_nothing_waits() -> None:
    driven = worker("unordered")
    deliver(driven, 0)
    running_call(driven, 0)
    lose(driven)
    driven.out.clear()
    deliver(driven, 0)
    assert driven.running_offsets == [0]
    assert not driven.engine.outlived.calls


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_successor_waits_for_the_calls_of_its_predecessor(ordering: str) -> None:
    first = worker(ordering)
    deliver(first, 0)
    old = running_call(first, 0)
    first.engine.on_stopping(first.now)
    first.engine.on_revoked([ORDERS], first.now)
    second = successor(first)
    deliver(second, 0, 1, 2)
    assert second.running_offsets == ([1] if ordering == "key" else [])
    assert [call.offset for call in running_calls(second.engine, second.now)] == [0]
    second.now += 5.0
    second.engine.on_inherited_completion(old, second.now)
    (returned,) = second.tick().returned
    assert (returned.name, returned.offset) == (ORDERS, 0)
    assert second.running_offsets[0] == 0
    second.finish_all()
    assert second.committable == 3
    assert second.engine.counters.processed == 3
    assert not second.engine.outlived.calls


def test_the_record_of_an_abandoned_call_has_left_and_its_key_waits_in_the_successor() -> None:
    first = worker()
    deliver(first, 0, 2)
    old = running_call(first, 0)
    (stalled,) = first.tick(AFTER_S + 1).stalled
    first.engine.on_looked_at(stalled, failure(StalledError("hangs")), first.now)
    first.out.remove(old)
    first.engine.on_stopping(first.now)
    first.engine.on_revoked([ORDERS], first.now)
    second = successor(first)
    deliver(second, 2)
    assert second.running_offsets == []
    second.engine.on_inherited_completion(old, second.now)
    second.tick()
    assert second.running_offsets == [2]


def test_a_successor_that_loses_the_partition_and_gets_it_back_still_waits() -> None:
    first = worker()
    deliver(first, 0)
    old = running_call(first, 0)
    first.engine.on_lost([ORDERS], first.now)
    second = successor(first)
    deliver(second, 0)
    lose(second)
    deliver(second, 0)
    assert second.running_offsets == []
    third = successor(second)
    deliver(third, 0)
    assert third.running_offsets == []
    third.engine.on_inherited_completion(old, third.now)
    third.tick()
    assert third.running_offsets == [0]


def test_a_call_of_a_predecessor_that_holds_nothing_changes_nothing() -> None:
    first = worker("unordered")
    deliver(first, 0)
    old = running_call(first, 0)
    first.engine.on_lost([ORDERS], first.now)
    second = successor(first)
    second.engine.on_inherited_completion(old, second.now)
    assert second.engine.counters.processed == 0
    assert second.tick().returned == []


def test_the_source_waits_for_a_copys_call_that_outlived_the_copys_partition() -> None:
    driven = Laddered(ordering="key")
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.tick()
    (old,) = driven.out
    driven.claim(old)
    driven.engine.on_lost([RETRIED], driven.now)
    driven.deliver(*notes(0, keys=[b"k"]))
    assert driven.tick().dispatch == []
    returns(driven, old)
    assert driven.running_offsets == [0]


def test_a_source_that_comes_back_waits_for_its_call_beside_its_copies() -> None:
    driven = Laddered(ordering="key")
    driven.deliver(*notes(0, keys=[b"k"]))
    driven.tick()
    (old,) = driven.out
    driven.claim(old)
    driven.engine.on_lost([ORDERS], driven.now)
    driven.assign(ORDERS)
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.deliver(*notes(0, keys=[b"k"]))
    assert driven.tick().dispatch == []
    returns(driven, old)
    assert len(driven.running_offsets) == 1
    driven.finish_all()
    assert driven.committable == 1
