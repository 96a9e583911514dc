"""The table of a pool's children: which child gets which slice, without processes or threads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, field

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, failure, notes
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import (
    LifespanError,
    ProcessDiedError,
    RunError,
    StalledError,
    StartStoppedError,
    UsageError,
    WindowConsumerError,
    WorkerStoppedError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.calls.coroutine_calls import INTERRUPTED
from window_consumer.runtime.pools.processes.child_actions import (
    Action,
    Complete,
    EndChild,
    KillChild,
    Log,
    Post,
    StartChild,
    StopWorker,
)
from window_consumer.runtime.pools.processes.child_main import (
    ChildBroken,
    ChildLoaded,
    Finished,
    Ready,
)
from window_consumer.runtime.pools.processes.child_slot import STUCK_S, ProcessPoolRules, SlotState
from window_consumer.runtime.pools.processes.child_table import ChildTable
from window_consumer.runtime.pools.processes.remote_batch import RemoteBatch
from window_consumer.runtime.pools.processes.remote_slice import RemoteSlice
from window_consumer.runtime.pools.processes.shared_memory import SharedSlots


@define
class Played:
    """A table whose children the test plays."""

    table: ChildTable
    now: float = 1000.0
    memory: dict[int, SharedSlots] = field(factory=dict)
    posted: dict[int, list[Post]] = field(factory=dict)
    completed: list[Slice] = field(factory=list)

    def actions(self) -> list[Action]:
        """Return what the table wants done besides posts and completions, which are kept."""
        rest: list[Action] = []
        for action in self.table.take_actions():
            if isinstance(action, Post):
                self.posted[action.slot].append(action)
            elif isinstance(action, Complete):
                self.completed.append(action.slice_)
            else:
                rest.append(action)
        return rest

    def spawn(self, slot: int) -> None:
        self.memory[slot], self.posted[slot] = SharedSlots(), []
        self.table.on_spawned(slot, 100 + slot, self.memory[slot].shared_slots, self.now)

    def ready(self, slot: int) -> list[Action]:
        self.spawn(slot)
        self.table.on_message(slot, ChildLoaded(), self.now)
        self.table.on_message(slot, Ready(()), self.now)
        return self.actions()

    def submit(self, *offsets: int, is_batch: bool = False) -> RemoteSlice:
        slice_ = Slice(Driven().engine.partitions[ORDERS], notes(*offsets), list(offsets), 10)
        slice_.is_batch = is_batch
        remote_slice = RemoteBatch(slice_) if is_batch else RemoteSlice(slice_)
        self.table.submit(remote_slice, self.now)
        assert self.actions() == []
        return remote_slice

    def begin(self, slot: int, records: int = 1) -> None:
        """Let a child begin the first records of its oldest slice."""
        shared_slot = self.memory[slot].shared_slots[self.posted[slot][0].shared_slot]
        assert shared_slot.take_whole()
        for number in range(records):
            assert shared_slot.tokens.take(False)
            if number:
                shared_slot.over.add()

    def finish(self, slot: int) -> list[Action]:
        """Let a child finish its oldest slice."""
        self.table.on_message(slot, Finished(self.posted[slot].pop(0).serial, 0.25), self.now)
        return self.actions()

    def tick(self, slot: int) -> float | None:
        timeout_s = self.table.on_tick(slot, self.now)
        assert self.actions() == []
        return timeout_s

    def exit(self, slot: int, end: str = "was killed by SIGKILL") -> list[Action]:
        self.table.on_exit(slot, end, self.now)
        self.memory.pop(slot).close()
        return self.actions()

    def use(self, slots: int) -> list[Action]:
        self.table.use(slots, self.now)
        return self.actions()

    def offsets(self, slot: int) -> list[list[int]]:
        """Return the records of each slice that a child got and has not finished."""
        return [[message.offset() for message in post.messages] for post in self.posted[slot]]


@pytest.fixture
def play() -> Iterator[Any]:
    made: list[Played] = []

    def play(slots: int, *, ready: bool = True, **rules: Any) -> Played:
        played = Played(ChildTable("w", slots, ProcessPoolRules(**rules)))
        made.append(played)
        played.table.start()
        assert played.actions() == [StartChild(slot, 0.0) for slot in range(slots)]
        for slot in range(slots if ready else 0):
            assert played.ready(slot) == []
        return played

    yield play
    for played in made:
        for memory in played.memory.values():
            memory.close()


def events(actions: list[Action]) -> list[LogEvent]:
    return [action.event for action in actions if isinstance(action, Log)]


def without_logs(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, Log)]


def test_an_idle_child_gets_a_slice_before_it_is_queued_and_the_rest_waits(play: Any) -> None:
    it = play(2)
    for offset in range(5):
        it.submit(offset)
    assert (it.offsets(0), it.offsets(1)) == ([[0], [2]], [[1], [3]])
    it.begin(1)
    it.finish(1)
    assert it.offsets(1) == [[3], [4]]
    assert [slice_.elapsed for slice_ in it.completed] == [0.25]


def test_what_is_queued_behind_one_record_for_long_goes_to_an_idle_child(play: Any) -> None:
    it = play(2)
    first, _, behind = it.submit(0, 1), it.submit(2), it.submit(3)
    it.begin(0)
    it.begin(1)
    it.finish(1)
    assert it.offsets(1) == [[3]]
    assert it.table.queue.slot_of(behind) is it.table.slots[1]
    assert it.table.queue.slot_of(first) is it.table.slots[0]
    it.finish(0)  # what was withdrawn is not finished here
    assert [slice_.messages[0].offset() for slice_ in it.completed] == [2, 0]


def test_nothing_is_queued_behind_a_record_that_takes_long_until_it_is_over(play: Any) -> None:
    it = play(1)
    it.submit(0, 1)
    it.begin(0)
    assert it.tick(0) is None
    behind = it.submit(2)
    assert it.tick(0) == pytest.approx(STUCK_S)
    it.now += STUCK_S / 2
    assert it.tick(0) == pytest.approx(STUCK_S / 2)
    it.memory[0].shared_slots[it.posted[0][0].shared_slot].tokens.take(False)  # it gets on
    assert it.tick(0) == pytest.approx(STUCK_S)
    it.now += STUCK_S
    assert it.tick(0) is None
    assert (behind.waits, it.table.queue.slot_of(behind)) == (True, None)
    assert it.offsets(0) == [[0, 1], [2]]
    it.finish(0)
    assert it.offsets(0) == [[2], [2]]  # sent again; the child finds the first one taken


def test_records_that_wait_or_lie_ready_are_taken_back_and_go_to_no_child(play: Any) -> None:
    it = play(2)
    it.use(1)
    running, ready, waiting = it.submit(0), it.submit(1, 2), it.submit(3)
    it.begin(0)
    assert [message.offset() for message in it.table.queue.take_back(waiting)] == [3]
    assert it.actions() == []
    assert len(it.completed) == 1
    assert [message.offset() for message in it.table.queue.take_back(ready)] == [1, 2]
    assert it.table.queue.take_back(running) == []
    it.use(2)
    assert it.offsets(1) == []
    assert len(it.completed) == 2
    assert it.table.queue.take_back(ready) == []


@pytest.mark.parametrize("form", ["records", "batch"])
def test_a_slice_that_comes_without_records_is_over_and_goes_to_no_child(
    play: Any, form: str
) -> None:
    """At most once: they were taken back at a revocation, before their commit was acked."""
    it = play(1)
    it.submit(is_batch=form == "batch")
    it.submit(7)
    assert [slice_.messages for slice_ in it.completed] == [[]]
    assert it.offsets(0) == [[7]]


def test_a_death_costs_the_current_record_and_the_rest_goes_to_others(play: Any) -> None:
    it = play(2)
    it.submit(0, 1, 2, 3)
    it.submit(4)
    queued = it.submit(5)
    it.begin(0, 3)
    it.begin(1)
    assert it.table.queue.slot_of(queued) is it.table.slots[0]
    (died, start) = it.exit(0)
    assert events([died]) == [LogEvent.CHILD_DIED]
    assert start == StartChild(0, 0.1)
    (slice_,) = it.completed
    ((message, why),) = slice_.deviate().failed
    assert (message.offset(), type(why.error)) == (2, ProcessDiedError)
    assert [message.offset() for message in slice_.deviate().held] == [3]
    assert it.offsets(1) == [[4], [5]]


def test_killed_children_are_replaced_at_once_and_their_record_ends_as_decided(play: Any) -> None:
    it = play(2)
    hanging, given_up = it.submit(0, 1), it.submit(2, 3)
    it.begin(0)
    it.begin(1)
    stalled = failure(StalledError("hangs"))
    it.table.kill(hanging, stalled)
    it.table.kill(given_up, INTERRUPTED)
    assert it.actions() == [KillChild(0), KillChild(1)]
    assert without_logs(it.exit(0)) == [StartChild(0, 0.0)]
    assert without_logs(it.exit(1)) == [StartChild(1, 0.0)]
    assert [why for _, why in it.completed[0].deviate().failed] == [stalled]
    assert it.completed[1].deviate().failed == []
    assert [message.offset() for message in it.completed[1].deviate().held] == [2, 3]
    it.table.kill(hanging, stalled)  # it is over
    assert it.actions() == []


def test_delays_grow_with_quick_deaths_but_not_while_a_batch_is_halved(play: Any) -> None:
    it = play(1)
    delays = []
    for is_batch in (False, False, True, False):
        it.submit(0, 1, is_batch=is_batch)
        it.begin(0)
        (start,) = without_logs(it.exit(0))
        assert isinstance(start, StartChild)
        delays.append(start.delay_s)
        it.now += start.delay_s
        assert it.ready(0) == []
    assert delays == [0.1, 0.2, 0.0, 0.4]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (ChildBroken("no module", is_usage=True), UsageError),
        (ChildBroken("no database", is_usage=False), LifespanError),
        (None, RunError),
        (ChildLoaded(), RunError),
    ],
)
def test_the_start_fails_with_the_first_child_that_does_not_become_ready(
    play: Any, message: object, kind: type[WindowConsumerError]
) -> None:
    it = play(2, ready=False)
    assert it.ready(1) == []
    it.spawn(0)
    if message is not None:
        it.table.on_message(0, message, it.now)
    assert (it.table.not_begun, it.table.failure) == (1, None)
    assert it.exit(0, "code 7") == []
    assert type(it.table.failure) is kind
    assert it.use(2) == []
    it.table.stop()
    assert it.actions() == [EndChild(1)]


def test_a_start_can_be_stopped_until_it_is_over(play: Any) -> None:
    it = play(1, ready=False)
    it.table.stop_starting()
    assert type(it.table.failure) is StartStoppedError
    it = play(1)
    it.table.stop_starting()
    assert it.table.failure is None


def test_a_slot_whose_children_do_not_become_ready_ends_the_worker(play: Any) -> None:
    it = play(1, max_starts=2)
    assert without_logs(it.exit(0)) == [StartChild(0, 0.1)]
    it.spawn(0)
    refused, start = it.exit(0)
    assert (events([refused]), start) == ([LogEvent.CHILD_REFUSED], StartChild(0, 0.2))
    it.spawn(0)
    (stop,) = it.exit(0)
    assert isinstance(stop, StopWorker)
    assert it.table.slots[0].state is SlotState.FAILED
    assert it.use(1) == []


def test_a_child_that_becomes_ready_makes_good_for_those_that_did_not(play: Any) -> None:
    it = play(1, max_starts=2)
    it.exit(0)
    for _ in range(3):
        it.spawn(0)
        assert events(it.exit(0)) == [LogEvent.CHILD_REFUSED]
        it.ready(0)
        assert events(it.exit(0)) == [LogEvent.CHILD_DIED]


def test_an_unneeded_child_ends_after_a_rest_and_is_killed_if_it_does_not(play: Any) -> None:
    it = play(2, rest_s=60.0, leave_s=10.0)
    it.submit(0)
    it.submit(1)
    it.begin(1)
    queued = [it.submit(2), it.submit(3)]
    assert it.use(1) == []
    assert (queued[1].waits, it.table.is_ready) == (True, True)
    it.finish(1)
    it.finish(1)  # what was withdrawn, which it finds taken
    it.now += 59.0
    assert it.use(1) == []
    it.now += 1.0
    assert it.use(1) == [EndChild(1)]
    it.now += 10.5
    killed, kill = it.use(1)
    assert (events([killed]), kill) == ([LogEvent.CHILD_KILLED], KillChild(1))
    assert it.exit(1) == []
    assert it.use(1) == []
    assert it.use(2) == [StartChild(1, 0.0)]
    assert not it.table.is_ready


def test_a_child_that_dies_at_rest_is_not_replaced(play: Any) -> None:
    it = play(2)
    it.use(1)
    (died,) = it.exit(1)
    assert events([died]) == [LogEvent.CHILD_DIED]


def test_a_child_that_is_needed_again_while_it_leaves_is_replaced_at_once(play: Any) -> None:
    it = play(2, rest_s=0.0)
    assert it.use(1) == [EndChild(1)]
    assert it.use(2) == []
    it.submit(0)
    it.submit(1)
    assert it.offsets(1) == []
    assert it.exit(1, "code 0") == [StartChild(1, 0.0)]


def test_a_stop_ends_all_children_after_their_work_and_starts_nothing(play: Any) -> None:
    it = play(3)
    it.exit(2)
    it.submit(0)
    it.submit(1)
    it.begin(0)
    it.table.stop()
    assert it.actions() == [EndChild(slot) for slot in range(3)]
    it.submit(2)
    assert it.finish(0) == []
    assert (len(it.completed), it.offsets(0)) == (1, [])
    assert it.ready(2) == []
    assert [it.exit(slot) for slot in range(3)] == [[], [], []]
    it.table.kill_child(0)
    assert it.actions() == []


def test_a_thread_that_dies_stops_the_worker(play: Any) -> None:
    it = play(1)
    lost = it.submit(0)
    it.begin(0)
    error = WorkerStoppedError("a bug")
    it.table.on_lost(0, error)
    assert it.actions() == [StopWorker(error)]
    assert it.table.queue.slot_of(lost) is None
    it.submit(1)
    assert it.offsets(0) == [[0]]


def test_a_thread_that_dies_during_the_start_ends_it(play: Any) -> None:
    it = play(1, ready=False)
    error = WorkerStoppedError("a bug")
    it.table.on_lost(0, error)
    assert it.actions() == []
    assert it.table.failure is error


@pytest.mark.parametrize("message", [Ready(()), Finished(99, 0.0), "rubbish"])
def test_an_impossible_message_raises_and_changes_nothing(play: Any, message: object) -> None:
    it = play(1)
    it.submit(0)
    with pytest.raises((ValueError, KeyError, TypeError)):
        it.table.on_message(0, message, it.now)
    assert it.actions() == []
    assert it.table.slots[0].state is SlotState.READY
    it.begin(0)
    it.finish(0)
    assert len(it.completed) == 1


class Fuzz:
    """Children that begin, get on, finish, die and get stuck, in any order."""

    def __init__(self, it: Played, rng: random.Random):
        self.it = it
        self.rng = rng
        self.remote_slices: list[RemoteSlice] = []
        self.submitted: list[int] = []
        self.ended: Counter[int] = Counter()
        """How often each record was run to its end, given back, or failed."""
        self.has_begun: dict[int, bool] = {}

    def submit(self) -> None:
        fresh = range(len(self.submitted), len(self.submitted) + self.rng.randint(1, 4))
        self.submitted += fresh
        self.remote_slices.append(self.it.submit(*fresh))

    def take_back(self) -> None:
        if self.remote_slices:
            self.count(self.it.table.queue.take_back(self.rng.choice(self.remote_slices)))
        self.settle(self.it.actions())

    def count(self, messages: list[Any]) -> None:
        self.ended.update(message.offset() for message in messages)

    def advance(self, slot: int) -> None:
        """Let a child do the next step of its oldest slice, as ``child_main`` does."""
        if not self.it.posted[slot]:
            return
        post = self.it.posted[slot][0]
        shared_slot = self.it.memory[slot].shared_slots[post.shared_slot]
        begun = self.has_begun.get(post.serial)
        if begun is None:
            self.has_begun[post.serial] = shared_slot.take_whole()
        elif begun and shared_slot.tokens.take(False):
            shared_slot.over.add()
            self.count([post.messages[shared_slot.over.value - 1]])
        else:
            self.settle(self.it.finish(slot))

    def tick(self, slot: int) -> None:
        self.it.now += STUCK_S
        self.it.table.on_tick(slot, self.it.now)
        self.settle(self.it.actions())

    def drain(self, slot: int) -> None:
        while self.it.posted[slot]:
            self.advance(slot)

    def settle(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, StartChild):
                self.settle(self.it.ready(action.slot))
            elif isinstance(action, EndChild):
                self.drain(action.slot)
                self.settle(self.it.exit(action.slot))

    def step(self) -> None:
        children = list(self.it.memory)
        slot = self.rng.choice(children)
        deeds: list[Callable[[], None]] = [
            *[self.submit] * 2,
            self.take_back,
            lambda: self.settle(self.it.exit(slot)),
            lambda: self.tick(slot),
            lambda: self.settle(self.it.use(self.rng.randint(1, 3))),
            *[lambda: self.advance(slot)] * 8,
        ]
        self.rng.choice(deeds)()


@pytest.mark.parametrize("seed", range(30))
def test_every_record_ends_once_whatever_happens_in_which_order(play: Any, seed: int) -> None:
    it = play(3, rest_s=0.0)
    fuzz = Fuzz(it, random.Random(seed))
    for _ in range(400):
        fuzz.step()
    fuzz.settle(it.use(3))
    while any(it.posted[slot] for slot in it.memory):
        for slot in list(it.memory):
            fuzz.drain(slot)
    assert len(it.completed) == len(fuzz.remote_slices)
    for slice_ in it.completed:
        deviations = slice_.deviate()
        fuzz.count([message for message, _ in deviations.failed])
        fuzz.count(deviations.held)
    assert sorted(fuzz.ended.elements()) == fuzz.submitted
