"""A service that answers 404 for a while: the breaker holds the records, and all are done after."""

from __future__ import annotations

from typing import Any

import pytest

from tests.push.service import Service, statuses
from tests.push.worker import pushing
from window_consumer.testing import DONE

MOST_MOVED = 20
RECORDS_A_SECOND = 50


@pytest.mark.parametrize(("status", "levels"), [(404, ["10s", "1m"]), (401, [])])
def test_an_outage_moves_few_records_and_loses_none(
    status: int, levels: list[str], service: Service
) -> None:
    retry: dict[str, Any] = {"attempts": 2, "backoff": "10ms..50ms", "levels": levels}
    with pushing(service.url, retry={**retry, "on_failure": "overtake"}) as worker:

        def seconds(number: int) -> None:
            for _ in range(number):
                sent.extend(worker.send_many("orders", ["order"] * RECORDS_A_SECOND, run=False))
                worker.advance("1s")

        sent: list[Any] = []
        seconds(2)
        service.answer = statuses(status)
        seconds(6)
        moved = [each for each in sent if each.outcome.value in {"moved", "dead-lettered"}]
        service.answer = statuses(200)
        seconds(2)
        worker.advance("2m")
        assert len(moved) <= MOST_MOVED
        left = [each for each in sent if each.outcome is not DONE]
        assert len(left) <= (0 if levels else MOST_MOVED)
        assert len(left) == len(worker.dead_letters)


def test_auto_finds_how_many_requests_to_send_at_once(service: Service) -> None:
    with pushing(service.url, concurrency="auto") as worker:
        sent = worker.send_many("orders", [str(each) for each in range(200)])
        assert {each.outcome for each in sent} == {DONE}
    assert len({each.connection for each in service.posted}) <= 200


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_requests_of_a_key_come_in_order(attempts: int, service: Service) -> None:
    service.answer = statuses(200, 500, 503, 200, 500, 200)
    retry = {"attempts": attempts, "backoff": "1ms..1ms"}
    with pushing(service.url, ordering="key", retry=retry) as worker:
        for number in range(10):
            worker.send("orders", str(number), "customer 7", run=False)
        worker.advance("10s")
        worker.advance("10s")
        assert worker.dead_letters == []
    numbers = list(map(int, service.bodies))
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(10))
