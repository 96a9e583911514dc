from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.core.support import ORDERS, OTHERS, Driven, notes
from window_consumer.core.in_turn import EnoughRules
from window_consumer.model.record import TopicPartition

TEN_MS = 0.010
ENOUGH_RECORDS = EnoughRules().records
MICROSECOND = 1e-6


def in_turn(
    names: Sequence[TopicPartition] = (ORDERS, OTHERS),
    cost_s: float | None = TEN_MS,
    slots: int = 16,
) -> Driven:
    """An Engine with each partition in order that knows what a call takes, with nothing to do."""
    driven = Driven(names=names, slots=slots, ordering="partition")
    if cost_s is not None:
        driven.engine.dispatcher._length.note(1000, 1000 * cost_s)
        driven.engine.dispatcher._length.learn()
    return driven


def read(driven: Driven, name: TopicPartition, most: int = 3_000) -> int:
    """Deliver what is asked for, all of it of one partition, while it is read; return how many."""
    partition = driven.engine.partitions[name]
    first = partition.next_delivery
    offset = first
    while offset - first < most and not partition.paused and (want := driven.engine.appetite()):
        driven.deliver(*notes(*range(offset, offset + want)), name=name)
        driven.tick()
        offset += want
    return offset - first


def finish_one(driven: Driven, name: TopicPartition) -> None:
    [slice_] = [each for each in driven.out if each.partition.name == name]
    driven.finish(slice_, elapsed=TEN_MS * len(slice_.messages))
    driven.tick(TEN_MS)


def test_of_a_single_partition_only_what_is_next_is_fetched() -> None:
    driven = in_turn([ORDERS])
    assert read(driven, ORDERS) <= 10
    for _ in range(20):
        finish_one(driven, ORDERS)
        assert driven.out, "its lane has to go on at once"
        read(driven, ORDERS)
        assert driven.engine.unfinished() <= 11


def test_a_partition_of_which_enough_is_held_is_paused_while_another_has_nothing() -> None:
    driven = in_turn()
    read(driven, ORDERS)
    assert ORDERS in driven.last.pause
    assert ENOUGH_RECORDS <= driven.engine.unfinished() < 2 * ENOUGH_RECORDS
    assert driven.engine.appetite() > 0, "the other one may have records"


def test_it_goes_on_before_it_has_nothing_left() -> None:
    driven = in_turn()
    held = read(driven, ORDERS)
    while ORDERS not in dict(driven.last.resume):
        finish_one(driven, ORDERS)
        assert driven.out
    assert dict(driven.last.resume)[ORDERS] == held
    assert driven.engine.unfinished() >= ENOUGH_RECORDS / 8


def test_nothing_is_fetched_or_paused_while_every_partition_has_work() -> None:
    driven = in_turn()
    for name in (ORDERS, OTHERS):
        driven.deliver(*notes(*range(ENOUGH_RECORDS // 2)), name=name)
    driven.tick()
    assert driven.engine.appetite() == 0
    for name in (ORDERS, OTHERS):
        driven.deliver(*notes(*range(100, 100 + ENOUGH_RECORDS)), name=name)
    assert not driven.tick(0.1).pause


def test_nothing_is_paused_while_all_slots_have_work() -> None:
    """Who waits for records would wait for a slot as well."""
    names = [TopicPartition("orders", number) for number in range(8)]
    driven = in_turn(names, slots=2)
    for name in names[:-1]:
        driven.deliver(*notes(*range(2 * ENOUGH_RECORDS)), name=name)
    assert not driven.tick().pause
    assert not driven.tick(0.1).pause
    assert driven.engine.appetite() == 0


@pytest.mark.parametrize("names", [[ORDERS], [ORDERS, OTHERS]])
def test_partitions_of_quick_calls_are_read_on(names: list[TopicPartition]) -> None:
    driven = in_turn(names, cost_s=MICROSECOND)
    assert driven.engine.appetite() == driven.engine.rules.batch_records
    driven.deliver(*notes(*range(12_000)))
    assert not driven.tick(0.1).pause
    assert driven.engine.appetite() == driven.engine.rules.batch_records


def test_little_is_read_before_the_first_call_has_returned() -> None:
    driven = in_turn(cost_s=None)
    assert read(driven, ORDERS) < 2 * ENOUGH_RECORDS


def test_little_is_asked_for_before_it_is_known_how_many_partitions_there_are() -> None:
    assert in_turn(names=[]).engine.appetite() == 1


def test_slices_are_longer_where_nobody_else_could_take_their_records() -> None:
    """Between two slices a lane rests, for as long as handing over takes."""
    driven = in_turn()
    driven.deliver(*notes(*range(40)))
    driven.tick()
    assert [len(slice_.messages) for slice_ in driven.out] == [5]


def test_idle_slots_take_nothing_back_that_only_one_may_run() -> None:
    driven = in_turn()
    driven.deliver(*notes(*range(40)))
    driven.tick()
    driven.claim(driven.out[0], 1)
    for _ in range(3):
        driven.tick(0.006)
    assert driven.engine.counters.taken_back == 0


def test_slices_stay_short_where_partitions_share_slots() -> None:
    names = [TopicPartition("orders", number) for number in range(8)]
    driven = in_turn(names, slots=2)
    for name in names:
        driven.deliver(*notes(*range(40)), name=name)
    driven.tick()
    assert {len(slice_.messages) for slice_ in driven.out} == {1}
