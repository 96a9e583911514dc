"""Exactly once: the real guarantee and outlet, on a broker that decides when a transaction ends.

Each run is a random schedule with aborts, refused results, lost and revoked partitions. Readers of
committed records see each output once, in the order of its key.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from tests.engine.rereading import ALL, KEYS, NAMES, Place, Rereading
from tests.engine.support import ORDERS, Note, spent_after
from tests.engine.transaction_mutants import OUTLETS
from window_consumer.engine.commits.commit_metadata import MAX_CRASHES, CommitNote, encode
from window_consumer.engine.commits.exactly_once import WINDOW_OFFSETS, ExactlyOnce
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model.errors import NotCommittedError, PublishFailedError
from window_consumer.model.produce import Produce
from window_consumer.model.protocols import Commit, CommitResults, Copy, Delivery
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.writing.exactly_once import TransactionOutlet
from window_consumer.runtime.writing.publisher import Published, ResultAck
from window_consumer.runtime.writing.transactions import TransactionEnd
from window_consumer.testing.clock import ManualClock

REFUSED = (ORDERS, 5)
"""The record whose result no broker takes."""
REFUSAL = PublishFailedError("too large", too_large=True)


class SteppedBroker:
    """The sink, the transactions and their end: each ends when the schedule says so."""

    trouble: str | None = None

    def __init__(self) -> None:
        self.committed = {name: Commit(name, 0, "") for name in NAMES}
        self.visible: list[Place] = []
        """Results and dead letters."""
        self.results: list[Place] = []
        self.is_slow = False
        """The next wait for the end of a transaction takes too long."""
        self._open: list[tuple[Copy, Delivery]] = []
        self._ending: TransactionEnd | None = None
        self._ended = deque([TransactionEnd(())])

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        self._open.append((copy, on_delivery))

    def serve(self, timeout_s: float) -> None: ...

    def close(self, _timeout_s: float) -> int:
        return 0

    def member(self) -> object:
        return self

    def start(self) -> None: ...

    def stop(self, _timeout_s: float) -> int:
        return 0

    def end(self, ending: TransactionEnd) -> None:
        assert self._ending is None
        self._ending = ending

    def take(self, timeout_s: float) -> TransactionEnd | None:
        if timeout_s and self._ending is not None:
            if self.is_slow:
                self.is_slow = False
                return None
            self.finish()
        return self._ended.popleft() if self._ended else None

    def become_slow(self) -> None:
        self.is_slow = True

    def finish(self, *, fails: bool = False) -> None:
        """Commit or abort what is being ended."""
        ending, self._ending = self._ending, None
        if ending is None:
            return
        written, self._open = self._open, []
        refused = [each for each in written if _is_refused(each[0])]
        for copy, report in written:
            report(REFUSAL if _is_refused(copy) else None)
        if fails or refused or ending.is_cancelled or ending.member is None:
            ending.error = ending.error or NotCommittedError("aborted")
        else:
            self.visible += [_place_of(copy) for copy, _ in written]
            self.results += [_place_of(copy) for copy, _ in written if copy.topic == "invoices"]
            self.committed.update({each.name: each for each in ending.commits})
        self._ended.append(ending)


def _place_of(copy: Copy) -> Place:
    topic, partition, offset = (copy.value or b"").decode().split("/")
    return TopicPartition(topic, int(partition)), int(offset)


def _is_refused(copy: Copy) -> bool:
    return copy.topic == "invoices" and _place_of(copy) == REFUSED


def _text(name: TopicPartition, offset: int) -> str:
    return f"{name.topic}/{name.partition}/{offset}"


class Transacting(Rereading):
    """An Engine with its outlet, and the owner of its partitions."""

    def __init__(
        self,
        outlet: type[TransactionOutlet] = TransactionOutlet,
        guarantee: type[ExactlyOnce] = ExactlyOnce,
    ):
        self.broker = SteppedBroker()
        self.completions: SimpleQueue[Any] = SimpleQueue()
        super().__init__(
            self.broker.committed,
            partial(guarantee, interval_s=0.0),
            ordering="key",
            retry=spent_after(1),
        )
        broker: Any = self.broker
        arguments = broker, self.engine, broker, broker, self.completions, ManualClock()
        self.outlet = outlet(*arguments, self._copy_of)
        self.outlet.attach(self)

    @staticmethod
    def _copy_of(failed: FailedRecord) -> Copy:
        text = _text(failed.partition.name, failed.message.offset())
        return Copy("dead", None, None, text.encode(), ())

    # ---- the owner of the partitions

    def on_committed(self, results: CommitResults) -> None:
        self.engine.on_committed(results, self.now)

    def on_aborted(self, error: NotCommittedError) -> None:
        del error
        again = [name for name, each in self.engine.partitions.items() if each.is_assigned]
        self.engine.on_lost(list(self.engine.partitions), self.now)
        self.return_late()
        self.begin_again(again)

    def revoke(self, name: TopicPartition) -> None:
        """Give a partition up; its next owner, which reads what is committed, is this one."""
        self.engine.on_revoking([name], self.now)
        self.outlet.settle(1.0)
        commits, _ = self.engine.on_revoked([name], self.now)
        self.outlet.commit_now(commits, 1.0)
        self.return_late()
        self.begin_again([name])

    def lose(self, name: TopicPartition) -> None:
        self.engine.on_lost([name], self.now)
        self.outlet.lost()
        self.return_late()
        self.broker.finish()  # what is committed is known once no transaction is pending
        self.begin_again([name])

    # ---- steps

    def step(self, seconds: float = 0.01) -> None:
        while not self.completions.empty():
            item = self.completions.get_nowait()
            if isinstance(item, Published):
                self.engine.on_published(item.failed, item.error, self.now)
            elif isinstance(item, ResultAck):
                self.engine.on_produced(item.production, item.index, item.error, self.now)
        self.outlet.advance()
        self.outlet.send(self.tick(seconds))

    def take_written(self) -> None:
        self.broker.finish()

    def result(self, name: TopicPartition, offset: int) -> Produce:
        return Produce("invoices", None, _text(name, offset))

    def follow(self, rng: random.Random) -> None:
        steps: dict[str, Callable[[], None]] = {
            "read": lambda: self.read(rng.choice(NAMES), rng.randrange(1, 4)),
            "step": self.step,
            "call": lambda: self.run_slice(rng.randrange(9)),
            "fail": lambda: self.run_slice(rng.randrange(9), fails=True),
            "finish": self.broker.finish,
            "abort": lambda: self.broker.finish(fails=True),
            "slow": self.broker.become_slow,
            "revoke": lambda: self.revoke(rng.choice(NAMES)),
            "lose": lambda: self.lose(rng.choice(NAMES)),
        }
        for step in rng.choices(list(steps), (6, 8, 6, 1, 5, 1, 1, 1, 1), k=rng.randrange(60)):
            steps[step]()
        self.settle()


def judged(driven: Transacting) -> list[str]:
    """Return what is wrong at the end."""
    visible = driven.broker.visible
    wrong = [f"{place}: {times} times" for place, times in Counter(visible).items() if times != 1]
    wrong += [f"lost: {place}" for place in ALL - set(visible)]
    for lane in {(name, offset % len(KEYS)) for name, offset in ALL}:
        found = [at for name, at in driven.broker.results if (name, at % len(KEYS)) == lane]
        wrong += [f"order of {lane}: {found}"] if found != sorted(found) else []
    if driven.engine.work.waiting_for_results:
        wrong.append("something waits for an answer for ever")
    return wrong


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_readers_see_each_output_once(first: int) -> None:
    for seed in range(first, first + 100):
        driven = Transacting()
        driven.follow(random.Random(seed))
        assert judged(driven) == [], seed


def test_the_ranges_of_a_window_always_fit_into_a_commit() -> None:
    start = 2**62
    crashes = tuple((start + WINDOW_OFFSETS - 1 - each, 2**13) for each in range(MAX_CRASHES))
    note = CommitNote(
        next_offset=start,
        topic_hash=2**64 - 1,
        finished=tuple(range(start + at, start + at + 1) for at in range(0, WINDOW_OFFSETS, 2)),
        unclean_ends=2**32,
        suspect=start + WINDOW_OFFSETS - 1,
        known_partitions=2**32,
        passes=2**14,
        crashes=crashes[::-1],
    )
    assert encode(note)[1]


def test_a_window_takes_in_no_record_that_lies_too_far_from_its_first() -> None:
    driven = Transacting()
    far = (0, 1, WINDOW_OFFSETS - 1, WINDOW_OFFSETS, 2 * WINDOW_OFFSETS)
    driven.deliver(*(Note(at, b"%d" % at) for at in far), name=ORDERS)
    partition = driven.engine.partitions[ORDERS]
    assert (partition.window.open, partition.buffered) == (3, 2)
    for _ in range(20):
        driven.step()
        driven.run_slice(0)
        driven.broker.finish()
    assert (partition.window.open, partition.buffered) == (0, 0)
    assert driven.broker.committed[ORDERS].next_offset == 2 * WINDOW_OFFSETS + 1


# ---- planted bugs


class ForgetsPartitions(ExactlyOnce):
    """Commits one partition of a transaction that holds the outputs of all."""

    def commits(self, now: float) -> list[Commit]:
        return super().commits(now)[:1]


MUTANTS: dict[str, Callable[[], Transacting]] = {
    **{each.__name__: partial(Transacting, each) for each in OUTLETS},
    "ForgetsPartitions": partial(Transacting, guarantee=ForgetsPartitions),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    for seed in range(400):
        driven = MUTANTS[name]()
        try:
            driven.follow(random.Random(seed))
        except AssertionError:
            return
        if judged(driven):
            return
    raise AssertionError(f"{name} was not found")
