"""A partition's states and what holds it back."""

from __future__ import annotations

from itertools import product

import pytest

from tests.engine.driver import Driven
from tests.engine.laddered import RETRIED, Laddered
from tests.engine.support import ONE_BY_ONE, ORDERS, notes
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.crash_history import UncleanExits
from window_consumer.engine.guards.start_gate import WorkerHold
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import (
    HoldReason,
    PartitionState,
    UnknownTransitionError,
)

ACTIVE, REVOKING = PartitionState.ACTIVE, PartitionState.REVOKING
REVOKED, LOST = PartitionState.REVOKED, PartitionState.LOST

KNOWN = {(ACTIVE, REVOKING), (ACTIVE, LOST), (REVOKING, REVOKED)}


@pytest.mark.parametrize(("before", "after"), sorted(KNOWN, key=str))
def test_a_partition_goes_from_its_assignment_to_its_end(
    before: PartitionState, after: PartitionState
) -> None:
    assert before.to(after) is after


@pytest.mark.parametrize(
    ("before", "after"),
    [pair for pair in product(PartitionState, PartitionState) if pair not in KNOWN],
)
def test_an_unknown_transition_raises(before: PartitionState, after: PartitionState) -> None:
    with pytest.raises(UnknownTransitionError):
        before.to(after)


def the_partition(driven: Driven) -> Partition:
    return driven.engine.partitions[ORDERS]


def test_a_partition_that_is_given_up_twice_raises_and_stays_as_it_is() -> None:
    driven = Driven()
    partition = the_partition(driven)
    driven.engine.on_lost([ORDERS], driven.now)
    with pytest.raises(UnknownTransitionError):
        partition.give_up()
    assert partition.state is LOST


def test_a_partition_that_is_gone_cannot_be_revoked() -> None:
    driven = Driven()
    partition = the_partition(driven)
    driven.engine.on_revoking([ORDERS], driven.now)
    driven.engine.on_revoked([ORDERS], driven.now)
    with pytest.raises(UnknownTransitionError):
        partition.revoke()
    assert partition.state is REVOKED


def standing(partition: Partition) -> tuple[PartitionState, bool, bool]:
    return partition.state, partition.accepts_results, partition.is_assigned


def test_results_count_until_a_revoked_partition_is_gone() -> None:
    driven = Driven()
    partition = the_partition(driven)
    assert standing(partition) == (ACTIVE, True, True)
    driven.engine.on_revoking([ORDERS], driven.now)
    assert standing(partition) == (REVOKING, True, False)
    driven.engine.on_revoked([ORDERS], driven.now)
    assert standing(partition) == (REVOKED, False, False)


def test_results_for_a_lost_partition_do_not_count() -> None:
    driven = Driven()
    partition = the_partition(driven)
    driven.engine.on_lost([ORDERS], driven.now)
    assert standing(partition) == (LOST, False, False)


def test_what_is_assigned_to_a_worker_that_stops_is_revoking_from_the_start() -> None:
    driven = Driven(names=())
    driven.engine.on_stopping(driven.now)
    driven.engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""))], driven.now)
    assert the_partition(driven).state is REVOKING


@pytest.mark.parametrize(
    ("reason", "starts_calls", "is_suspended", "takes_in", "is_fetched"),
    [
        (HoldReason.MANUAL, False, True, True, True),
        (HoldReason.NOT_OWNER, False, True, False, True),
        (HoldReason.CRASH_SUSPECTS, False, False, True, True),
        (HoldReason.RESTING, False, False, True, True),
        (HoldReason.METADATA_FULL, True, False, False, True),
        (HoldReason.BACKPRESSURE, True, False, True, False),
    ],
)
def test_each_reason_holds_back_its_own_part(
    reason: HoldReason, *, starts_calls: bool, is_suspended: bool, takes_in: bool, is_fetched: bool
) -> None:
    partition = the_partition(Driven())
    assert partition.starts_calls
    assert partition.takes_in
    partition.set_hold(reason, held=True)
    found = (
        partition.starts_calls,
        partition.is_suspended,
        partition.takes_in,
        partition.is_fetched,
    )
    assert found == (starts_calls, is_suspended, takes_in, is_fetched)


def test_a_partition_goes_on_when_the_last_reason_is_gone() -> None:
    driven = Laddered(ordering="key")
    copies = driven.engine.partitions[RETRIED]
    driven.engine.on_topics({RETRIED.topic: 1, ORDERS.topic: 1}, driven.now)
    driven.engine.on_lost([ORDERS], driven.now)
    driven.engine.on_halted(RETRIED, driven.now, halted=True)
    assert copies.holds == {HoldReason.NOT_OWNER, HoldReason.MANUAL}
    driven.assign(ORDERS)
    assert not copies.starts_calls
    driven.engine.on_halted(RETRIED, driven.now, halted=False)
    assert not copies.holds
    assert copies.starts_calls


def test_retries_that_are_due_while_it_is_paused_wait_in_the_partition() -> None:
    driven = Driven(**ONE_BY_ONE)
    driven.deliver(*notes(0))
    (slice_,) = driven.tick().dispatch
    driven.fail(slice_, 0)
    driven.engine.on_halted(ORDERS, driven.now, halted=True)
    assert not driven.tick(60.0).dispatch
    assert driven.held_offsets() == [0]
    driven.engine.on_halted(ORDERS, driven.now, halted=False)
    assert [slice_.seqs for slice_ in driven.tick().dispatch] == [[0]]
    assert driven.held_offsets() == []


def test_a_partition_with_suspects_starts_nothing_by_itself() -> None:
    driven = Driven(names=())
    unclean = UncleanExits(2, 10)
    driven.engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""), unclean=unclean)], driven.now)
    assert the_partition(driven).holds == {HoldReason.CRASH_SUSPECTS}
    driven.deliver(*notes(0, 1))
    assert not driven.tick().dispatch


def test_nothing_holds_a_worker_back_at_first() -> None:
    driven = Driven()
    assert driven.engine.start_gate.holds(driven.now) == []


def test_unacked_results_hold_the_whole_worker_back() -> None:
    driven = Driven()
    driven.unacked_bytes = 10**12
    assert driven.engine.start_gate.holds(driven.now) == [WorkerHold.UNACKED_RESULTS]
    driven.deliver(*notes(0))
    assert not driven.tick().dispatch
