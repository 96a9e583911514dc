"""Processes of one replay that follow each other, or overlap."""

from __future__ import annotations

import pytest

from tests.kernel import FEATURES
from tests.replay.shop import ReplayShop, offsets
from window_consumer.model.errors import RunError
from window_consumer.plan.loading import load_without_handlers
from window_consumer.replay.job import ReplayJob, ReplayRequest
from window_consumer.replay.ranges import Selection
from window_consumer.replay.setup import replay_jobs

RECORDS = 10


def job_of(shop: ReplayShop, rate: float | None = None) -> ReplayJob:
    """Return a process that has planned, and has not begun."""
    loaded = load_without_handlers(shop.commands.directory / "workers.yaml", None, (), FEATURES)
    request = ReplayRequest(Selection(offsets={0: 0}), "from 0:0", rate=rate)
    (job,) = replay_jobs(loaded, request, worker="charge")
    return job


def run(job: ReplayJob) -> ReplayJob:
    job.claim()
    job.replay(lambda: False, FEATURES)
    return job


def test_a_run_that_is_stopped_after_its_last_copy_is_resumed_and_copies_none_again(
    shop: ReplayShop,
) -> None:
    shop.produce(RECORDS)
    stopped = job_of(shop, rate=2 * RECORDS)  # a batch is half a second's
    stopped.claim()
    stopped.replay(lambda: stopped.counts.replayed == RECORDS, FEATURES)
    assert not stopped.complete
    resumed = run(job_of(shop))
    assert (resumed.resumed, resumed.complete, resumed.run) == (True, True, stopped.run)
    assert shop.replayed() == offsets(0, range(RECORDS))
    assert not run(job_of(shop)).resumed
    assert set(shop.times().values()) == {2}


@pytest.mark.parametrize("is_cut_short", [False, True])
def test_a_process_that_planned_before_another_copied_copies_nothing(
    shop: ReplayShop, *, is_cut_short: bool
) -> None:
    shop.produce(RECORDS)
    if is_cut_short:
        job_of(shop).claim()
    first, second = job_of(shop), job_of(shop)
    run(first)
    with pytest.raises(RunError):
        second.claim()
    assert shop.replayed() == offsets(0, range(RECORDS))


def test_a_process_that_claimed_before_another_copied_copies_nothing(shop: ReplayShop) -> None:
    shop.produce(RECORDS)
    first = job_of(shop)
    first.claim()
    run(job_of(shop))
    with pytest.raises(RunError):
        first.replay(lambda: False, FEATURES)
    assert shop.replayed() == offsets(0, range(RECORDS))


def test_a_process_is_not_alone_where_others_finished_its_run_and_began_another(
    shop: ReplayShop,
) -> None:
    shop.produce(RECORDS)
    first = job_of(shop)
    first.claim()
    run(job_of(shop))
    job_of(shop).claim()  # at the same offset again
    with pytest.raises(RunError):
        first.replay(lambda: False, FEATURES)
    assert shop.replayed() == offsets(0, range(RECORDS))
