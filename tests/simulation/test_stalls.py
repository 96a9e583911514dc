"""Calls that hang are ended, and their records are called again, at most once at a time."""

from __future__ import annotations

from typing import Any

from tests.simulation.planted import Planted
from tests.simulation.schedules import with_stalls_that_are_retried
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 30


class CallsBesideAnAbandonedCall(Engine):
    """Also a record whose call was abandoned and still runs is called again at once."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        add = self.retry_queue.add

        def added(*about: Any, still_runs: bool = False, **more: Any) -> FailedRecord:
            del still_runs
            return add(*about, **more)

        self.retry_queue.add = added  # type: ignore[method-assign] # a planted bug


def test_retries_of_stalled_calls_lose_nothing() -> None:
    for seed in range(SCHEDULES):
        simulate(seed, draw=with_stalls_that_are_retried)


def test_a_call_beside_an_abandoned_one_is_found(planted: Planted) -> None:
    subject = SystemUnderTest(make_engine=CallsBesideAnAbandonedCall)
    planted.expect(
        CallsBesideAnAbandonedCall, subject, ".", SCHEDULES, with_stalls_that_are_retried
    )
