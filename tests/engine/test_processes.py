"""Slots that are processes, as the core hears of them: records on which one died, hanging calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, failure, notes
from window_consumer.engine.retry.policy import Retry, RetryRules, Spent
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.model.headers import Reason

ATTEMPTS = RetryRules(attempts=1, crash_attempts=3, backoff_min_s=1.0, backoff_max_s=8.0)


def die(driven: Driven, slice_: Slice, over: int) -> None:
    """Let the slot's process die on the record after the first ``over`` ones."""
    messages = driven.claim(slice_)
    noted = slice_.deviate()
    noted.failed.append((messages[over], failure(ProcessDiedError("died"))))
    noted.held.extend(messages[over + 1 :])
    driven.out.remove(slice_)
    driven.engine.on_completion(slice_, driven.now)


def offsets(slices: list[Slice]) -> list[list[int]]:
    return sorted([message.offset() for message in each.messages] for each in slices)


@pytest.mark.parametrize("on_failure", ["overtake", "block"])
def test_a_record_that_ends_processes_is_called_until_its_crash_attempts_are_spent(
    on_failure: Any,
) -> None:
    rules = RetryRules(
        attempts=1, crash_attempts=3, on_failure=on_failure, levels=(Level("10s", 10.0),)
    )
    died = ProcessDiedError("died")
    for deaths in (1, 2):
        assert isinstance(rules.next_step(died, deaths, lambda: 0.0, None, deaths), Retry)
    assert rules.next_step(died, 3, lambda: 0.0, None, 3) == Spent(Reason.CRASHED, "dead_letter")


def test_a_record_with_one_call_is_not_called_again_when_its_process_dies() -> None:
    rules = RetryRules(attempts=1, crash_attempts=3, when_spent="drop", is_final=True)
    died = ProcessDiedError("died")
    assert rules.next_step(died, 1, lambda: 0.0, None, 1) == Spent(Reason.CRASHED, "drop")


def test_when_a_process_dies_what_was_over_counts_and_only_its_record_is_charged() -> None:
    driven = Driven(retry=ATTEMPTS, slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish_all()
    partition = driven.engine.partitions[ORDERS]
    driven.deliver(*notes(*range(1, 6)))
    taken = partition.ordering.take(5)
    assert taken is not None
    run, lanes = taken
    slice_ = Slice(partition, run.messages, run.seqs, run.bytes, lanes)
    driven.engine.dispatcher._send(slice_, driven.now)
    driven.out.append(slice_)
    die(driven, slice_, 2)
    driven.tick()
    assert driven.engine.counters.processed == 3
    (failed,) = driven.failing()
    assert (failed.seq, failed.deaths) == (3, 1)
    driven.finish_all()
    assert driven.engine.counters.processed == 5


def test_after_its_last_death_a_record_leaves_as_crashed() -> None:
    driven = Driven(retry=ATTEMPTS, slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    for _ in range(3):
        assert not driven.last_published
        (slice_,) = driven.out
        die(driven, slice_, 0)
        driven.tick()
        if driven.last_published:
            break
        driven.tick(10.0)
    (failed,) = driven.last_published
    assert (failed.reason, failed.attempts, failed.deaths) == (Reason.CRASHED, 3, 3)


def test_records_that_failed_before_are_called_again_when_their_process_dies_on_another() -> None:
    driven = Driven(retry=RetryRules(attempts=3, backoff_min_s=1.0), slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.deliver(*notes(1, 2))
    driven.tick()
    while driven.out:
        slice_ = driven.out[0]
        driven.fail(slice_, *[message.offset() for message in slice_.messages])
        driven.tick()
    driven.tick(0.0)
    die(driven, driven.call_again(0, 1, 2), 1)
    driven.tick()
    assert offsets(driven.out) == [[2]]
    assert driven.failing_offsets() == [1, 2]
