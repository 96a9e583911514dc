from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes
from window_consumer.engine.scheduling.fetch_demand import EnoughRules
from window_consumer.engine.scheduling.rate_limit import RateRules
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
        driven.engine.dispatcher.length.record(1000, 1000 * cost_s)
        driven.engine.dispatcher.length.learn()
    return driven


def read(driven: Driven, name: TopicPartition, most: int = 3_000) -> int:
    """Deliver what is asked for, all of it of one partition; return how many."""
    first = offset = driven.engine.partitions[name].next_delivery
    while offset - first < most and (want := driven.engine.appetite()):
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
        assert driven.engine.work.unfinished() <= 11


def test_reading_goes_on_while_a_partition_has_nothing_whatever_the_others_hold() -> None:
    """Its records may come behind theirs, and a pause would throw away what was prefetched."""
    driven = in_turn()
    assert read(driven, ORDERS) >= 3_000
    assert driven.engine.appetite() > 0
    assert not driven.tick(0.1).pause


def test_reading_ends_when_every_partition_has_enough() -> None:
    driven = in_turn()
    read(driven, ORDERS)
    assert read(driven, OTHERS) < 4 * ENOUGH_RECORDS
    assert driven.engine.appetite() == 0


def test_a_partition_is_read_on_before_its_lane_has_nothing_left() -> None:
    """That a slot is idle, or will be, is not to be seen in what all partitions hold together."""
    driven = in_turn(slots=2)
    for name, count in ((ORDERS, 10 * ENOUGH_RECORDS), (OTHERS, 2 * ENOUGH_RECORDS)):
        driven.deliver(*notes(*range(count)), name=name)
    driven.tick()
    while not driven.engine.appetite():
        finish_one(driven, OTHERS)
    assert driven.engine.partitions[OTHERS].window.open >= ENOUGH_RECORDS / 2


def test_nothing_is_fetched_while_all_slots_have_work() -> None:
    """Who waits for records would wait for a slot as well."""
    names = [TopicPartition("orders", number) for number in range(8)]
    driven = in_turn(names, slots=2)
    for name in names[:-1]:
        driven.deliver(*notes(*range(2 * ENOUGH_RECORDS)), name=name)
    driven.tick()
    assert driven.engine.appetite() == 0


def test_nothing_is_fetched_where_the_rate_lets_nothing_start() -> None:
    rules = RateRules(per_s=1.0, burst=1)
    driven = Driven(names=(ORDERS, OTHERS), slots=16, ordering="partition", rate=rules)
    driven.deliver(*notes(*range(10)))
    driven.tick()
    assert driven.engine.appetite() > 0, "the other partition may have records"
    finish_one(driven, ORDERS)
    assert driven.engine.appetite() == 0


@pytest.mark.parametrize("names", [[ORDERS], [ORDERS, OTHERS]])
def test_partitions_of_quick_calls_are_read_on(names: list[TopicPartition]) -> None:
    driven = in_turn(names, cost_s=MICROSECOND)
    assert driven.engine.appetite() == driven.engine.rules.batch_records
    driven.deliver(*notes(*range(12_000)))
    assert not driven.tick(0.1).pause
    assert driven.engine.appetite() == driven.engine.rules.batch_records


def test_little_is_read_before_the_first_call_has_returned() -> None:
    driven = in_turn([ORDERS], cost_s=None)
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
