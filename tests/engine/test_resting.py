"""Retry topics whose records only wait: no end of the process counts, and nothing starts unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from tests.engine.laddered import ENTRY, RETRIED_LATER, Laddered
from tests.engine.support import ORDERS, Note, note_of
from window_consumer.engine.commits.resting_partitions import REST_AFTER_S, WAKE_AHEAD_S
from window_consumer.engine.commits.start_offset import Found, resolve
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import HoldUntilReleased, Turn, TurnRule
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.protocols import Commit, CommittedOffset
from window_consumer.model.record import Message, TopicPartition

HASH = 77


class Life(Laddered):
    """One life of a process that reads one retry topic, and ends when nobody drives it any more."""

    lets_rest = True

    def __init__(
        self,
        committed: Commit | None = None,
        name: TopicPartition = RETRIED_LATER,
        turns: Iterable[TurnRule] = (),
        **rules: Any,
    ):
        super().__init__(owned=(), **rules)
        self.engine.decide_turns(turns)
        self.name = name
        self.committed = committed
        offset = (None, "") if committed is None else (committed.next_offset, committed.metadata)
        found = Found(name, CommittedOffset(*offset), (0, 1000), HASH)
        self.engine.on_assigned([resolve(found, "earliest").assigned], self.now)

    def go(self, seconds: float = 0.1, *, ack: bool = True) -> Decisions:
        """Take a turn; with ``ack`` the broker takes the commits."""
        decisions = self.tick(seconds)
        for commit in decisions.commit:
            if ack:
                self.committed = commit
                self.engine.on_committed({commit.name: None}, self.now)
        return decisions

    def until_out(self) -> list[int]:
        for _ in range(100):
            self.go()
            if self.out:
                break
        return self.running_offsets

    def bring(self, *copies: Note) -> Life:
        self.deliver(*copies, name=self.name)
        return self

    @property
    def ends(self) -> tuple[bool, int]:
        """What the broker knows: whether nothing is in progress, and how many unclean ends."""
        assert self.committed is not None
        note = note_of(self.committed)
        return note.clean, note.unclean_ends


def after_kills(kills: int, due_in: float, committed: Commit | None = None) -> Life:
    """Return the life after some that were killed while the first record waited."""
    for _ in range(kills):
        life = Life(committed)
        life.bring(life.copy(0 if committed is None else committed.next_offset, due_in=due_in))
        for _ in range(5):
            life.go()
        committed = life.committed
    return Life(committed)


def test_kills_while_the_first_record_waits_make_nobody_suspect() -> None:
    life = after_kills(5, due_in=9.0)
    assert life.ends == (True, 0)
    life.bring(*(life.copy(offset, due_in=0.0, key=b"%d" % offset) for offset in range(8)))
    assert len(life.until_out()) > 1
    assert life.engine.suspects.cases == {}


def test_kills_while_a_later_record_waits_make_nobody_suspect() -> None:
    life = Life()
    life.bring(life.copy(0, due_in=0.0), life.copy(1, due_in=14.0, key=b"other"))
    life.until_out()
    life.finish(life.out[0])
    for _ in range(70):
        life.go()
    assert life.committed is not None
    assert life.committed.next_offset == 1
    assert life.ends == (True, 0)
    again = after_kills(3, 9.0, life.committed)
    assert again.ends == (True, 0)


def test_nothing_of_a_resting_partition_starts_before_its_commit_is_acked() -> None:
    life = Life()
    life.go()
    assert life.ends == (True, 0)
    life.bring(life.copy(0, due_in=0.0))
    commits = life.go(ack=False).commit
    assert [note_of(each).clean for each in commits] == [False]
    for _ in range(5):
        assert not life.go(ack=False).commit
        assert life.out == []
    life.engine.on_committed({life.name: None}, life.now)
    assert life.until_out() == [0]


def test_nothing_of_a_source_starts_before_the_commit_that_it_is_in_use_is_acked() -> None:
    """A process that ends at once would otherwise seem to have stopped cleanly, each time."""
    life = Life(name=ORDERS)
    life.bring(life.copy(0, due_in=0.0))
    commits = life.go(ack=False).commit
    assert [note_of(each).clean for each in commits] == [False]
    assert life.go(ack=False).commit == []
    assert life.out == []
    life.engine.on_committed({ORDERS: None}, life.now)
    life.go()
    assert life.running_offsets == [0]


def test_a_source_starts_at_once_if_the_broker_knows_that_it_is_in_use() -> None:
    life = Life(name=ORDERS)
    life.go()
    assert life.committed is not None
    again = resolve(
        Found(ORDERS, CommittedOffset(0, life.committed.metadata), (0, 0), HASH), "earliest"
    ).assigned
    life.engine.on_lost([ORDERS], life.now)
    life.engine.on_assigned([again], life.now)
    life.bring(life.copy(0, due_in=0.0))
    life.go(ack=False)
    assert life.running_offsets == [0]


def test_a_refused_commit_is_made_again_and_nothing_starts_meanwhile() -> None:
    life = Life()
    life.go()
    life.bring(life.copy(0, due_in=0.0))
    refused = 0
    for _ in range(30):
        commits = life.go(ack=False).commit
        refused += len(commits)
        life.engine.on_committed(
            {each.name: CommitFailedError("loading") for each in commits}, life.now
        )
        assert life.out == []
    assert refused > 1
    assert life.until_out() == [0]


def test_a_record_on_which_the_process_ends_at_once_is_suspected_after_two_ends() -> None:
    committed = None
    for _ in range(2):
        life = Life(committed)
        life.bring(life.copy(0, due_in=0.0))
        assert life.until_out() == [0]
        assert life.ends[0] is False
        committed = life.committed
    life = Life(committed)
    life.bring(*(life.copy(offset, due_in=0.0, key=b"%d" % offset) for offset in range(8)))
    assert life.until_out() == [0]
    assert life.committed is not None
    assert note_of(life.committed).suspect == 0


def test_a_record_that_waits_is_not_late_for_the_commit() -> None:
    life = Life()
    life.bring(life.copy(0, due_in=9.0))
    life.go()
    while life.ends != (False, 0):
        life.go()
        assert life.now < 1009.0 - WAKE_AHEAD_S / 2
    life.tick(1009.0 - life.now)
    assert life.running_offsets == [0]


def test_a_partition_rests_again_some_seconds_after_its_last_call() -> None:
    life = Life()
    life.bring(life.copy(0, due_in=0.0))
    life.until_out()
    life.go(REST_AFTER_S + 1)
    assert life.ends == (False, 0), "a call is in progress"
    life.finish(life.out[0])
    for _ in range(10):
        life.go()
    assert life.ends == (True, 0)


def test_the_entry_topic_rests_and_wakes_like_a_level() -> None:
    life = Life(name=ENTRY)
    life.go()
    assert life.ends == (True, 0)
    life.bring(life.copy(0, due_in=0.0))
    assert life.until_out() == [0]


class HoldsAll(TurnRule):
    """Holds every record until it is released."""

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        del partition, now, wall_ms
        return {index: HoldUntilReleased() for index in range(len(messages))}


def test_records_that_a_rule_holds_let_their_partition_rest_until_one_is_released() -> None:
    life = Life(name=ENTRY, turns=[HoldsAll()])
    life.bring(life.copy(0, due_in=0.0), life.copy(1, due_in=0.0, key=b"other"))
    for _ in range(70):
        life.go()
    assert life.ends == (True, 0)
    life.engine.on_released(ENTRY, 1)
    assert life.go(ack=False).commit
    assert life.out == []
    life.engine.on_committed({ENTRY: None}, life.now)
    assert life.until_out() == [1]


@pytest.mark.parametrize("started", [True, False])
def test_an_end_with_a_call_begun_counts_beside_those_without(*, started: bool) -> None:
    life = Life()
    life.bring(life.copy(0, due_in=0.0))
    if started:
        life.until_out()
    for _ in range(3):
        life = Life(life.committed)
        life.bring(life.copy(0, due_in=9.0))
        life.go()
        life.go()
    assert life.ends == (True, int(started))
