"""``window-consumer concurrency``: what it shows, what it sets, and what is refused."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.admin.admin import TOKEN, MadeUpBoard, asking
from tests.commands import Commands, Ended
from tests.telemetry.workers import a_snapshot, reported
from window_consumer.engine.guards.interventions import ConcurrencyAnswer, ConcurrencyRequest
from window_consumer.engine.windows_snapshot import LimitSnapshot, PauseSnapshot

MANUAL = LimitSnapshot(3, 3, "", adapts=False, manual=PauseSnapshot("ops", "bank", 90.0))


def run(commands: Commands, board: MadeUpBoard, *arguments: str) -> Ended:
    with asking(board, TOKEN) as ask:
        url = f"http://127.0.0.1:{ask.port}"
        common = ("--url", url, "--token", TOKEN)
        return commands.run("concurrency", *common, "-w", "charge", *arguments)


def a_board(limit: LimitSnapshot | None = None) -> MadeUpBoard:
    return MadeUpBoard(**reported(evolve(a_snapshot(), limit=limit)))


@pytest.mark.parametrize("limit", [4, None])
def test_who_sets_it_and_why_reaches_the_worker(limit: int | None, commands: Commands) -> None:
    board = a_board()
    ended = run(commands, board, str(limit or "auto"), "--reason", "bank&co")
    assert ended.code == 0, ended.said
    assert board.asked[0] == f"charge {limit}, {ConcurrencyRequest(limit, 'admin', 'bank&co')}"
    assert ("concurrency auto" in ended.out) == (limit is not None)


@pytest.mark.parametrize(
    ("limit", "says", "fields"),
    [
        (None, "8, ", {"concurrency": 8, "slots": 8, "adapts": False, "manual": None}),
        (
            LimitSnapshot(5, 4, "faster"),
            "5 of 8, adapted: faster",
            {"concurrency": 5, "slots": 8, "adapts": True, "manual": None},
        ),
        (
            MANUAL,
            "3 of 8, set manually by ops for 90 s (bank)",
            {
                "concurrency": 3,
                "slots": 8,
                "adapts": False,
                "manual": {"user": "ops", "reason": "bank", "seconds": 90.0},
            },
        ),
    ],
)
def test_it_is_shown_without_a_number(
    limit: LimitSnapshot | None, says: str, fields: dict[str, object], commands: Commands
) -> None:
    board = a_board(limit)
    shown = run(commands, board)
    assert shown.code == 0
    assert f"charge: {says}" in shown.out
    assert run(commands, board, "--json").json == {
        "worker": "charge",
        "processes": [{"process": "", **fields}],
    }
    assert all(each.startswith("windows") for each in board.asked)


def test_a_refusal_is_exit_code_1(commands: Commands) -> None:
    board = a_board()
    board.concurrency = ConcurrencyAnswer.TOO_MANY
    ended = run(commands, board, "99")
    assert (ended.code, ended.out) == (1, "")
    assert "charge: " in ended.err


def test_another_worker_is_exit_code_1(commands: Commands) -> None:
    board = MadeUpBoard()
    assert [run(commands, board, *each).code for each in ((), ("4",))] == [1, 1]


@pytest.mark.parametrize("limit", ["0", "-1", "four", "1.5"])
def test_what_is_no_number_is_exit_code_2(limit: str, commands: Commands) -> None:
    board = a_board()
    assert run(commands, board, "--", limit).code == 2
    assert not board.asked
