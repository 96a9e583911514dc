"""Other delivery guarantees fit behind the engine's seam and the runtime's outlet.

Each run is a random schedule with crashes. The guarantees here are small, but they run through the
real Engine: at least once loses nothing, at most once calls nothing twice, and one transaction for
outputs and offsets shows each output once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.rereading import ALL, KEYS, NAMES, Place, Rereading
from tests.engine.support import ORDERS, OTHERS, note_of, spent_after
from window_consumer.engine.commits.at_most_once import AtMostOnce
from window_consumer.engine.commits.delivery_guarantee import AtLeastOnce, MakeGuarantee
from window_consumer.engine.commits.exactly_once import ExactlyOnce
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.produce import Produce
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

# ---- what the broker keeps, and the outlets that write to it


def output_of(sent: FailedRecord | Production) -> list[Place]:
    if isinstance(sent, FailedRecord):
        return [(sent.partition.name, sent.message.offset())]
    return [(sent.partition.name, message.offset()) for message in sent.messages]


@define
class Log:
    """What survives a crash: committed offsets, and the outputs that readers see."""

    committed: dict[TopicPartition, Commit] = field(factory=dict)
    visible: list[Place] = field(factory=list)

    def commit(self, commits: Sequence[Commit]) -> None:
        self.committed.update({each.name: each for each in commits})


class SteppedOutlet(Protocol):
    """An outlet whose broker answers when the test says so."""

    def send(self, decisions: Decisions) -> None: ...
    def answer(self, *, refuse: bool = False) -> None: ...
    def commit_now(self, commits: Sequence[Commit]) -> None: ...
    def crash(self) -> None: ...


class Apart:
    """Copies and results are written as they come, offsets by themselves."""

    def __init__(self, driven: Guaranteed):
        self._driven = driven
        self._outputs: list[FailedRecord | Production] = []
        self._commits: list[Commit] = []

    def send(self, decisions: Decisions) -> None:
        self._outputs += [*decisions.publish, *decisions.produce]
        self._commits += decisions.commit

    def answer(self, *, refuse: bool = False) -> None:
        outputs, self._outputs = self._outputs, []
        for each in outputs:
            self._driven.log.visible += output_of(each)
            self._driven.acked(each)
        commits, self._commits = self._commits, []
        if not refuse:
            self._driven.log.commit(commits)
        error = CommitFailedError("no answer") if refuse else None
        results = dict.fromkeys((each.name for each in commits), error)
        self._driven.engine.on_committed(results, self._driven.now)

    def commit_now(self, commits: Sequence[Commit]) -> None:
        self._driven.log.commit(commits)

    def crash(self) -> None:
        self._outputs, self._commits = [], []


class Together:
    """A transaction holds outputs, and the offsets of exactly the records they belong to."""

    def __init__(self, driven: Guaranteed):
        self._driven = driven
        self._open: list[Place] = []
        self._ending: tuple[list[Place], Sequence[Commit]] | None = None
        """Outputs and offsets of the transaction that is being committed."""

    def send(self, decisions: Decisions) -> None:
        if decisions.commit:
            # It does not cover the outputs of the same tick: they are in the next transaction.
            assert self._ending is None
            self._ending, self._open = (self._open, decisions.commit), []
        outputs: list[FailedRecord | Production] = [*decisions.publish, *decisions.produce]
        for each in outputs:
            self._open += output_of(each)
            self._driven.acked(each)

    def answer(self, *, refuse: bool = False) -> None:
        if self._ending is None:
            return
        if refuse:
            self._driven.rewind()
            return
        (outputs, commits), self._ending = self._ending, None
        self._driven.log.visible += outputs
        self._driven.log.commit(commits)
        results = {each.name: None for each in commits}
        self._driven.engine.on_committed(results, self._driven.now)

    def commit_now(self, commits: Sequence[Commit]) -> None:
        assert self._ending is None
        self._ending, self._open = (self._open, commits), []
        self.answer()

    def crash(self) -> None:
        self._open, self._ending = [], None


# ---- the run


class Guaranteed(Rereading):
    """An Engine with a guarantee, the log that it reads, and what survives a crash."""

    def __init__(self, guarantee: MakeGuarantee, outlet: type[Apart | Together], **rules: Any):
        self.log = Log({name: Commit(name, 0, "") for name in NAMES})
        self.outlet: SteppedOutlet = outlet(self)
        self.calls: Counter[Place] = Counter()
        super().__init__(self.log.committed, guarantee, **rules)

    def step(self, seconds: float = 0.01) -> None:
        self.outlet.send(self.tick(seconds))

    def acked(self, sent: FailedRecord | Production) -> None:
        if isinstance(sent, FailedRecord):
            self.engine.on_published(sent, None, self.now)
            return
        for index in sent.to_send:
            self.engine.on_produced(sent, index, None, self.now)

    def take_written(self) -> None:
        self.outlet.answer()

    def produce(self, slice_: Slice, results: dict[int, list[Produce]]) -> None:
        super().produce(slice_, results)
        name, held = slice_.partition.name, {*slice_.results().held}
        called = (offset for at, offset in enumerate(results) if at not in held)
        self.calls.update((name, offset) for offset in called)

    def fail(self, slice_: Slice, *offsets: int, **given: Any) -> None:
        super().fail(slice_, *offsets, **given)
        self.calls.update((slice_.partition.name, offset) for offset in offsets)

    def begin_call(self, number: int) -> None:
        """Let a slot begin a call that it does not finish before the crash."""
        if self.out:
            slice_ = self.out[number % len(self.out)]
            name = slice_.partition.name
            self.calls.update((name, message.offset()) for message in self.claim(slice_, 1))

    def rewind(self, names: Sequence[TopicPartition] = NAMES) -> None:
        """Lose partitions and read them again from what is committed."""
        self.outlet.crash()
        self.engine.on_lost(names, self.now)
        for slice_ in list(self.out):
            self.finish(slice_)  # too late: it changes nothing
        self.begin_again(names)


STEPS = st.lists(
    st.sampled_from(["read", "read", "step", "step", "call", "fail", "answer", "refuse", "crash"]),
    max_size=60,
)


def follow(driven: Guaranteed, steps: Sequence[str]) -> Guaranteed:
    for number, step in enumerate(steps):
        match step:
            case "read":
                driven.read(NAMES[number % 2], 1 + number % 3)
            case "step":
                driven.step()
            case "call" | "fail":
                driven.run_slice(number, fails=step == "fail")
            case "answer" | "refuse":
                driven.outlet.answer(refuse=step == "refuse")
            case _:
                driven.begin_call(number)
                driven.rewind()
    driven.settle()
    return driven


def at_least_once() -> Guaranteed:
    return Guaranteed(AtLeastOnce, Apart, ordering="key", retry=spent_after(1))


def at_most_once() -> Guaranteed:
    retry = spent_after(1, when_spent="drop", is_final=True)
    return Guaranteed(AtMostOnce, Apart, ordering="key", retry=retry)


def exactly_once() -> Guaranteed:
    return Guaranteed(
        partial(ExactlyOnce, interval_s=0.0), Together, ordering="key", retry=spent_after(1)
    )


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_at_least_once_loses_nothing(steps: Sequence[str]) -> None:
    assert set(follow(at_least_once(), steps).log.visible) == ALL


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_at_most_once_calls_nothing_twice(steps: Sequence[str]) -> None:
    driven = follow(at_most_once(), steps)
    assert max(driven.calls.values(), default=1) == 1
    crashes = steps.count("crash")
    assert crashes or driven.calls.keys() == ALL


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_one_transaction_shows_each_output_once_and_in_order(steps: Sequence[str]) -> None:
    driven = follow(exactly_once(), steps)
    assert Counter(driven.log.visible) == Counter(ALL)
    for name in NAMES:
        for key in range(len(KEYS)):
            lane = [at for where, at in driven.log.visible if where == name and at % 3 == key]
            assert lane == sorted(lane)


def test_a_record_starts_when_the_commit_that_counts_it_is_acked() -> None:
    driven = at_most_once()
    driven.read(ORDERS, 4)
    driven.step()
    assert (driven.running_offsets, driven.committable) == ([], 0)
    driven.outlet.answer(refuse=True)
    driven.step()
    assert driven.running_offsets == []
    driven.outlet.answer()
    driven.step()
    assert driven.log.committed[ORDERS].next_offset == 3
    assert driven.running_offsets == [0, 1, 2]  # the fourth has the key of the first


def test_slices_that_wait_for_a_commit_leave_room_when_their_partition_is_lost() -> None:
    driven = at_most_once()
    for _ in range(5):
        for name in NAMES:
            driven.read(name, 3)
        driven.step()
        driven.rewind()
    driven.settle()
    assert driven.calls == Counter(ALL)


def test_a_lane_is_free_when_its_output_is_in_the_open_transaction() -> None:
    driven = exactly_once()
    driven.read(ORDERS, 4)  # the first and the last have the same key
    driven.step()
    while driven.out:
        driven.run_slice(0)
    driven.step()
    driven.step()
    assert driven.running_offsets == [3]
    assert (driven.log.visible, driven.log.committed[ORDERS].next_offset) == ([], 0)
    driven.outlet.answer()
    assert [at for _, at in driven.log.visible] == [0, 1, 2]
    assert note_of(driven.log.committed[ORDERS]).finished == (range(3),)


def test_the_last_commit_of_a_partition_ends_the_transaction_for_all() -> None:
    driven = exactly_once()
    for name in NAMES:
        driven.read(name, 3)
    driven.step()
    while driven.out:
        driven.run_slice(0)
    driven.step()
    driven.outlet.answer()
    driven.engine.on_revoking([OTHERS], driven.now)
    commits, outlived = driven.engine.on_revoked([OTHERS], driven.now)
    driven.outlet.commit_now(commits)
    assert outlived == []
    assert {each: at.next_offset for each, at in driven.log.committed.items()} == {
        ORDERS: 3,
        OTHERS: 3,
    }
    assert len(driven.log.visible) == 6


@pytest.mark.parametrize("make", [at_least_once, at_most_once, exactly_once])
def test_every_guarantee_commits_all_that_it_has_read(make: Any) -> None:
    driven: Guaranteed = make()
    driven.settle()
    assert driven.calls == Counter(ALL)
