"""A page that is followed as a reader does it: files are written, commands typed, output compared.

- A block whose first line is ``# name.ext`` is a file, in the folder where the reader stands.
- ``$ `` begins a command in a ``console`` block. The lines below it are its output, in this order;
  ``...`` stands for anything, also for lines that are not shown.
- ``dev``, ``run`` and ``broker`` keep running in a terminal of their own. A ``text`` block is what
  the latest of them prints from then on. ``^C`` ends it, or ``^C  # in the first terminal`` the
  oldest; the lines below are what that has printed last.
- ``pip`` and ``docker`` do nothing here: what they bring is there.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import define, field, frozen

from tests import fork_server
from tests.commands import DEADLINE_S
from tests.docs.pages import ROOT, Block, all_blocks
from tests.waiting import wait_until

KEEP_RUNNING = {"broker", "dev", "run"}
PATIENCE_S = 60.0
"""How long a command is repeated until it prints the page's output."""
PROGRAMS = {"curl", "kill", "rm", "touch"}
PORTS = ("8081", "8082", "8090", "8092")
"""Of the pages; each reader has others."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@frozen
class Shown:
    """Where expected lines end in an output, and the port that they name, if any."""

    end: int
    port: str


@define
class Terminal:
    """A command that keeps running, with its output in a file."""

    process: fork_server.Forked
    log: Path
    read: int = 0
    """How much of it earlier blocks have shown."""

    def wait_for(self, lines: list[str]) -> Shown:
        """Wait until it has printed these lines after those shown before."""

        def has_come() -> bool:
            return shown_in(self._news, lines) is not None or self.process.poll() is not None

        wait_until(has_come, DEADLINE_S, f"{lines} in {self.log}")
        shown = shown_in(self._news, lines)
        assert shown, f"{lines} not in {self._news}"
        return shown

    @property
    def _news(self) -> str:
        return self.log.read_text("utf-8", "replace")[self.read :]

    def stop(self, lines: list[str]) -> None:
        """Press Ctrl-C; the command must end well and have printed these lines."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(DEADLINE_S)
        assert code == 0, self._news
        assert shown_in(self._news, lines), f"{lines} not in {self._news}"


def shown_in(printed: str, lines: list[str]) -> Shown | None:
    """Find the lines in this order, with anything between them; None if one is missing."""
    end, port = 0, ""
    for line in lines:
        if line.strip(" ."):
            parts = re.escape(line.strip()).replace(r"\.\.\.", ".*").replace("PORT", r"(\d+)")
            found = re.compile(parts).search(printed, end)
            if found is None:
                return None
            end = found.end()
            port = found[1] if found.groups() else port
    return Shown(end, port)


@define
class Reader:
    """Follows pages in a directory; commands that still run at the end are killed."""

    directory: Path
    logs: Path
    changes: Mapping[str, str] = field(factory=dict)
    """Replacements for texts of the page, such as the address of a cluster."""
    env: dict[str, str] = field(factory=dict)
    terminals: list[Terminal] = field(factory=list)
    _port: str = ""

    def __enter__(self) -> Self:
        self.changes = {**{port: str(free_port()) for port in PORTS}, **self.changes}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self.terminals:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait(DEADLINE_S)

    def follow(self, page: Path) -> None:
        for block in all_blocks(page):
            if block.file is not None:
                self.write(block)
            elif block.language == "console":
                for command, output in typed_in(block):
                    self.type(self._changed(command), [self._changed(line) for line in output])
            elif block.language == "text":
                self._now_shown(block.text.splitlines())

    def write(self, block: Block) -> None:
        """Write a file of a page."""
        file = self.directory / str(block.file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._changed(block.text), "utf-8")

    def type(self, line: str, output: list[str]) -> None:
        """Run a line's command; its output must contain the lines."""
        if line.startswith("^C"):
            self.terminals.pop(0 if "first" in line else -1).stop(output)
            return
        words = shlex.split(line.partition("  #")[0])
        match words[0]:
            case "pip" | "docker":
                return
            case "cd":
                self.directory /= words[1]
            case "export":
                name, _, value = words[1].partition("=")
                self.env[name] = value.replace("PORT", self._port)
            case "window-consumer" if words[1] in KEEP_RUNNING:
                self._start(words[1:], output)
            case _:
                self._run(words, output)

    def _start(self, arguments: list[str], output: list[str]) -> None:
        if arguments[0] == "dev":
            arguments = [*arguments, "--no-open"]
        log = self.logs / f"terminal-{len(self.terminals)}-{arguments[0]}.log"
        with log.open("wb") as file:
            process = fork_server.start(arguments, self.directory, self._environment, output=file)
        terminal = Terminal(process, log)
        self.terminals.append(terminal)
        self._port = terminal.wait_for(output).port or self._port

    def _run(self, words: list[str], output: list[str]) -> None:
        """Run a command, again while it does not print that yet: others may still be busy."""
        deadline = time.monotonic() + (PATIENCE_S if output else 0)
        while True:
            code, printed = self._result_of(words)
            if code == 0 and shown_in(printed, output) is not None:
                return
            assert time.monotonic() < deadline, f"{words} printed:\n{printed}\nand not {output}"

    def _result_of(self, words: list[str]) -> tuple[int, str]:
        if words[0] == "window-consumer":
            process = fork_server.start(words[1:], self.directory, self._environment)
            assert process.stdout is not None
            assert process.stderr is not None
            with process.stdout, process.stderr:
                printed = process.stdout.read() + process.stderr.read()
            return process.wait(DEADLINE_S), printed
        assert words[0] in {"python", *PROGRAMS}, words
        if words[0] == "python":
            words = [sys.executable, *words[1:]]
        done = subprocess.run(
            words,
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    @property
    def _environment(self) -> dict[str, str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        plugins = {"PYTEST_ADDOPTS": "-p no:cacheprovider -p no:benchmark"}
        return {**ours, **plugins, "PYTHONDONTWRITEBYTECODE": "1", **self.env}

    def _now_shown(self, lines: list[str]) -> None:
        terminal = self.terminals[-1]
        terminal.read += terminal.wait_for([self._changed(line) for line in lines]).end

    def _changed(self, text: str) -> str:
        """Replace all at once: a port may contain another one."""
        names = "|".join(map(re.escape, self.changes))
        return re.sub(names, lambda found: self.changes[found[0]], text)


def typed_in(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a block, each with its output."""
    command, output = "", list[str]()
    for line in block.text.splitlines():
        if line.startswith(("$ ", "^C")):
            if command:
                yield command, output
            command, output = line.removeprefix("$ "), []
        else:
            output.append(line)
    yield command, output


def in_order(folder: str) -> list[Path]:
    return sorted((ROOT / "docs" / folder).glob("*.md"))
