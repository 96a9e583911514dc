"""What the body of an answer may say: records to produce, and the failed records of a batch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.push.service import Answered, Service
from tests.push.worker import pushing
from window_consumer.testing import DEAD_LETTERED, DONE, TestApp

JSON = {"Content-Type": "application/json; charset=utf-8"}


def says(body: Any, status: int = 200) -> Any:
    """Answer with JSON."""
    return lambda _: Answered(status, json.dumps(body).encode(), JSON)


def producing(service: Service, **worker: Any) -> TestApp:
    return pushing(service.url, {"may_produce": ["events"]}, retry={"attempts": 1}, **worker)


def test_an_answer_has_records_produced(service: Service) -> None:
    service.answer = says(
        {
            "produce": [
                {"topic": "events", "key": "k", "value": {"amount": 7}, "headers": {"type": "x"}},
                {"topic": "events", "value": "text", "id": "mail-7"},
                {"topic": "events", "value_base64": "/w==", "partition": 0},
                {"topic": "events", "key_base64": "/w=="},
            ]
        }
    )
    with producing(service) as worker:
        assert worker.send("orders", "one").outcome is DONE
        found = worker.produced
    assert [(each.key, each.value) for each in found] == [
        (b"k", b'{"amount": 7}'),
        (None, b"text"),
        (None, b"\xff"),
        (b"\xff", None),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"produce": [{"topic": "other"}]},
        {"produce": [{"value": "x"}]},
        {"produce": {"topic": "events"}},
        {"produce": ["events"]},
        {"produce": [{"topic": "events", "velue": "x"}]},
        {"produce": [{"topic": "events", "value_base64": "?"}]},
        {"produce": [{"topic": "events", "partition": "0"}]},
        {"produce": [{"topic": "events", "headers": [1]}]},
        {"produce": [{"topic": ["events"]}]},
    ],
)
def test_what_cannot_be_produced_is_a_failure(body: Any, service: Service) -> None:
    service.answer = says(body)
    with producing(service) as worker:
        worker.send("orders", "one")
        (letter,) = worker.dead_letters
        assert worker.produced == []
    assert (letter.error_class or "").endswith("InvalidAnswerError")


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"x" * 1_100_000, b"\xff"])
def test_what_calls_itself_json_and_is_none_is_a_failure(body: bytes, service: Service) -> None:
    service.answer = lambda _: Answered(200, body, JSON)
    with producing(service) as worker:
        assert worker.send("orders", "one").outcome is DEAD_LETTERED


@pytest.mark.parametrize(
    "answer", [Answered(200, b"OK"), Answered(204), Answered(200, b"[1]", JSON)]
)
def test_other_bodies_say_nothing(answer: Answered, service: Service) -> None:
    service.answer = lambda _: answer
    with producing(service) as worker:
        assert worker.send("orders", "one").outcome is DONE


def test_without_may_produce_nothing_is_read(service: Service) -> None:
    service.answer = says({"produce": [{"topic": "events"}]})
    with pushing(service.url) as worker:
        assert worker.send("orders", "one").outcome is DONE


def batched(service: Service, **worker: Any) -> TestApp:
    return producing(service, batch={"max_records": 10}, **worker)


def test_a_batch_is_a_json_array_in_order(service: Service) -> None:
    with batched(service) as worker:
        headers: dict[str, str | bytes | None] = {"type": "x", "raw": b"\xff"}
        at_ms = 1_700_000_000_000
        worker.send("orders", "ä", "k", headers=headers, partition=1, timestamp=at_ms, run=False)
        worker.send("orders", b"\xff", partition=1, run=False)
        worker.send("orders", None, b"\xff", partition=1)
    (request,) = service.posted
    first, second, third = json.loads(request.body)
    assert first == {
        "id": "orders/1/0",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "attempt": 1,
        "key": "k",
        "value": "ä",
        "headers": {"type": "x"},
        "headers_base64": {"raw": "/w=="},
    }
    assert (second["key"], second["value_base64"], "value" in second) == (None, "/w==", False)
    assert (third["key_base64"], third["value"]) == ("/w==", None)
    assert request.header("Content-Type") == "application/json"
    assert request.header("Wc-Batch") == "3"
    assert (request.header("Idempotency-Key") or "").startswith("sha256:")


def send_batch(worker: TestApp) -> list[Any]:
    sent = [worker.send("orders", str(each), partition=0, run=False) for each in range(4)]
    worker.run_until_idle()
    worker.advance("1s")
    return [each.outcome for each in sent]


def test_an_answer_names_the_records_that_failed(service: Service) -> None:
    body = {
        "failed": [1, {"index": 3, "fatal": True, "error": "no currency"}],
        "produce": [{"topic": "events", "value": "two are done"}],
    }
    service.answer = says(body)
    with batched(service) as worker:
        assert send_batch(worker) == [DONE, DEAD_LETTERED, DONE, DEAD_LETTERED]
        assert len(worker.produced) == 1
        found = {each.value: each for each in worker.dead_letters}
    assert found[b"1"].reason == "RETRIES_EXHAUSTED"
    assert found[b"3"].reason == "FATAL"
    assert "currency" in (found[b"3"].error_message or "")


def test_all_records_of_a_batch_may_fail(service: Service) -> None:
    service.answer = says({"failed": [0, 1, 2, 3]})
    with batched(service) as worker:
        assert send_batch(worker) == [DEAD_LETTERED] * 4


@pytest.mark.parametrize("failed", [[4], [-1], [True], ["0"], [{"number": 0}], {"0": 1}, [None]])
def test_what_names_no_record_fails_the_batch(failed: Any, service: Service) -> None:
    service.answer = says({"failed": failed})
    with batched(service) as worker:
        assert send_batch(worker) == [DEAD_LETTERED] * 4


def test_a_batch_that_fails_fails_as_a_whole(service: Service) -> None:
    service.answer = says({"failed": [0]}, status=500)
    with batched(service) as worker:
        assert send_batch(worker) == [DEAD_LETTERED] * 4
