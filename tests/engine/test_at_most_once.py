"""At most once in random schedules: nothing is called twice, and what is not called is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from tests.engine.rereading import ALL, NAMES, RECORDS, Place
from tests.engine.support import note_of, spent_after
from tests.engine.test_guarantees import Apart, Guaranteed
from window_consumer.engine.commits.at_most_once import AtMostOnce
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.slices import Slice

ONE_CALL = spent_after(1, when_spent="drop", is_final=True)

STEPS = ("read", "read", "read", "step", "step", "call", "fail", "answer", "answer")
DISTURBANCES = ("refuse", "revoke", "hurry", "crash", "pause")


class Disturbed(Guaranteed):
    """A worker whose partitions are revoked, in time or in a hurry, and which crashes."""

    def __init__(self, rng: Random, guarantee: MakeGuarantee, retry: RetryRules):
        ordering = rng.choice(("unordered", "key", "partition"))
        super().__init__(guarantee, Apart, ordering=ordering, retry=retry)
        self.lost: set[Place] = set()
        """What it has named as lost."""
        self.killed: set[Place] = set()
        """What was committed and not called at a crash."""

    def covered(self) -> set[Place]:
        """Return what the group counts as finished."""
        found = set()
        for name in NAMES:
            commit = self.log.committed[name]
            found |= {(name, at) for at in range(commit.next_offset)}
            finished = note_of(commit).finished if commit.metadata else ()
            found |= {(name, at) for each in finished for at in each}
        return found

    def end_process(self) -> None:
        missing = self.covered() - self.calls.keys() - self.lost - self.killed
        assert len(missing) <= self.engine.dispatcher.records_out + self.given_back()
        self.killed |= missing
        self.rewind()
        self.engine.losses.take()

    def given_back(self) -> int:
        """Return how many committed records wait in their ordering."""
        guarantee = self.engine.guarantee
        return sum(
            guarantee.is_lost(each, seq)
            for each in self.engine.partitions.values()
            for seq, _ in each.ordering.waiting()
        )

    def revoke(self, patience: int) -> None:
        """Give all partitions up after so many calls at most."""
        self.engine.on_revoking(NAMES, self.now)
        while self.engine.work.busy(NAMES):
            self.step()
            if patience and self.out:
                self.run_slice(0)
                patience -= 1
            elif not self.out or not patience:
                break
        commits, _ = self.engine.on_revoked(NAMES, self.now)
        self.outlet.crash()
        self.outlet.commit_now(commits)
        for each in self.engine.losses.take():
            self.lost |= {(each.name, offset) for offset in each.offsets}
        for slice_ in list(self.out):
            self.finish(slice_)  # too late: it changes nothing
        self.begin_again(NAMES)

    def pause(self) -> None:
        """Pause and resume the worker, which takes unstarted records back."""
        self.engine.on_halted(None, self.now, halted=True)
        self.step()
        self.engine.on_halted(None, self.now, halted=False)


def run(
    seed: int, guarantee: MakeGuarantee = AtMostOnce, retry: RetryRules = ONE_CALL
) -> Disturbed:
    rng = Random(seed)
    driven = Disturbed(rng, guarantee, retry)
    few = (*STEPS, *rng.sample(DISTURBANCES, rng.randint(0, 3)))
    for number in range(rng.randint(5, 60)):
        match rng.choice(few):
            case "read":
                driven.read(rng.choice(NAMES), rng.randint(1, RECORDS))
            case "step":
                driven.step()
            case "call" | "fail" as how:
                driven.run_slice(number, fails=how == "fail")
            case "answer" | "refuse" as how:
                driven.outlet.answer(refuse=how == "refuse")
            case "revoke" | "hurry" as how:
                driven.revoke(patience=100 if how == "revoke" else 0)
            case "crash":
                driven.begin_call(number)
                driven.end_process()
            case _:
                driven.pause()
    driven.settle()
    return driven


def judged(driven: Disturbed) -> list[str]:
    found = []
    if max(driven.calls.values(), default=1) > 1:
        found.append("twice")
    if driven.calls.keys() | driven.lost | driven.killed != ALL:
        found.append("unnamed")
    return found


def test_nothing_is_called_twice_and_what_is_not_called_is_named() -> None:
    for seed in range(150):
        assert judged(run(seed)) == [], seed


class StartsBeforeTheAck(AtMostOnce):
    """A slice starts while its commit is on its way."""

    def starting(self, slices: list[Slice]) -> list[Slice]:
        super().starting(slices)
        return slices


class StartsWhatWasRefused(AtMostOnce):
    """A commit that was refused starts its records."""

    def refused(self, partition: Partition) -> None:
        for each in self._asked.pop(partition, ()):
            self._start(each, 0.0)


class DropsCommittedRecords(AtMostOnce):
    """A revocation forgets what is committed and has not started."""

    def unstarted(self, partition: Partition, slices: Sequence[Slice]) -> list[Slice]:
        del partition
        return list(slices)

    def revoking(self, partition: Partition) -> None:
        self.released(partition)
        partition.ordering.clear()


@pytest.mark.parametrize(
    ("guarantee", "retry", "expected"),
    [
        (StartsBeforeTheAck, ONE_CALL, "twice"),
        (StartsWhatWasRefused, ONE_CALL, "twice"),
        (DropsCommittedRecords, ONE_CALL, "unnamed"),
        (AtMostOnce, spent_after(2, when_spent="drop"), "twice"),
    ],
    ids=["before the ack", "after a refusal", "dropped silently", "second attempt"],
)
def test_a_planted_bug_is_found(guarantee: MakeGuarantee, retry: RetryRules, expected: str) -> None:
    found: Counter[str] = Counter()
    for seed in range(150):
        found.update(judged(run(seed, guarantee, retry)))
        if found[expected]:
            return
    raise AssertionError(found)
