"""The scripts of ``completion`` in real shells: bash and zsh at a terminal; fish is asked."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from attrs import define

from tests.commands import DEADLINE_S, Commands
from tests.docs.pages import ROOT

SHELLS = {"bash": ("--norc", "--noprofile"), "zsh": ("-f",), "fish": ("--no-config",)}

PROGRAM = f"""#!{sys.executable}
import os, sys
sys.path.insert(0, {str(ROOT)!r})
if "_WINDOW_CONSUMER_COMPLETE" in os.environ:
    from window_consumer.cli.main import main
    main()
print("run with", *sys.argv[1:], "and no more")
"""
"""Runs for completions, and otherwise only prints what a shell has made of a line."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: tests/parts.py names its package")
    return found


@pytest.fixture
def environment(commands: Commands) -> dict[str, str]:
    """A program in PATH, workers in the configuration, and a home without settings of a user."""
    folder = commands.directory / "bin"
    folder.mkdir()
    (folder / "window-consumer").write_text(PROGRAM)
    (folder / "window-consumer").chmod(0o755)
    commands.configure({"workers": {"charge": {}, "check_stock": {}, "mail": {}}})
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    home = str(commands.directory)
    return {**os.environ, "PATH": path, "HOME": home, "PS1": "$ ", "TERM": "xterm"}


def script(shell: str, commands: Commands) -> Path:
    """Write the script to a file, which the shell can read without an error of syntax."""
    file = commands.directory / "script"
    file.write_text(commands.run("completion", shell).out)
    checked = subprocess.run([program(shell), "-n", file], capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    return file


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key_completes(shell: str, commands: Commands, environment: dict[str, str]) -> None:
    file = script(shell, commands)
    with terminal(shell, commands.directory, environment) as at:
        if shell == "zsh":
            at.types("autoload -U compinit && compinit -D -u\n")
        at.types(f'eval "$(cat {file})"; echo "set"" up"\n')
        at.waits_for("set up")
        for typed, rest in (("pau", "se"), ("pause --rea", "son"), ("pause --worker ma", "il")):
            at.types(f"window-consumer {typed}\t")
            at.waits_for(rest)
            at.types("\n")
            at.waits_for(f"run with {typed}{rest} and no more")


def test_fish_offers_the_completions(commands: Commands, environment: dict[str, str]) -> None:
    asked = [
        f"complete -C 'window-consumer {typed}'"
        for typed in ("pau", "pause --rea", "pause --worker ch")
    ]
    lines = [f"source {script('fish', commands)}", *asked]
    done = subprocess.run(
        [program("fish"), *SHELLS["fish"], "-c", "; ".join(lines)],
        cwd=commands.directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert offered == ["pause", "--reason", "charge", "check_stock"]


@define
class Terminal:
    """What a user sees and types."""

    descriptor: int
    shown: str = ""

    def types(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def waits_for(self, text: str) -> None:
        """Wait until a text is shown after what was waited for before."""
        deadline = monotonic() + DEADLINE_S
        while text not in self.shown:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - monotonic()))
            assert ready, f"{text!r} is not in {self.shown!r}"
            self.shown += os.read(self.descriptor, 65536).decode(errors="replace")
        self.shown = self.shown.partition(text)[2]


@contextmanager
def terminal(shell: str, directory: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    ours, its = pty.openpty()
    command = [program(shell), *SHELLS[shell], "-i"]
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Terminal(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
