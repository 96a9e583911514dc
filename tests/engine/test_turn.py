"""What a rule decides about records at their turn, before their first call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.driver import Driven
from tests.engine.laddered import LEVELS, RETRIED, RETRIED_LATER, Laddered
from tests.engine.support import ORDERS, Note, failure, spent_after
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.engine.turn import (
    MAX_DECIDED,
    CopyTo,
    Finish,
    HoldUntil,
    HoldUntilReleased,
    Leave,
    Turn,
    TurnRule,
)
from window_consumer.model.errors import Expired, PublishFailedError
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition

HOLD_S = 0.3

COPY = Copy("elsewhere", 3, b"k", b"v", [("why", b"not here")])

TURNS: Mapping[str, Callable[[float], Turn]] = {
    "hold": lambda now: HoldUntil(now + HOLD_S),
    "copy": lambda _now: CopyTo(COPY, Reason.MANUAL, Outcome.MOVED),
    "leave": lambda _now: Leave(failure(Expired("old"))),
    "drop": lambda _now: Leave(failure(Expired("old", "drop"))),
    "finish": lambda _now: Finish(Outcome.FILTERED),
    "released": lambda _now: HoldUntilReleased(),
}


class Scripted(TurnRule):
    """A rule that says what a script says, by offset; a held record is called at its time."""

    def __init__(self, script: Mapping[int, str]):
        self.script = script
        self.asked: list[int] = []

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        del partition, wall_ms
        self.asked += [message.offset() for message in messages]
        return {
            index: TURNS[self.script[message.offset()]](now)
            for index, message in enumerate(messages)
            if message.offset() in self.script
        }


def scripted(script: Mapping[int, str], keys: Sequence[bytes] = (b"k",), **rules: Any) -> Driven:
    """Return an Engine that has got four records or more, of these keys in turn."""
    driven = Driven(turns=[Scripted(script)], **rules)
    count = max(4, *script, 0) + 1
    driven.deliver(*(Note(at, keys[at % len(keys)]) for at in range(count)))
    driven.tick()
    return driven


def the_left(driven: Driven) -> list[tuple[int, Outcome]]:
    """Report into a list which records leave, with their outcomes."""
    left: list[tuple[int, Outcome]] = []

    class LeftObserver(Observer):
        def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
            del now
            left.append((failed.message.offset(), outcome))

    driven.engine.observe(LeftObserver())
    return left


def test_a_finished_record_has_its_outcome_without_a_call() -> None:
    driven = scripted({0: "finish", 2: "finish"}, ordering="key")
    assert driven.running_offsets == [1], "the turn of 2 comes after it"
    driven.finish_all()
    assert driven.committable == 5
    assert (driven.engine.counters.skipped, driven.engine.counters.processed) == (2, 3)


def test_a_rule_is_asked_about_what_those_before_it_have_not_decided() -> None:
    first, second = Scripted({0: "finish", 2: "finish"}), Scripted({1: "finish", 2: "drop"})
    driven = Driven(turns=[first, second])
    driven.deliver(*(Note(at, b"k") for at in range(5)))
    driven.tick()
    assert (first.asked, second.asked) == ([0, 1, 2, 3, 4], [1, 3, 4])
    assert driven.running_offsets == [3, 4]
    assert driven.engine.counters.skipped == 3


def test_a_record_that_leaves_holds_its_lane_until_its_copy_is_acked() -> None:
    driven = scripted({0: "leave"}, ordering="key")
    assert driven.running_offsets == []
    (failed,) = driven.last_published
    assert (failed.reason, failed.attempts) == (Reason.EXPIRED, 0)
    driven.copied(failed)
    driven.tick()
    assert driven.running_offsets == [1]
    assert driven.engine.counters.expired == 1


def test_a_dropped_record_leaves_at_once() -> None:
    driven = scripted({0: "drop"}, ordering="key")
    assert driven.engine.counters.expired == 1
    driven.tick()
    assert driven.running_offsets == [1]


def test_a_copied_record_has_the_outcome_of_the_rule_once_its_copy_is_acked() -> None:
    driven = scripted({0: "copy"}, ordering="key")
    left = the_left(driven)
    (failed,) = driven.last.publish
    assert driven.engine.copy_of(failed) == COPY
    driven.copied(failed, PublishFailedError("lost", too_large=True))
    assert left == []
    (again,) = driven.published(20.0)
    assert driven.engine.copy_of(again) == COPY
    driven.copied(again)
    assert left == [(0, Outcome.MOVED)]
    assert driven.engine.counters.moved == 1
    driven.tick()
    assert driven.running_offsets == [1]


def test_a_held_record_is_called_at_its_time_as_its_first_attempt_and_its_lane_waits() -> None:
    driven = scripted({0: "hold"}, keys=(b"a", b"b"), ordering="key")
    assert driven.running_offsets == [1]
    driven.finish_all()
    driven.tick(HOLD_S - 0.01)
    assert driven.running_offsets == []
    driven.tick(0.02)
    (slice_,) = driven.out
    assert driven.running_offsets == [0]
    assert slice_.call.number_of(slice_.messages[0]) == 1
    driven.finish_all()
    assert driven.committable == 5


def test_a_record_held_until_released_is_called_then_as_its_first_attempt() -> None:
    driven = scripted({0: "released"}, keys=(b"a", b"b"), ordering="key")
    assert driven.running_offsets == [1, 2], "its lane is free"
    driven.finish_all()
    driven.tick(1000.0)
    assert (driven.running_offsets, driven.committable) == ([], 0)
    assert driven.engine.on_released(ORDERS, 0)
    driven.tick()
    (slice_,) = driven.out
    assert driven.running_offsets == [0]
    assert slice_.call.number_of(slice_.messages[0]) == 1
    driven.finish_all()
    assert (driven.committable, driven.failing()) == (5, [])


def test_a_record_held_until_released_leaves_its_lane_free_and_holds_it_when_called() -> None:
    driven = scripted({0: "released", 1: "released"}, ordering="key")
    assert driven.failing_offsets() == [0, 1]
    driven.finish_all()
    assert driven.committable == 0
    assert driven.engine.on_released(ORDERS, 0)
    driven.deliver(Note(5, b"k"))
    driven.tick()
    assert driven.running_offsets == [0]
    driven.finish_all()
    assert driven.failing_offsets() == [1]
    assert driven.engine.on_released(ORDERS, 1)
    driven.tick()
    driven.finish_all()
    assert (driven.committable, driven.failing()) == (6, [])


def test_a_record_held_until_released_may_leave_instead_and_its_lane_waits_for_that() -> None:
    driven = scripted({0: "released"}, ordering="key")
    driven.finish_all()
    left = the_left(driven)
    assert driven.engine.on_released(ORDERS, 0, Leave(failure(Expired("old"))))
    driven.deliver(Note(5, b"k"))
    failed = driven.published_one()
    assert (failed.calls, failed.reason) == (0, Reason.EXPIRED)
    assert driven.running_offsets == []
    driven.copied(failed)
    assert left == [(0, Outcome.EXPIRED)]
    driven.tick()
    assert driven.running_offsets == [5]
    driven.finish_all()
    assert driven.committable == 6


def test_of_two_records_of_a_lane_that_are_released_at_once_one_is_called_after_the_other() -> None:
    script = {0: "released", 1: "released"}
    driven = scripted(script, ordering="key")
    driven.finish_all()
    script.clear()
    assert driven.engine.on_released(ORDERS, 0)
    assert driven.engine.on_released(ORDERS, 1)
    driven.tick()
    assert driven.running_offsets == [0]
    driven.finish(driven.out[0])
    driven.tick()
    assert driven.running_offsets == [1]
    driven.finish_all()
    assert (driven.committable, driven.failing()) == (5, [])


def test_a_record_that_is_released_while_its_lane_is_busy_has_another_turn() -> None:
    driven = scripted({0: "released"}, ordering="key")
    assert driven.running_offsets
    assert driven.engine.on_released(ORDERS, 0)
    driven.finish_all()
    driven.tick()
    assert driven.failing_offsets() == [0], "the rule holds it again"
    assert driven.engine.on_released(ORDERS, 0)
    driven.tick()
    assert driven.running_offsets == [0]
    driven.finish_all()
    assert driven.committable == 5


def test_only_a_held_record_can_be_released() -> None:
    driven = scripted({0: "released"}, ordering="key")
    assert not driven.engine.on_released(ORDERS, 1)
    driven.engine.on_lost([ORDERS], driven.now)
    assert not driven.engine.on_released(ORDERS, 0)


def test_nothing_of_it_counts_for_the_breaker_or_as_a_failed_call() -> None:
    driven = scripted({0: "hold", 1: "copy", 2: "finish"}, keys=(b"a", b"b", b"c"), ordering="key")
    assert driven.tick().failed == []
    assert driven.engine.counters.retried == 0


def test_a_record_behind_a_running_one_of_its_lane_has_its_turn_when_that_has_ended() -> None:
    driven = scripted({1: "leave"}, ordering="key", retry=RetryRules(on_failure="block"))
    assert driven.running_offsets == [0]
    driven.fail(driven.out[0], 0)
    driven.tick(0.01)
    assert driven.last_published == []
    driven.tick(1.0)
    driven.finish(driven.out[0])
    assert driven.published_one().message.offset() == 1


def test_of_two_rules_the_first_decides() -> None:
    driven = Driven(turns=[Scripted({0: "finish"}), Scripted({0: "leave", 1: "finish"})])
    driven.deliver(Note(0), Note(1))
    driven.tick()
    assert (driven.last.publish, driven.committable) == ([], 2)


def test_a_partition_that_is_paused_is_not_asked_for_its_records() -> None:
    rule = Scripted({0: "finish"})
    driven = Driven(turns=[rule])
    driven.engine.on_halted(ORDERS, driven.now, halted=True)
    driven.deliver(Note(0))
    driven.tick()
    assert (rule.asked, driven.committable) == ([], 0)
    driven.engine.on_halted(ORDERS, driven.now, halted=False)
    driven.tick()
    assert driven.committable == 1


def test_a_lost_partition_has_nothing_left_of_its_held_records() -> None:
    driven = scripted({0: "hold", 1: "copy"})
    assert driven.failing_offsets() == [0, 1]
    driven.engine.on_lost([ORDERS], driven.now)
    driven.out.clear()
    driven.tick(2 * HOLD_S)
    assert (driven.out, driven.unacked) == ([], 1)


def test_a_backlog_that_ends_at_its_turn_is_spread_over_ticks_which_follow_at_once() -> None:
    count = 2 * MAX_DECIDED + 5
    driven = Driven(turns=[Scripted(dict.fromkeys(range(count), "finish"))], slots=1)
    driven.deliver(*(Note(at) for at in range(count)))
    driven.tick()
    assert 0 < driven.committable < count
    while driven.engine.wait_s(driven.now, 1.0) == 0.0:
        driven.tick()
    assert driven.committable == count


def backlog(count: int, *names: TopicPartition) -> Driven:
    """Return an Engine with a backlog in each partition, all of whose records are copied."""
    rule = Scripted(dict.fromkeys(range(count), "copy"))
    driven = Driven(names=names, turns=[rule], window_cells=64)
    for name in names:
        driven.deliver(*(Note(at) for at in range(count)), name=name)
    return driven


def test_copies_are_made_as_they_are_written_and_not_of_a_whole_backlog_at_once() -> None:
    count = 5 * MAX_DECIDED + 5
    driven = backlog(count, ORDERS)
    most, copied = 0, 0
    for _ in range(count):
        driven.tick()
        most = max(most, len(driven.failing()))
        for failed in driven.last_published:
            driven.copied(failed)
            copied += 1
        if copied == count:
            break
    assert copied == driven.committable == count
    assert most <= 2 * MAX_DECIDED, "as many are on their way, and as many wait"


def test_every_partition_has_its_turn_while_copies_wait_to_be_written() -> None:
    names = [TopicPartition("orders", number) for number in range(4)]
    driven = backlog(5 * MAX_DECIDED, *names)
    copied = Counter[TopicPartition]()
    for _ in range(12):
        for failed in driven.published():
            driven.copied(failed)
            copied[failed.partition.name] += 1
    assert min(copied[name] for name in names) >= 2 * MAX_DECIDED


def test_copies_in_a_level_do_not_wait_for_a_backlog_of_new_records() -> None:
    count = 5 * MAX_DECIDED
    driven = Laddered(retry=spent_after(1, levels=LEVELS))
    driven.engine.decide_turns([Scripted(dict.fromkeys(range(count), "copy"))])
    driven.engine.on_lost([ORDERS, RETRIED, RETRIED_LATER], driven.now)
    driven.assign(ORDERS, RETRIED)
    driven.deliver(*(Note(at) for at in range(count)))
    driven.tick()
    driven.tick()
    assert len(driven.failing()) == 2 * MAX_DECIDED
    driven.deliver(*(driven.copy(at, due_in=0.0, key=None) for at in range(10)), name=RETRIED)
    driven.tick(0.01)
    assert len(driven.failing(RETRIED)) == 10


def test_no_rate_is_charged_for_what_is_not_called() -> None:
    driven = scripted({0: "finish", 1: "leave"}, rate=RateRules(per_s=1.0, burst=3, per="worker"))
    assert driven.running_offsets == [2, 3, 4]


def test_an_engine_without_rules_asks_for_no_turns() -> None:
    driven = Driven(ordering="key")
    ordering = driven.engine.partitions[ORDERS].ordering
    assert ordering is ordering.plain


ENDS = {
    "hold": Outcome.DONE,
    "copy": Outcome.MOVED,
    "leave": Outcome.EXPIRED,
    "drop": Outcome.EXPIRED,
    "finish": Outcome.FILTERED,
}

WARM_UP = 20
"""Quick calls, after which slices hold several records."""

WAYS = [
    {"ordering": ordering, **more}
    for ordering in ("unordered", "key", "partition")
    for more in (
        {},
        {"batch": BatchRules(max_records=4, min_records=2, max_wait_s=0.05)},
        {"rate": RateRules(per_s=200.0, burst=3, per="key")},
        {"rate": RateRules(per_s=200.0, burst=3, per="worker")},
    )
]


class Play:
    """Slots and a broker that do anything, and what happened to each record first."""

    def __init__(self, data: st.DataObject, way: dict[str, Any], keys: Sequence[bytes]):
        self.data = data
        offsets = st.integers(WARM_UP, WARM_UP + len(keys) - 1)
        self.script = data.draw(st.dictionaries(offsets, st.sampled_from([*ENDS])))
        retry = RetryRules(attempts=2, backoff_min_s=0.01, on_failure="block")
        self.driven = Driven(turns=[Scripted(self.script)], retry=retry, **way)
        self.left = the_left(self.driven)
        self.end_offset = WARM_UP + len(keys)
        self.first: list[int] = []
        self.called: set[int] = set()
        self.driven.deliver(*(Note(at, b"%d" % at) for at in range(WARM_UP)))
        while self.driven.committable < WARM_UP:
            self.driven.tick(1.0)
            for slice_ in list(self.driven.out):
                self.driven.finish(slice_, elapsed=1e-6)
        self.driven.deliver(*(Note(at, key) for at, key in enumerate(keys, WARM_UP)))

    def turn(self) -> None:
        driven = self.driven
        for failed in driven.published(0.02):
            self.starts(failed.message.offset())
            lost = self.data.draw(st.booleans())
            driven.copied(failed, PublishFailedError("lost") if lost else None)
        for slice_ in list(driven.out):
            offsets = [message.offset() for message in slice_.messages]
            way = self.data.draw(st.sampled_from(["run", "fail", "return", "leave"]))
            if way == "leave":
                continue
            if way == "return" and not slice_.is_batch:
                driven.take_back(slice_)
                driven.finish(slice_)
                continue
            for offset in offsets:
                self.called.add(offset)
                self.starts(offset)
            if way == "fail":
                driven.fail(slice_, *offsets)
            else:
                driven.finish(slice_)

    def starts(self, offset: int) -> None:
        if offset not in self.first:
            self.first.append(offset)

    def end(self) -> None:
        driven = self.driven
        for _ in range(500):
            for failed in driven.published(0.1):
                self.starts(failed.message.offset())
                driven.copied(failed)
            for slice_ in list(driven.out):
                for message in slice_.messages:
                    self.called.add(message.offset())
                    self.starts(message.offset())
                driven.finish(slice_)
            if driven.committable == self.end_offset:
                return


@pytest.mark.parametrize("way", WAYS, ids=str)
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_each_record_ends_as_decided_in_the_order_of_its_lane(
    way: dict[str, Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=10))
    play = Play(data, way, keys)
    for _ in range(data.draw(st.integers(0, 8))):
        play.turn()
    play.end()
    driven, mine = play.driven, range(WARM_UP, play.end_offset)
    assert driven.committable == play.end_offset
    assert driven.failing() == []
    assert driven.engine.partitions[ORDERS].bytes == driven.engine.budget.used == 0
    assert play.called == {at for at in mine if play.script.get(at, "hold") == "hold"}
    left = {offset: outcome for offset, outcome in play.left if offset in play.script}
    expected = {at: ENDS[turn] for at, turn in play.script.items() if turn in {"copy", "leave"}}
    assert {at: each for at, each in left.items() if at in expected} == expected
    if way["ordering"] != "unordered":
        for lane in (b"a", b"b") if way["ordering"] == "key" else (None,):
            firsts = [at for at in play.first if lane in (None, keys[at - WARM_UP])]
            assert firsts == sorted(firsts)


class Remembering(Scripted):
    """Remembers what has finished, and fails at one offset."""

    def __init__(self, fails_at: int):
        super().__init__({})
        self.finished_offsets: list[int] = []
        self._fails_at = fails_at

    def finished(self, partition: Partition, messages: Sequence[Message], *more: object) -> None:
        del partition, more
        self.finished_offsets += [message.offset() for message in messages]
        if self._fails_at in self.finished_offsets:
            raise LookupError("a bug of the rule")


def test_a_rule_learns_what_happened_beside_an_observer() -> None:
    rule, observer = Remembering(fails_at=-1), Remembering(fails_at=-1)
    driven = Driven(turns=[rule], slots=1)
    driven.engine.observe(observer)
    driven.deliver(Note(0), Note(1))
    driven.tick()
    driven.finish_all()
    assert rule.finished_offsets == observer.finished_offsets == [0, 1]


def test_an_exception_of_a_rule_is_not_kept_from_the_worker() -> None:
    driven = Driven(turns=[Remembering(fails_at=0)], slots=1)
    driven.deliver(Note(0))
    driven.tick()
    with pytest.raises(LookupError):
        driven.finish_all()


def test_a_rule_that_wants_no_reports_costs_none() -> None:
    driven = Driven(turns=[Scripted({})])
    assert driven.engine.observer is None
