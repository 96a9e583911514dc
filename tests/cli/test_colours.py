"""Colours: where a person looks, unless the environment says otherwise."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S, Commands
from tests.telemetry.workers import fake_worker

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)[0-9](?:;\d+)*m")
ESCAPE = "\x1b"

SEVERAL = """
import json, os, sys
from window_consumer.cli.main import main

for environment, arguments in json.loads(sys.argv[1]):
    os.environ.update(environment)
    try:
        main(arguments)
    except SystemExit as ended:
        assert ended.code == 0
    for name in environment:
        del os.environ[name]
    print("=====", flush=True)
"""
"""Runs commands one after the other, as starting Python takes longer than they do."""


def test_at_a_terminal_there_are_colours_unless_the_environment_or_json_says_otherwise(
    tmp_path: Path,
) -> None:
    with fake_worker() as worker:
        top = ["top", "--once", worker.url]
        terminal = {"TERM": "xterm-256color"}
        plain, no_colour, dumb, as_json = at_terminal(
            tmp_path,
            (terminal, top),
            ({**terminal, "NO_COLOR": "1"}, top),
            ({"TERM": "dumb"}, top),
            (terminal, [*top, "--json"]),
        )
    assert COLOUR.search(plain)
    assert not COLOUR.search(no_colour)
    assert ESCAPE not in dumb
    assert len(json.loads(as_json)["processes"]) == 1


@pytest.mark.parametrize(
    ("environment", "more", "has_colours"),
    [({}, (), False), ({"FORCE_COLOR": "1"}, (), True), ({"FORCE_COLOR": "1"}, ("--json",), False)],
)
def test_elsewhere_there_are_none_unless_they_are_forced(
    environment: Mapping[str, str], more: tuple[str, ...], *, has_colours: bool, commands: Commands
) -> None:
    with fake_worker() as worker:
        ended = commands.run(
            "top", "--once", worker.url, *more, env={"TERM": "xterm", **environment}
        )
    assert ended.code == 0
    assert (ESCAPE in ended.out) is has_colours


def at_terminal(directory: Path, *commands: tuple[Mapping[str, str], list[str]]) -> list[str]:
    """Return what each command prints at a terminal."""
    ours, its = pty.openpty()
    apart = {"NO_COLOR", "FORCE_COLOR", "TERM"}
    with subprocess.Popen(
        [sys.executable, "-c", SEVERAL, json.dumps(commands)],
        cwd=directory,
        env={name: text for name, text in os.environ.items() if name not in apart},
        stdin=its,
        stdout=its,
        stderr=its,
    ) as process:
        os.close(its)
        said = b""
        with suppress(OSError):  # the other side has closed the terminal
            while select.select([ours], [], [], DEADLINE_S)[0] and (piece := os.read(ours, 65536)):
                said += piece
        assert process.wait(DEADLINE_S) == 0, said
    os.close(ours)
    *printed, _ = said.decode().split("=====\r\n")
    return printed
