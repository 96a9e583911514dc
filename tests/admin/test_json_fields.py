"""The fields that the admin address, ``/metrics``, ``doctor`` and ``top`` show stay as they are.

Programs read them. Whoever adds a field adds it to the files in ``golden`` and to the docs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from attrs import define, evolve

from tests.admin.golden import fields_of, json_of, metrics_of, text_of
from tests.admin.shop import SeenShop, seen_shop
from tests.kernel import scrape_of
from tests.telemetry.workers import a_snapshot, fake_worker
from window_consumer.admin.board import CellPlace
from window_consumer.admin.client import Access, AdminAddress
from window_consumer.admin.doctor.collection import Process
from window_consumer.admin.doctor.diagnosis import diagnose
from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.engine.shares_snapshot import ShareSnapshot, SharesSnapshot
from window_consumer.engine.windows_snapshot import (
    LimitSnapshot,
    LoopSnapshot,
    ParkedKey,
    ParkedKeys,
    PauseSnapshot,
    WindowsSnapshot,
)
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.worker_snapshot import to_json
from window_consumer.runtime.replica import HttpAnswer

FAILED = CellPlace("charge", TopicPartition("orders", 1), None, 1)
HANGING = CellPlace("charge", TopicPartition("orders", 0), 0)
FIELDS: dict[str, Any] = json_of("fields.json")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeenShop]:
    with EmbeddedBroker() as broker, seen_shop(tmp_path_factory.mktemp("shop"), broker) as seen:
        yield seen


ANSWERS: dict[str, Callable[[SeenShop], Any]] = {
    "windows": lambda shop: shop.board.windows(stacks=True, history=True),
    "windows without more": lambda shop: shop.board.windows(stacks=False, history=False),
    "frame": lambda shop: shop.board.frame(0),
    "cell of a failed record": lambda shop: shop.board.cell(FAILED),
    "cell of a running call": lambda shop: shop.board.cell(HANGING),
    "value": lambda shop: shop.board.value(FAILED),
}


def answer_of(shop: SeenShop, name: str) -> Any:
    """Ask until the answer has its fields: a poll thread that is late for once is left out."""
    until = monotonic() + 20.0
    while True:
        answer = json.loads(json.dumps(ANSWERS[name](shop), allow_nan=False))
        if fields_of(answer).keys() == FIELDS[name].keys() or monotonic() > until:
            return answer


@pytest.mark.parametrize("name", ANSWERS)
def test_the_fields_of_the_admin_address(shop: SeenShop, name: str) -> None:
    seen, promised = fields_of(answer_of(shop, name)), FIELDS[name]
    assert seen.keys() == promised.keys()
    assert not {field: kind for field, kind in seen.items() if kind and kind != promised[field]}


def everything() -> WindowsSnapshot:
    """A snapshot in which nothing is empty that may be."""
    did = Counters(moved_to=Counter({"10s": 1}), dead_by=Counter({"FATAL": 1}))
    did.moved = 1
    did.limit_changes["faster"] += 1
    return evolve(
        a_snapshot(),
        counters=did,
        limit=LimitSnapshot(3, 4, "faster", manual=PauseSnapshot("ops", "bank is down", 1.5)),
        changes_s=(1.5,),
        pause=PauseSnapshot("ops", "bank is down", 1.5),
        loop=LoopSnapshot(1.5, 0.5),
        cannot_write="no broker",
        parked=ParkedKeys(1, 2, (ParkedKey(TopicPartition("orders", 0), 7, "anna"),)),
        shares=SharesSnapshot("shares", 1, 2, False, (ShareSnapshot("gold", 5.0, 1, 2, 3.5),)),
        findings=(RuleFinding("new_failure", "all calls fail", pauses=True, figures={"calls": 1}),),
    )


def test_what_most_workers_do_not_have_is_reported_of_those_that_do() -> None:
    assert fields_of(json.loads(json.dumps(to_json(everything())))) == FIELDS["snapshot"]


def test_the_names_and_labels_of_metrics(shop: SeenShop) -> None:
    until = monotonic() + 20.0
    while (found := metrics_of(scrape_of(shop.measured.measures()))) != FIELDS["metrics"]:
        assert monotonic() < until, found


def test_secrets_and_hidden_fields_are_in_no_answer(shop: SeenShop) -> None:
    said = json.dumps([answer_of(shop, name) for name in ANSWERS])
    assert "no account ***" in said
    assert "hunter2" not in said
    assert '"broken"' not in said  # the value


# ---- what doctor makes of answers


@define
class Answering:
    """A worker that gives one answer after another."""

    answers: list[tuple[str, str]]

    def __call__(self) -> HttpAnswer:
        text, kind = self.answers.pop(0)
        return HttpAnswer(200, text, kind)


def reported_by(*answers: str, has_windows: bool = True) -> list[Any]:
    """Look ten seconds after ten seconds at a worker that answers like this."""
    with fake_worker() as worker:
        worker.answer = Answering([(each, "application/json") for each in answers])
        process = Process(AdminAddress.parse(worker.url), Access(), has_windows)
        return [process.observe(10.0 * number, stacks=True)[0][0] for number in range(len(answers))]


def diagnosis(looks: list[Any], **more: Any) -> Any:
    seen = WorkerEvidence("charge", "", "key", "threads", looks, **{"blocks": True, **more})
    return json.loads(json.dumps(diagnose([seen]).as_json()))


def windows(name: str, **changes: Any) -> str:
    """An answer with some fields of the worker's snapshot changed."""
    answer = json_of(name)
    answer["workers"][0]["snapshot"] |= changes
    return json.dumps(answer)


CASES: dict[str, dict[str, Any]] = {
    "as it was": {},
    "open breaker": {
        "breaker": {"state": "open", "failed": 3, "calls": 9, "seconds": 4.5, "why": "3 of 9"},
        "cannot_write": "no broker",
        "changes_s": [250.0, 200.0, 90.0, 40.0, 10.0],
        "halted": True,
    },
    "coroutines": {
        "loop": {"computed_s": 9.5, "late_s": 4.0},
        "limit": {"limit": 2, "settled": 3, "why": "more calls at once are no faster"},
        "unread": 7,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_what_doctor_says_of_an_answer(case: str) -> None:
    first = {"loop": {"computed_s": 0.5, "late_s": 1.0}} if case == "coroutines" else {}
    looks = reported_by(
        windows("windows_1.json", **first), windows("windows_2.json", **CASES[case])
    )
    assert diagnosis(looks) == json_of("doctor.json")[case]


def test_what_doctor_says_of_metrics() -> None:
    looks = reported_by(text_of("metrics_1.txt"), text_of("metrics_2.txt"), has_windows=False)
    assert diagnosis(looks) == json_of("doctor.json")["metrics"]


def test_what_doctor_says_of_a_worker_that_is_silent() -> None:
    silent = json_of("windows_1.json")
    silent["workers"][0]["snapshot"] = None
    assert diagnosis(reported_by(json.dumps(silent))) == json_of("doctor.json")["silent"]
