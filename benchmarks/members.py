"""Members of one group as child processes: killed and replaced, joined and left by others."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from benchmarks import children, usage
from window_consumer.model.errors import RunError
from window_consumer.runtime.running import Running
from window_consumer.testing.events import Killed

MEMBERS: Final = 2
"""How many run at any time."""

_START_S: Final = 120.0
_STOP_S: Final = 60.0
_CHECK_S: Final = 0.25
_ENVIRONMENT: Final = "MEMBER_HAS_STARTED"
"""Names the file that a member creates once it has started and handles SIGTERM."""
_SIGN: Final = ".started"


@define
class Members:
    """The members of a group. Each is started with its name and the file for its output."""

    command: Callable[[str, Path], Sequence[str]]
    folder: Path
    killed: list[Killed] = field(factory=list)
    _processes: dict[str, subprocess.Popen[bytes]] = field(factory=dict)
    _numbers: Iterator[int] = field(factory=count)

    def join(self) -> str:
        """Start a member and return its name."""
        name = f"m{next(self._numbers)}"
        command = self.command(name, self.folder / name)
        environment = {**os.environ, _ENVIRONMENT: str(self._sign_of(name))}
        process = subprocess.Popen(command, cwd=children.CHECKOUT, env=environment)
        self._processes[name] = process
        return name

    def kill(self, name: str) -> None:
        """Kill a member with -9, once it has started."""
        self._wait_for(name)
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        self.killed.append(Killed(name, time.monotonic()))

    def leave(self, name: str) -> None:
        """Stop a member, once it has started. Raises RunError if it fails."""
        self._wait_for(name)
        process = self._processes.pop(name)
        process.terminate()
        if code := process.wait(_STOP_S):
            raise RunError(f"member {name} ended with code {code}")

    def peak_rss_mb(self, name: str) -> float:
        """Return the peak resident memory of a running member, in MiB."""
        return usage.peak_rss_mb(self._processes[name].pid)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a member that has started."""
        self._wait_for(name)
        self._processes[name].send_signal(number)

    def check(self) -> None:
        """Raise RunError if a member has ended by itself."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise RunError(f"member {name} ended by itself with code {process.returncode}")

    def disturb(self, kills: int, rebalances: int, every_s: float) -> None:
        """Kill one member after the other; before some kills another joins, which then leaves."""
        steady = [self.join() for _ in range(MEMBERS)]
        for kill in range(kills):
            joins = (kill + 1) * rebalances // kills > kill * rebalances // kills
            self.rest(every_s / 2)
            guest = self.join() if joins else None
            self.rest(every_s / 2)
            self.kill(steady[kill % MEMBERS])
            steady[kill % MEMBERS] = self.join()
            if guest is not None:
                self.leave(guest)

    def until(self, holds: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Wait. Raises RunError after the deadline, and if a member ends by itself."""
        ends = time.monotonic() + deadline_s
        while not holds():
            if time.monotonic() > ends:
                raise RunError(f"{what}: not within {deadline_s:g} s")
            self.rest(_CHECK_S)

    def leave_all(self) -> None:
        """Stop all members. Raises RunError if one fails."""
        for name in list(self._processes):
            self.leave(name)

    def files(self) -> Iterator[Path]:
        """Yield the members' files."""
        yield from sorted(each for each in self.folder.iterdir() if each.suffix != _SIGN)

    def end(self) -> None:
        """Kill those that still run."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _sign_of(self, name: str) -> Path:
        return (self.folder / name).with_suffix(_SIGN)

    def _wait_for(self, name: str) -> None:
        self.until(self._sign_of(name).exists, f"the start of member {name}", _START_S)

    def rest(self, seconds: float) -> None:
        """Wait. Raises RunError if a member ends by itself."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _CHECK_S))


@contextmanager
def started(command: Callable[[str, Path], Sequence[str]], folder: Path) -> Iterator[Members]:
    """Yield the members of a group; none outlives the block."""
    members = Members(command, folder)
    try:
        yield members
    finally:
        members.end()


def serve(running: Running) -> dict[str, Any]:
    """Run an application until SIGTERM: a child process. Raises RunError if it fails."""
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    Path(os.environ[_ENVIRONMENT]).touch()
    running.wait()
    if running.failure is not None:
        raise RunError(f"the worker failed: {running.failure}") from running.failure
    return {}
