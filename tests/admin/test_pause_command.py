"""``window-consumer pause`` and ``resume`` against an address: who, why, and what is refused."""

from __future__ import annotations

import pytest

from tests.admin.admin import TOKEN, MadeUpBoard, asking
from tests.commands import Commands, Ended
from window_consumer.engine.guards.interventions import PauseRequest


def run(commands: Commands, board: MadeUpBoard, *arguments: str) -> Ended:
    with asking(board, TOKEN) as ask:
        url = f"http://127.0.0.1:{ask.port}"
        return commands.run(*arguments, "--url", url, "--token", TOKEN)


def test_pause_tells_the_worker_who_and_why(commands: Commands) -> None:
    board = MadeUpBoard()
    ended = run(commands, board, "pause", "-w", "charge", "--reason", "bank&co")
    assert (ended.code, board.asked) == (
        0,
        [f"charge None True {PauseRequest('admin', 'bank&co')}"],
    ), ended.said
    assert " resume --worker charge --url http://127.0.0.1:" in ended.said


def test_what_was_paused_and_resumed_is_printed_as_json(commands: Commands) -> None:
    for command, paused in (("pause", True), ("resume", False)):
        ended = run(commands, MadeUpBoard(), command, "-w", "charge", "--json")
        assert ended.code == 0, ended.said
        assert (ended.json["worker"], ended.json["paused"]) == ("charge", paused)


@pytest.mark.parametrize(
    ("worker", "reason", "says"), [("other", "", "other: "), ("charge", "a" * 201, " 200 ")]
)
def test_what_cannot_be_paused_is_said(
    worker: str, reason: str, says: str, commands: Commands
) -> None:
    ended = run(commands, MadeUpBoard(), "pause", "-w", worker, "--reason", reason)
    assert ended.code == 1
    assert says in ended.said
