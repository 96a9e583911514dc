"""A lane and its copies have one owner: copies wait for the partition that they came from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.laddered import ENTRY, LEVELS, RETRIED, RETRIED_LATER, Laddered
from tests.engine.support import ORDERS, Note, note_of, spent_after
from window_consumer.engine.decisions import Assigned, OwnerAway
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.guards.crash_history import UncleanExits
from window_consumer.engine.scheduling.lane_ownership import AGAIN_S, WORTH_SAYING_S
from window_consumer.model.record import TopicPartition

TWICE = spent_after(1, levels=LEVELS, attempts_per_level=2)
ELSEWHERE = TopicPartition("orders", 1)
LARGER = TopicPartition(RETRIED.topic, 3)


def with_a_copy(*, ordering: str = "key", name: TopicPartition = RETRIED) -> Laddered:
    """Return an Engine that owns a copy which is due, and not the partition of its source."""
    driven = Laddered(owned=[name], ordering=ordering)
    driven.deliver(driven.copy(5, due_in=0.0, partition=name.partition), name=name)
    return driven


def with_a_running_copy(**rules: Any) -> Laddered:
    """Return an Engine that owns two copies of one lane, of which one runs, and their home."""
    driven = Laddered(ordering="key", **rules)
    driven.deliver(driven.copy(5, due_in=0.0), driven.copy(6, due_in=0.0), name=RETRIED)
    driven.tick()
    assert driven.claim(driven.out[0])
    return driven


def with_a_failed_copy(**rules: Any) -> Laddered:
    """Return an Engine that owns a copy, which has failed once, and its home."""
    driven = Laddered(ordering="key", retry=TWICE, **rules)
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.tick()
    driven.fail(driven.out[0], 5)
    return driven


# ---- who waits, and for what


@pytest.mark.parametrize("name", [RETRIED, ENTRY], ids=["level", "entry"])
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_copy_waits_until_the_partition_of_its_source_is_ours(
    ordering: str, name: TopicPartition
) -> None:
    driven = with_a_copy(ordering=ordering, name=name)
    assert driven.tick(1.0).dispatch == []
    assert driven.engine.partitions[name].window.cells == []
    driven.assign(ORDERS)
    driven.tick()
    assert driven.running_offsets == [5]


def test_the_same_number_of_another_topic_is_no_home() -> None:
    driven = with_a_copy()
    driven.assign(TopicPartition("returns", 0), RETRIED_LATER)
    assert driven.tick(1.0).dispatch == []


def test_copies_without_an_order_wait_for_nobody() -> None:
    driven = with_a_copy(ordering="unordered")
    driven.tick()
    assert driven.running_offsets == [5]


def test_a_copy_whose_partition_moves_on_as_well_does_not_start() -> None:
    driven = with_a_copy()
    driven.engine.on_revoking([RETRIED], driven.now)
    driven.engine.on_revoked([RETRIED], driven.now)
    driven.assign(ORDERS)
    assert driven.tick(1.0).dispatch == []


def test_what_waits_for_its_home_keeps_memory_bounded() -> None:
    driven = Laddered(owned=[RETRIED], ordering="key", window_cells=2, cell_records=3)
    driven.deliver(*(driven.copy(n, due_in=0.0) for n in range(30)), name=RETRIED)
    assert driven.tick(0.1).pause == [RETRIED]
    driven.assign(ORDERS)
    driven.tick()
    driven.finish_all()
    assert driven.engine.partitions[RETRIED].window.next_offset == 30


def test_a_home_that_is_taken_and_comes_back_changes_nothing() -> None:
    driven = with_a_running_copy()
    for _ in range(3):
        driven.engine.on_revoking([ORDERS], driven.now)
        driven.engine.on_revoked([ORDERS], driven.now)
        driven.assign(ORDERS)
        assert driven.tick(0.1).dispatch == []
    driven.finish_all()
    assert driven.engine.partitions[RETRIED].window.next_offset == 7


# ---- partitions without a home


def test_copies_whose_source_has_no_such_partition_wait_for_nobody() -> None:
    driven = with_a_copy(name=LARGER)
    driven.engine.on_topics({"orders": 4, RETRIED.topic: 4}, driven.now)
    assert driven.tick(1.0).dispatch == []
    driven.engine.on_topics({"orders": 3, RETRIED.topic: 4}, driven.now)
    driven.tick()
    assert driven.running_offsets == [5]


def test_copies_whose_source_is_not_read_wait_for_nobody() -> None:
    driven = with_a_copy()
    driven.engine.on_topics({RETRIED.topic: 4}, driven.now)
    driven.tick()
    assert driven.running_offsets == [5]


def test_an_old_count_says_nothing_of_a_partition_that_is_new() -> None:
    driven = with_a_copy(name=LARGER)
    driven.engine.on_topics({"orders": 3, RETRIED.topic: 3}, driven.now)
    assert driven.tick(1.0).dispatch == []


def test_a_source_that_grows_calls_its_copies_home() -> None:
    driven = with_a_copy(name=LARGER)
    driven.engine.on_topics({"orders": 3, RETRIED.topic: 4}, driven.now)
    driven.engine.on_topics({"orders": 4, RETRIED.topic: 4}, driven.now)
    assert driven.tick(1.0).dispatch == []


# ---- a home that is given up


def test_giving_up_a_home_waits_for_the_copies_that_run_and_starts_no_other() -> None:
    driven = with_a_running_copy()
    driven.engine.on_revoking([ORDERS], driven.now)
    assert driven.engine.work.busy([ORDERS])
    driven.finish(driven.out[0])
    assert not driven.engine.work.busy([ORDERS])
    assert driven.tick(0.1).dispatch == []
    assert driven.engine.on_revoked([ORDERS], driven.now)[1] == []
    assert driven.tick(1.0).dispatch == []
    driven.assign(ORDERS)
    driven.tick()
    assert driven.running_offsets == [6]


def test_giving_up_a_home_does_not_wait_for_copies_of_other_partitions() -> None:
    driven = Laddered(owned=[ORDERS, RETRIED], ordering="key")
    elsewhere = [TopicPartition(topic, 1) for topic in ("orders", RETRIED.topic)]
    driven.assign(*elsewhere)
    driven.deliver(driven.copy(5, due_in=0.0), name=elsewhere[1])
    driven.tick()
    driven.claim(driven.out[0])
    driven.engine.on_revoking([ORDERS], driven.now)
    assert not driven.engine.work.busy([ORDERS])


def test_a_copy_that_outlives_its_home_is_named_and_its_result_counts() -> None:
    driven = with_a_running_copy()
    driven.engine.on_revoking([ORDERS], driven.now)
    (outlived,) = driven.engine.on_revoked([ORDERS], driven.now)[1]
    assert (outlived.name, outlived.offset, outlived.key) == (RETRIED, 5, b"k")
    assert outlived.counts
    (slice_,) = driven.out
    assert not slice_.call.cancelled
    driven.finish(slice_)
    assert driven.engine.partitions[RETRIED].window.open == 1


def test_a_copy_that_is_given_up_with_its_home_is_named_once() -> None:
    driven = with_a_running_copy()
    both = [ORDERS, RETRIED]
    driven.engine.on_revoking(both, driven.now)
    (outlived,) = driven.engine.on_revoked(both, driven.now)[1]
    assert not outlived.counts
    assert driven.out[0].call.cancelled


def test_a_home_that_is_lost_takes_back_what_has_not_started() -> None:
    driven = Laddered(ordering="key", slots=1)
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.tick()
    assert driven.engine.on_lost([ORDERS], driven.now) == []
    assert driven.claim(driven.out[0]) == []
    driven.finish(driven.out[0])
    assert driven.tick(1.0).dispatch == []
    driven.assign(ORDERS)
    driven.tick()
    assert driven.running_offsets == [5]


# ---- records that were called before, and suspects


def test_the_next_call_of_a_copy_waits_for_its_home_too() -> None:
    driven = with_a_failed_copy()
    driven.engine.on_revoking([ORDERS], driven.now)
    driven.engine.on_revoked([ORDERS], driven.now)
    assert driven.tick(10.0).dispatch == []
    assert driven.tick(10.0).dispatch == []
    driven.assign(ORDERS)
    driven.tick()
    assert driven.running_offsets == [5]
    assert driven.out[0].call.attempt == 2


def test_the_next_call_of_a_copy_that_has_not_started_is_taken_back() -> None:
    driven = with_a_failed_copy()
    driven.tick(10.0)
    driven.engine.on_revoking([ORDERS], driven.now)
    assert driven.claim(driven.out[0]) == []
    driven.finish(driven.out[0])
    driven.engine.on_revoked([ORDERS], driven.now)
    driven.assign(ORDERS)
    driven.tick()
    assert driven.running_offsets == [5]
    assert driven.engine.counters.retried == 1


def test_an_open_breaker_does_not_probe_with_a_copy_that_is_away() -> None:
    rules = BreakerRules(min_calls=1, cool_down_s=1.0)
    driven = with_a_failed_copy(breaker=rules)
    driven.tick()
    driven.engine.on_lost([ORDERS], driven.now)
    for _ in range(5):
        assert driven.tick(10.0).dispatch == []


def test_a_call_that_waited_for_its_home_is_made_once() -> None:
    driven = with_a_failed_copy(slots=8)
    for _ in range(3):
        driven.engine.on_lost([ORDERS], driven.now)
        driven.tick(10.0)
        driven.assign(ORDERS)
        driven.tick()
    claimed = [driven.claim(slice_) for slice_ in driven.out]
    assert [message.offset() for messages in claimed for message in messages] == [5]


class Suspected(Laddered):
    """An Engine that owns a copy on which the process has ended once, and its home."""

    def __init__(self) -> None:
        super().__init__(owned=[ORDERS, ELSEWHERE], ordering="key")
        ends = UncleanExits(ends=1, log_end=100, crashes=((5, 1),))
        copies = Assigned(RETRIED, 5, committed=(5, ""), unclean=ends)
        self.engine.on_assigned([copies], self.now)
        self.deliver(self.copy(5, due_in=0.0), name=RETRIED)
        self._named: int | None = None

    def go(self, *, ack_names: bool = True) -> None:
        """Take turns; the broker takes the commits, but maybe not those that name a suspect."""
        for _ in range(4):
            for commit in self.tick(1.0).commit:
                if commit.name == RETRIED:
                    self._named = note_of(commit).suspect
                if ack_names or note_of(commit).suspect is None:
                    self.engine.on_committed({commit.name: None}, self.now)

    def named(self) -> int | None:
        """Return whom the last commit of the copies' partition has named."""
        return self._named


def test_a_suspect_that_is_away_is_not_named_and_does_not_hold_the_worker() -> None:
    driven = Suspected()
    driven.go(ack_names=False)
    assert driven.named() == 5
    driven.engine.on_lost([ORDERS], driven.now)
    driven.engine.on_committed({RETRIED: None}, driven.now)
    driven.deliver(Note(0, b"k", partition=1), name=ELSEWHERE)
    driven.go()
    assert [each.partition.name for each in driven.out] == [ELSEWHERE]
    assert driven.named() is None
    driven.finish_all()
    driven.assign(ORDERS)
    driven.go()
    assert driven.running_offsets == [5]
    assert driven.named() == 5


def test_a_charged_suspect_whose_home_is_somebody_elses_waits_for_nothing_else() -> None:
    driven = Suspected()
    driven.tick()
    driven.engine.on_lost([ORDERS], driven.now)
    driven.go()
    driven.deliver(Note(0, b"k", partition=1), name=ELSEWHERE)
    driven.tick()
    assert [each.partition.name for each in driven.out] == [ELSEWHERE]


def test_a_suspect_that_was_taken_back_is_named_before_it_starts() -> None:
    driven = Suspected()
    driven.go()
    (slice_,) = driven.out
    driven.engine.on_lost([ORDERS], driven.now)
    driven.finish(slice_)
    driven.go()
    assert driven.named() is None
    driven.assign(ORDERS)
    driven.go(ack_names=False)
    assert driven.out == []
    assert driven.named() == 5


# ---- saying so


def test_copies_that_wait_for_long_are_reported_now_and_then() -> None:
    driven = with_a_copy()
    assert driven.tick(WORTH_SAYING_S / 2).away == []
    assert driven.tick(WORTH_SAYING_S / 2).away == [
        OwnerAway(RETRIED, ORDERS, copies=1, seconds=WORTH_SAYING_S)
    ]
    assert driven.tick(AGAIN_S - 1.0).away == []
    assert len(driven.tick(1.0).away) == 1
    driven.assign(ORDERS)
    assert driven.tick(AGAIN_S).away == []


def test_copies_that_are_given_up_are_not_reported_any_more() -> None:
    driven = with_a_running_copy()
    driven.engine.on_lost([ORDERS], driven.now)
    driven.tick(1.0)
    driven.engine.on_lost([RETRIED], driven.now)
    assert driven.tick(WORTH_SAYING_S).away == []


def test_copies_that_are_not_due_are_not_reported() -> None:
    driven = Laddered(owned=[RETRIED_LATER], ordering="key")
    driven.deliver(driven.copy(5, due_in=WORTH_SAYING_S + 2), name=RETRIED_LATER)
    assert driven.tick(WORTH_SAYING_S).away == []


def test_a_window_that_waits_for_its_home_does_not_count_as_hovering() -> None:
    driven = with_a_running_copy(hover_s=5.0)
    driven.engine.on_lost([ORDERS], driven.now)
    driven.finish(driven.out[0])
    for _ in range(5):
        assert driven.tick(10.0).hovering == []
