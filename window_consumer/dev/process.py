"""The application of ``dev``: a replaceable child process that runs ``window-consumer run``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from window_consumer.dev.error_output import ErrorOutput
from window_consumer.runtime.replica import NUMBER, PARENT, SOCKETS

READY: Final = "WINDOW_CONSUMER_DEV"
"""The variable with the file descriptor to which the child writes the address of its page."""

DRAIN_S: Final = 5.0
"""How long a reload waits for running calls. Unfinished ones run again."""

_AT_ONCE_S: Final = 1.0
"""How long a second SIGTERM may take, which ends at once unless the interpreter hangs."""

_LONGEST_URL: Final = 1024


class DevProcess:
    """Runs the application; each start is a new process with the current code.

    The child has its own session, so that Ctrl-C reaches it only through its parent. It drains when
    the parent is gone. Owner: the main thread, whose end counts as the parent's.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]):
        """``arguments`` are those of ``window-consumer``."""
        self._command = [sys.executable, "-m", "window_consumer", *arguments]
        apart = {NUMBER, SOCKETS}  # it is not a replica, even if this process is
        self._environment = {key: text for key, text in environment.items() if key not in apart}
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None
        self._errors: ErrorOutput | None = None

    @property
    def is_running(self) -> bool:
        """Return whether there is a process that ``exit_code`` has not reported yet."""
        return self._process is not None

    def start(self) -> None:
        """Start a process; the last one has ended."""
        ready, report = os.pipe()
        os.set_blocking(ready, False)
        self._ready = ready
        environment = {**self._environment, PARENT: str(os.getpid()), READY: str(report)}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[report],
                start_new_session=True,
            )
        finally:
            os.close(report)
        assert self._process.stderr is not None
        self._errors = ErrorOutput(self._process.stderr)

    def last_lines(self) -> str:
        """Return the end of the last process's stderr."""
        return "" if self._errors is None else self._errors.last_lines()

    def page(self) -> str | None:
        """Return the address of its page, once: when its workers start."""
        if self._ready is None:
            return None
        try:
            found = os.read(self._ready, _LONGEST_URL)
        except BlockingIOError:
            return None
        self._close_pipe()
        return found.decode() or None

    def exit_code(self) -> int | None:
        """Return the exit code, once, if it has ended by itself."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._process = None
            self._close_pipe()
        return code

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Let it drain and commit, and end it if that takes longer than ``drain_s`` seconds."""
        process, self._process = self._process, None
        self._close_pipe()
        if process is None:
            return
        for number, wait_s in ((signal.SIGTERM, drain_s), (signal.SIGTERM, _AT_ONCE_S)):
            process.send_signal(number)
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue
            return
        process.kill()
        process.wait()

    def _close_pipe(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None
