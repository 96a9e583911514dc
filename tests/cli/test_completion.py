"""``window-consumer completion``: what a shell offers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.commands import Commands

CONFIG = {
    "kafka": {"bootstrap.servers": "localhost:9092"},
    "workers": {
        "charge": {"topics": ["orders", "payments"]},
        "check_stock": {"topics": "orders"},
        "mail": {},
    },
}


def offered(commands: Commands, *words: str) -> list[str]:
    """Return what bash would offer for the last word, without the kinds of the entries."""
    line = ["window-consumer", *words]
    env = {
        "_WINDOW_CONSUMER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    program = (
        "import sys; sys.argv[0] = 'window-consumer'\n"
        "from window_consumer.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=commands.directory,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("pau",), ["pause"]),
        (("pause", "--rea"), ["--reason"]),
        (("pause", "--worker", "ch"), ["charge", "check_stock"]),
        (("replay", "-c", "other.yaml", "--worker", ""), ["elsewhere"]),
        (("replay", "--topic", ""), ["orders", "payments"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
    ],
)
def test_names_are_those_of_the_commands_and_of_the_configuration(
    words: tuple[str, ...], names: list[str], commands: Commands
) -> None:
    commands.configure(CONFIG)
    commands.configure({"workers": {"elsewhere": {}}}, "other.yaml")
    assert offered(commands, *words) == names


@pytest.mark.parametrize("text", ["workers: [", "workers: 3", "", "workers: {charge: 1}"])
def test_a_broken_configuration_offers_nothing_and_says_nothing(
    text: str, commands: Commands
) -> None:
    commands.configure(text)
    assert offered(commands, "replay", "--topic", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_program(shell: str, commands: Commands) -> None:
    ended = commands.run("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert f"_WINDOW_CONSUMER_COMPLETE={shell}_complete" in ended.out
