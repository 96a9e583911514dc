"""Which of two members' outcomes of one record an audit has to have counted."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import Note
from tests.simulation import audit_mutants as mutants
from tests.simulation.schedules import lost_partitions
from window_consumer.audit.consumer import ConsumerAudit
from window_consumer.engine.observer import Observers
from window_consumer.model.errors import Skip
from window_consumer.simulator.schedule_builder import draw
from window_consumer.simulator.shared import SharedSimulation
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import MakeAudit, SystemUnderTest
from window_consumer.simulator.watches.audit import AuditWatch

COMMIT_S = 0.6


class Group:
    """Members that have the same partition, one after the other. None knows of the others."""

    def __init__(self, make_audit: MakeAudit = ConsumerAudit):
        rng = Random(0)
        self.history = SharedSimulation(draw(rng), rng, SystemUnderTest()).history
        self.watch = AuditWatch(self.history)
        self._members = 0
        self.history.wall_ms = lambda: 1_700_000_000_000 + self._members * 1000
        self._make_audit = make_audit

    def assign(self) -> Driven:
        """Give the partition to a further member, without a word to who had it before."""
        self._members += 1
        member = Driven(batch_records=1, window_cells=4, cell_records=4)
        name: Any = f"m{self._members}"
        listeners = self.watch.listeners(name, self._make_audit)
        member.engine.observe(Observers(listeners, _raise))
        # They have not heard of the assignment that was there before them.
        (partition,) = member.engine.partitions.values()
        for listener in listeners:
            listener.assigned(partition, member.now)
        return member

    def judge(self) -> Sequence[str]:
        self.watch.check()
        return self.history.violations


def _raise(error: Exception) -> None:
    raise error


def handle(member: Driven, *offsets: int, skipped: bool = False) -> None:
    """Let a member handle records; no commit says so yet."""
    member.deliver(*[Note(offset) for offset in offsets])
    while member.tick().dispatch or member.out:
        for slice_ in list(member.out):
            if skipped:
                for message in slice_.messages:
                    slice_.deviate().skip(message, Skip())
            member.finish(slice_)


def commit(member: Driven) -> None:
    assert member.tick(COMMIT_S).commit


def test_a_commit_of_who_was_thrown_out_changes_nothing_that_its_successor_has_counted() -> None:
    # It waits for its calls while a partition is revoked, and does not hear that it is out.
    group = Group()
    earlier = group.assign()
    handle(earlier, 0)
    later = group.assign()
    handle(later, 0, skipped=True)
    commit(later)
    commit(earlier)
    assert not group.judge()


def test_what_ran_again_counts_instead_of_what_had_run() -> None:
    group = Group()
    earlier = group.assign()
    handle(earlier, 0)
    commit(earlier)
    later = group.assign()
    handle(later, 0, skipped=True)
    commit(later)
    assert not group.judge()


def test_what_only_who_was_thrown_out_has_counted_is_counted() -> None:
    group = Group()
    earlier = group.assign()
    handle(earlier, 0)
    group.assign()
    commit(earlier)
    assert not group.judge()


def test_a_late_count_that_replaces_a_successors_is_found() -> None:
    group = Group(mutants.CountsAsOfTheCommit)
    earlier = group.assign()
    handle(earlier, 0)
    later = group.assign()
    handle(later, 0, skipped=True)
    commit(later)
    commit(earlier)
    assert any("audit: " in said for said in group.judge())


@pytest.mark.parametrize("seed", [801, 2061, 2480, 2934])
def test_every_promise_is_kept_where_members_are_thrown_out_while_they_wait(seed: int) -> None:
    simulate(seed, draw=lost_partitions)
