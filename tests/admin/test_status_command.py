"""``window-consumer status``: healthy, not healthy and not there, for people and for scripts."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.commands import Commands
from tests.telemetry.workers import a_snapshot, fake_worker, reported
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.windows_snapshot import BreakerSnapshot, PauseSnapshot, WindowsSnapshot
from window_consumer.runtime.replica import HttpAnswer


def status(commands: Commands, fields: Any) -> tuple[int, Any]:
    with fake_worker(fields) as worker:
        ended = commands.run("status", "--url", worker.url, "--json")
        shown = commands.run("status", "--url", worker.url)
    assert (shown.code, shown.err) == (ended.code, "")
    for each in ended.json["workers"]:
        assert f"{each['worker']}: " in shown.out
    for each in [*ended.json["problems"], *problems_of(ended.json)]:
        assert each["text"] in shown.out
    return ended.code, ended.json


def problems_of(answer: Any) -> list[dict[str, str]]:
    return [problem for worker in answer["workers"] for problem in worker["problems"]]


def kinds(answer: Any) -> list[str]:
    return [each["kind"] for each in problems_of(answer)]


def test_a_healthy_worker_is_exit_code_0(commands: Commands) -> None:
    samples = [
        {"t": at_ms, "dead": {"FATAL": per_s, "EXPIRED": 0.5}}
        for at_ms, per_s in ((1_000, 900.0), (100_000, 0.0), (130_000, 1.0))
    ]
    code, answer = status(commands, reported(history=samples))
    assert (code, answer["healthy"], kinds(answer)) == (0, True, [])
    (worker,) = answer["workers"]
    assert (worker["worker"], worker["state"], worker["ready"]) == ("charge", "running", True)
    assert (worker["in_flight"], worker["concurrency"], worker["breaker"]) == (1, 8, "closed")
    assert worker["dead_per_min"] == 60.0


def changed(**fields: Any) -> WindowsSnapshot:
    return evolve(a_snapshot(), **fields)


PAUSED = changed(halted=True, pause=PauseSnapshot("ops", "bank", 90.0))


@pytest.mark.parametrize(
    ("worker", "kind", "says"),
    [
        (reported(PAUSED), "paused", " by ops for 90 s (bank)"),
        (
            reported(changed(breaker=BreakerSnapshot(BreakerState.OPEN, 20, 20, 9.0, "all fail"))),
            "breaker",
            "open for 9 s: all fail",
        ),
        (reported(changed(cannot_write="no broker")), "cannot_write", "no broker"),
        (reported(ready=False, phase="joining"), "not_ready", "joining"),
        (reported(ready=False, catching_up=7), "not_ready", "7 records"),
        (reported(stands_still=True), "stands_still", "doctor"),
        (reported(), None, ""),
    ],
)
def test_what_is_wrong_is_named_and_exit_code_1(
    worker: dict[str, Any], kind: str | None, says: str, commands: Commands
) -> None:
    if kind is None:
        worker["workers"][0] |= {"snapshot": None, "silent_s": 30.0}
        kind, says = "silent", "30 s"
    code, answer = status(commands, worker)
    assert (code, answer["healthy"], kinds(answer)) == (1, False, [kind])
    assert says in problems_of(answer)[0]["text"]


def test_a_breaker_that_holds_for_a_moment_is_no_problem(commands: Commands) -> None:
    breaker = BreakerSnapshot(BreakerState.HOLDING, 20, 20, 0.5)
    assert status(commands, reported(changed(breaker=breaker)))[0] == 0


def test_a_replica_that_does_not_answer_is_a_problem_of_the_address(commands: Commands) -> None:
    code, answer = status(commands, reported() | {"missing": ["2"]})
    assert (code, [each["kind"] for each in answer["problems"]]) == (1, ["missing"])


def test_an_address_without_workers_is_not_healthy(commands: Commands) -> None:
    code, answer = status(commands, reported() | {"workers": []})
    assert (code, [each["kind"] for each in answer["problems"]]) == (1, ["no_workers"])


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_an_address_that_is_no_workers_is_exit_code_2(
    arguments: tuple[str, ...], commands: Commands
) -> None:
    with fake_worker() as worker:
        worker.answer = lambda: HttpAnswer(500, "")
        ended = commands.run("status", "--url", worker.url, *arguments)
    assert ended.code == 2
    assert "500" in ended.said
    assert bool(ended.out) == bool(arguments)


def test_a_wrong_address_is_exit_code_2(commands: Commands) -> None:
    assert commands.run("status", "--url", "gopher://x").code == 2
