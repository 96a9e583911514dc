"""A process that ends uncleanly, again and again: who is suspected, charged, and let go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, Note, note_of, notes
from tests.golden_texts import Golden
from window_consumer.engine.commits.commit_metadata import CommitNote, encode
from window_consumer.engine.commits.start_offset import Found, resolve
from window_consumer.engine.decisions import Assigned, Decisions
from window_consumer.engine.guards.crash_history import (
    FIRST_SUSPECTS,
    CrashHistory,
    UncleanExits,
    most_ends,
)
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.headers import LostHeaders, Reason
from window_consumer.model.protocols import Batch, Commit, CommittedOffset
from window_consumer.model.record import TopicPartition

HASH = 77
LOG_END = 1000


class Process(Driven):
    """One life of a process: begins with what is committed, ends when nobody drives it any more."""

    def __init__(self, committed: dict[TopicPartition, Commit], **rules: Any):
        super().__init__(names=(), **rules)
        self.committed = committed
        starts = [self._start(name, each) for name, each in committed.items()]
        self.engine.on_assigned(starts, self.now)

    def _start(self, name: TopicPartition, commit: Commit) -> Assigned:
        found = Found(
            name, CommittedOffset(commit.next_offset, commit.metadata), (0, LOG_END), HASH
        )
        return resolve(found, "earliest").assigned

    def go(self, *, ack: bool = True) -> Decisions:
        """Take a turn; with ``ack`` the broker takes the commits."""
        decisions = self.tick(0.1)
        for commit in decisions.commit:
            if ack:
                self.committed[commit.name] = commit
                self.engine.on_committed({commit.name: None}, self.now)
        return decisions

    def until_out(self, *, turns: int = 20) -> list[int]:
        """Take turns until something runs."""
        for _ in range(turns):
            self.go()
            if self.out:
                break
        return self.running_offsets

    @property
    def note(self) -> CommitNote:
        return note_of(self.committed[ORDERS])


def committed(offset: int = 0, **fields: Any) -> Commit:
    note = CommitNote(**{"next_offset": offset, "topic_hash": HASH, **fields})
    return Commit(ORDERS, offset, encode(note)[0])


def process(commit: Commit | None = None, count: int = 10, **rules: Any) -> Process:
    life = Process({ORDERS: commit or committed()}, **rules)
    life.deliver(*notes(*range(life.committed[ORDERS].next_offset, count)))
    return life


def after_two_ends(**fields: Any) -> Commit:
    """What a process finds that ended uncleanly at offset 0 for the second time."""
    return committed(unclean_ends=1, **fields)


def test_after_a_clean_end_everything_starts_at_once() -> None:
    life = process(committed(clean=True))
    life.tick()
    assert life.running_offsets
    assert life.engine.suspects.cases == {}


def test_a_start_after_a_clean_end_says_at_once_that_the_partition_is_in_use() -> None:
    life = process(committed(clean=True))
    life.go()
    assert not life.note.clean


def test_nothing_starts_before_the_count_of_unclean_ends_is_acked() -> None:
    life = process()
    decisions = life.go(ack=False)
    assert life.out == []
    assert note_of(decisions.commit[0]).unclean_ends == 1
    life.engine.on_committed({ORDERS: None}, life.now)
    life.go()
    assert len(life.running_offsets) > 1


def test_a_refused_count_is_sent_again_and_nothing_starts_meanwhile() -> None:
    life = process()
    for _ in range(5):
        assert life.go(ack=False).commit
        life.engine.on_committed({ORDERS: CommitFailedError("loading")}, life.now)
        assert life.out == []
    assert life.until_out()


def test_one_unclean_end_slows_nothing_down() -> None:
    life = process()
    life.until_out()
    assert life.engine.suspects.cases == {}
    life.finish_all()
    assert life.committable == 10


def test_ends_at_the_same_place_add_up() -> None:
    commit = committed()
    for count in range(1, 5):
        life = process(commit)
        life.go()
        commit = life.committed[ORDERS]
        assert note_of(commit).unclean_ends == count


def test_a_place_that_has_moved_begins_to_count_anew() -> None:
    life = process()
    life.until_out()
    life.finish_all()
    life.go()
    assert life.note.next_offset == 10
    assert life.note.unclean_ends == 0


def given_up(life: Process) -> CommitNote:
    life.engine.on_revoking([ORDERS], life.now)
    commits, _ = life.engine.on_revoked([ORDERS], life.now)
    return note_of(commits[0])


@pytest.mark.parametrize("ends", [1, 2])
def test_a_clean_end_after_which_nothing_is_suspected_resets_the_count(ends: int) -> None:
    """All of its records have failed, and are to be called again: its place has not moved."""
    life = process(committed(unclean_ends=ends - 1), count=LOG_END)
    for _ in range(10 * LOG_END):
        life.go()
        while life.out:
            life.fail(life.out[0], *(each.offset() for each in life.out[0].messages))
        if life.engine.counters.delivered and not life.engine.suspects.cases:
            break
    life.until_out()
    while life.out:
        life.fail(life.out[0], *(each.offset() for each in life.out[0].messages))
    assert given_up(life) == CommitNote(0, HASH, clean=True)


@pytest.mark.parametrize("ends", [1, 2])
def test_a_clean_end_before_anything_was_tried_forgives_nobody(ends: int) -> None:
    """Who comes back after a crash makes the others share anew: that proves nothing."""
    life = process(committed(unclean_ends=ends - 1))
    note = given_up(life)
    assert (note.clean, note.unclean_ends) == (True, ends)


def test_a_clean_end_while_suspects_are_left_forgives_nobody() -> None:
    life = process(after_two_ends())
    life.until_out()
    life.fail(life.out[0], 0)
    note = given_up(life)
    assert (note.clean, note.unclean_ends) == (True, 2)


def test_giving_up_with_a_call_running_charges_nobody_and_forgives_nobody() -> None:
    life = process(after_two_ends())
    life.until_out()
    life.claim(life.out[0])
    assert life.note.suspect == 0
    life.engine.on_revoking([ORDERS], life.now)
    commits, outlived = life.engine.on_revoked([ORDERS], life.now)
    assert outlived
    note = note_of(commits[0])
    assert (note.clean, note.suspect, note.unclean_ends, note.crashes) == (True, None, 2, ())


def test_after_two_ends_each_record_waits_for_the_ack_of_its_own_name() -> None:
    life = process(after_two_ends())
    life.go()
    decisions = life.go(ack=False)
    assert note_of(decisions.commit[0]).suspect == 0
    for _ in range(3):
        assert life.go(ack=False).commit == []
        assert life.out == []
    life.engine.on_committed({ORDERS: None}, life.now)
    life.go()
    assert life.running_offsets == [0]
    for _ in range(3):
        life.go()
        assert life.running_offsets == [0]


def test_a_name_that_was_refused_lets_nothing_start() -> None:
    life = process(after_two_ends())
    life.go()
    life.go(ack=False)
    life.engine.on_committed({ORDERS: CommitFailedError("rebalance")}, life.now)
    decisions = life.go(ack=False)
    assert life.out == []
    assert note_of(decisions.commit[0]).suspect == 0


def test_when_the_suspects_have_passed_nobody_is_named_and_all_slots_work_again() -> None:
    life = process(after_two_ends(), count=100, slots=8)
    for offset in range(FIRST_SUSPECTS):
        assert life.until_out() == [offset]
        life.finish(life.out[0])
    while not life.out:
        decisions = life.go()
    assert decisions.commit == []
    life.go()
    assert life.note.suspect is None
    assert len(life.running_offsets) > 1


def test_the_process_that_ends_after_all_had_passed_suspects_four_times_as_many() -> None:
    life = process(after_two_ends(), count=100)
    while life.engine.suspects.cases:
        life.until_out()
        life.finish(life.out[0])
        life.go()
    again = process(life.committed[ORDERS], count=1000)
    (case,) = again.engine.suspects.cases.values()
    assert case.crash_history.limit == 4 * FIRST_SUSPECTS


def test_a_record_that_came_after_the_start_is_no_suspect() -> None:
    life = process(after_two_ends(), count=2)
    life.engine.suspects.cases[life.engine.partitions[ORDERS]].crash_history.log_end = 2
    for _ in range(2):
        life.until_out()
        life.finish(life.out[0])
    life.go()
    life.deliver(*notes(*range(2, 20)))
    life.until_out()
    assert len(life.running_offsets) > 1


@pytest.mark.parametrize("count", [1, 2, 7])
def test_an_idle_partition_is_never_suspicious(count: int) -> None:
    found = Found(
        ORDERS, CommittedOffset(5, committed(5, unclean_ends=count).metadata), (0, 5), HASH
    )
    assert resolve(found, "earliest").assigned.unclean is None


def test_only_the_named_record_is_charged() -> None:
    life = process(after_two_ends())
    life.until_out()
    next_life = process(life.committed[ORDERS])
    next_life.go()
    assert next_life.note.crashes == ((0, 1),)
    assert next_life.note.suspect is None


def test_an_end_with_nobody_named_charges_nobody() -> None:
    life = process(after_two_ends())
    life.go()
    assert life.note.suspect is None
    next_life = process(life.committed[ORDERS])
    next_life.go()
    assert next_life.note.crashes == ()


def test_a_record_on_which_the_process_ended_crash_attempts_times_leaves_uncalled(
    golden: Golden,
) -> None:
    rules = RetryRules(crash_attempts=2)
    life = process(after_two_ends(), retry=rules)
    for _ in range(2):
        assert life.until_out() == [0]
        life = process(life.committed[ORDERS], retry=rules)
    life.go()
    life.go()
    (failed,) = life.last_published
    assert failed.message.offset() == 0
    assert failed.reason is Reason.CRASHED
    assert failed.attempts == 2
    fault = failed.failure.fault
    golden(fault.message)
    assert fault.error_class == "window_consumer.model.errors.ProcessCrashedError"
    assert fault.stack == ""
    life.copied(failed)
    assert life.until_out() == [1]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_the_lane_of_a_crashed_record_waits_for_the_ack_of_its_copy(ordering: str) -> None:
    life = Process({ORDERS: committed(unclean_ends=2, crashes=((0, 3),))}, ordering=ordering)
    life.deliver(*notes(0, 1, 2, keys=[b"a", b"a", b"a"]))
    life.go()
    life.go()
    (failed,) = life.last_published
    for _ in range(5):
        life.go()
        assert life.out == []
    life.copied(failed)
    assert life.until_out() == [1]


def test_a_crashed_record_can_be_dropped() -> None:
    crashed = committed(unclean_ends=2, crashes=((0, 3),))
    life = process(crashed, retry=RetryRules(when_spent="drop"))
    assert life.until_out() == [1]
    assert life.engine.counters.dropped == 1


def test_a_crashed_record_can_stop_the_worker_and_the_next_start_calls_it_again() -> None:
    rules = RetryRules(when_spent="stop")
    life = process(committed(unclean_ends=2, crashes=((0, 3),)), retry=rules)
    life.go()
    stop = life.go().stop
    assert stop is not None
    assert "orders[0]@0" in str(stop)
    assert life.out == []
    next_life = process(life.engine.on_revoked([ORDERS], life.now)[0][0], retry=rules)
    assert 0 in next_life.until_out()


def test_a_block_does_not_keep_a_crashed_record() -> None:
    crashed = committed(unclean_ends=2, crashes=((0, 3),))
    life = process(crashed, retry=RetryRules(on_failure="block"))
    life.go()
    life.go()
    assert [failed.reason for failed in life.last_published] == [Reason.CRASHED]


def test_a_crashed_record_whose_headers_are_lost_leaves_for_that() -> None:
    """An earlier version died of it, and the group stood still."""
    life = Process({ORDERS: committed(unclean_ends=2, crashes=((0, 3),))})
    batch = Batch.of(ORDERS, [Note(0, headers=LostHeaders.new()), *notes(1)])
    batch.unreadable = [0]
    life.engine.on_records(batch, life.now, life.wall_ms)
    published = []
    for _ in range(5):
        life.go()
        published += life.last_published
    assert [failed.reason for failed in published] == [Reason.DECODE]
    assert life.until_out() == [1]


def test_a_charged_record_that_passes_is_not_charged_with_later_ends() -> None:
    life = process(committed(unclean_ends=2, crashes=((0, 2),)))
    assert life.until_out() == [0]
    life.finish(life.out[0])
    assert life.until_out() == [1]
    next_life = process(life.committed[ORDERS])
    next_life.go()
    assert next_life.note.crashes == ((1, 1),)


def test_a_further_call_is_alone_and_named_too() -> None:
    life = process(after_two_ends(), count=2, retry=RetryRules(backoff_min_s=0.0))
    assert life.until_out() == [0]
    life.fail(life.out[0], 0)
    assert life.until_out() == [1]
    life.finish(life.out[0])
    assert life.until_out() == [0]
    assert life.note.suspect == 0
    assert life.out[0].call.attempt == 2


def test_retries_go_on_when_the_suspects_have_passed() -> None:
    life = process(after_two_ends(), count=FIRST_SUSPECTS, retry=RetryRules(attempts=1000))
    for _ in range(FIRST_SUSPECTS):
        life.until_out()
        life.fail(life.out[0], *life.running_offsets)
    for _ in range(500):
        life.go()
        for slice_ in list(life.out):
            life.finish(slice_)
    assert life.committable == FIRST_SUSPECTS
    assert life.failing() == []


def test_a_charged_record_runs_while_nothing_else_of_the_worker_does() -> None:
    other = Commit(OTHERS, 0, committed(clean=True).metadata)
    life = Process({ORDERS: committed(unclean_ends=2, crashes=((0, 1),)), OTHERS: other})
    life.deliver(*notes(*range(5)))
    life.deliver(*notes(*range(5)), name=OTHERS)
    # What runs before the record is found goes on; nothing else begins.
    while not any(slice_.partition.name == ORDERS for slice_ in life.out):
        life.go()
        for slice_ in [each for each in life.out if each.partition.name == OTHERS]:
            life.finish(slice_)
    assert [slice_.partition.name for slice_ in life.out] == [ORDERS]
    life.deliver(*notes(*range(5, 10)), name=OTHERS)
    for _ in range(5):
        life.go()
    assert [slice_.partition.name for slice_ in life.out] == [ORDERS]
    life.finish(life.out[0])
    life.until_out()
    assert any(slice_.partition.name == OTHERS for slice_ in life.out)


def test_two_charged_records_of_two_partitions_are_never_named_at_once() -> None:
    crashed = committed(unclean_ends=2, crashes=((0, 1),))
    life = Process({ORDERS: crashed, OTHERS: Commit(OTHERS, 0, crashed.metadata)})
    life.deliver(*notes(*range(3)))
    life.deliver(*notes(*range(3)), name=OTHERS)
    for _ in range(2):
        life.until_out()
        assert len(life.out) == 1
        named = [note_of(each).suspect for each in life.committed.values()]
        assert sorted(named, key=str) == [0, None]
        life.finish(life.out[0])


def test_a_charged_record_that_hangs_does_not_hold_the_worker_for_ever() -> None:
    other = Commit(OTHERS, 0, committed(clean=True).metadata)
    life = Process({ORDERS: committed(unclean_ends=2, crashes=((0, 1),)), OTHERS: other})
    life.deliver(*notes(0))
    assert life.until_out() == [0]
    life.deliver(*notes(*range(5)), name=OTHERS)
    life.tick(59.0)
    assert life.running_offsets == [0]
    life.tick(2.0)
    assert any(slice_.partition.name == OTHERS for slice_ in life.out)


def test_a_record_charged_with_three_ends_by_kills_of_others_is_innocent() -> None:
    """Whatever ends the process while nobody is named alone costs no record anything."""
    commit = committed()
    for _ in range(20):
        life = process(commit)
        life.go()
        commit = life.committed[ORDERS]
    assert note_of(commit).crashes == ()


def test_what_finished_before_the_end_is_no_suspect() -> None:
    life = process(after_two_ends(finished=(range(1, 4),)))
    assert life.until_out() == [0]
    life.finish(life.out[0])
    assert life.until_out() == [4]


def test_the_charges_survive_a_clean_end_until_their_record_is_finished() -> None:
    life = process(committed(unclean_ends=2, crashes=((0, 2),)))
    life.go()
    commits, _ = life.engine.on_revoked([ORDERS], life.now)
    next_life = process(commits[0])
    assert next_life.until_out() == [0]
    assert next_life.note.suspect == 0
    next_life.finish(next_life.out[0])
    next_life.until_out()
    next_life.finish_all()
    next_life.go()
    assert next_life.note.crashes == ()


def test_the_record_leaves_after_as_many_ends_as_check_says() -> None:
    window = 2 * FIRST_SUSPECTS
    fewest, most = most_ends(3, 4, window)
    assert (fewest, most) == (5, 6)
    for culprit, ends in ((3, fewest), (window - 1, most)):
        commit = committed(clean=True)
        ended = -1
        gone = False
        while not gone:
            ended += 1
            life = process(commit, count=window, window_cells=2, cell_records=window)
            gone = _run_until(life, culprit)
            commit = life.committed[ORDERS]
        assert ended == ends


def _run_until(life: Process, culprit: int) -> bool:
    """Run until the process ends on a record; True where that has left."""
    for _ in range(2000):
        life.go()
        if any(failed.message.offset() == culprit for failed in life.last_published):
            return True
        if culprit in life.running_offsets:
            return False
        for slice_ in list(life.out):
            life.finish(slice_)
    raise AssertionError("neither ended nor left")


def test_a_start_says_what_is_suspected_and_why(golden: Golden) -> None:
    def warning(**fields: Any) -> str:
        commit = committed(40, **fields)
        found = Found(ORDERS, CommittedOffset(40, commit.metadata), (0, LOG_END), HASH)
        return resolve(found, "earliest").warning

    assert warning() == ""
    golden(warning(unclean_ends=1))
    assert "ran alone (times): 41 (2), 50 (1)" in warning(
        unclean_ends=3, suspect=41, crashes=((41, 1), (50, 1))
    )
    golden(warning(clean=True, crashes=((41, 1),)))


def test_a_name_counts_as_known_only_while_no_other_commit_is_on_its_way() -> None:
    crash_history = CrashHistory(UncleanExits(2, 10, 0, ()), 0, 100, 1, now=0.0)
    crash_history.wanted = 3
    crash_history.sending(0, (), 0.0, clean=False)
    crash_history.acked()
    assert crash_history.names(3)
    crash_history.wanted = None
    crash_history.sending(0, (), 0.1, clean=False)
    crash_history.wanted = 3
    assert not crash_history.names(3)
    assert crash_history.awaits_commit


def test_a_clean_end_forgives_nothing_where_a_batch_has_only_waited_for_company() -> None:
    life = process(batch=BatchRules(20, 20, 50.0))
    for _ in range(5):
        life.go()
    assert (life.out, life.engine.suspects.cases) == ([], {})
    life.engine.on_revoking([ORDERS], life.now)
    commits, _ = life.engine.on_revoked([ORDERS], life.now)
    assert note_of(commits[0]).unclean_ends == 1
