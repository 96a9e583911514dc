"""Commands that start at once: forks of a process that has imported the command line.

``python -m window_consumer`` takes half a second to import what every command needs, and the tests
start some thousand commands. A fork is the same: a process of its own with its own directory,
environment, output, signals and exit code, which imports by itself what only this command needs.
The server has one thread and no connections when it forks.

``python -m tests.fork_server FD`` is the server; FD is its end of a socket.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from attrs import define, field, frozen

_ROOT = Path(__file__).parents[1]
_READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "OTEL_PYTHON_", "OTEL_PROPAGATORS")
"""Variables that Python and imported libraries read when they start, by their beginnings."""

_MOST_BYTES = 1 << 17
"""One message holds a request; the kernel takes messages of about 200,000 bytes."""


class Forked:
    """A command, with the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, status: int, stdout: IO[str] | None, stderr: IO[str] | None):
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()
        self.pid = self._next_number()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the command runs."""
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to a command that runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the command at once."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._next_number()
        os.close(self._status)

    def _next_number(self) -> int:
        # Eight bytes each: written at once, so read at once.
        found = os.read(self._status, 8)
        assert found, "the server that forks commands has ended"
        return int(found)


@define
class _Server:
    """The other end of a server's socket."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    lock: threading.Lock = field(factory=threading.Lock)

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> _Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
        with theirs:
            process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        server = cls(process, ours)
        atexit.register(server.close)
        return server

    def close(self) -> None:
        self.control.close()
        self.process.wait()


_servers: dict[frozenset[tuple[str, str]], _Server] = {}
_starting = threading.Lock()


def start(
    arguments: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    *,
    output: IO[bytes] | None = None,
    typed: str = "",
) -> Forked:
    """Start ``window-consumer`` with these arguments; without ``output`` it writes into pipes.

    ``typed`` is all of its input: less than a pipe holds.
    """
    key = frozenset(item for item in environment.items() if item[0].startswith(_READ_AT_START))
    with _starting:
        if key not in _servers:
            _servers[key] = _Server.start(environment)
        server = _servers[key]
    request = json.dumps([*arguments]), str(directory), json.dumps({**environment}), typed
    read_status, status = os.pipe()
    if output is None:
        (read_out, out), (read_err, err) = os.pipe(), os.pipe()
    else:
        out = err = output.fileno()
    with server.lock:
        socket.send_fds(server.control, [json.dumps(request).encode()], [status, out, err])
    os.close(status)
    if output is not None:
        return Forked(read_status, None, None)
    os.close(out)
    os.close(err)
    return Forked(read_status, os.fdopen(read_out), os.fdopen(read_err))


@frozen
class _Request:
    """A command to start, in the process that becomes it."""

    arguments: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    typed: str
    out: int
    err: int

    @classmethod
    def of(cls, message: bytes, out: int, err: int) -> _Request:
        arguments, directory, environment, typed = json.loads(message)
        return cls(json.loads(arguments), directory, json.loads(environment), typed, out, err)

    def run(self) -> None:
        """Become ``python -m window_consumer``."""
        if self.typed:
            given, written = os.pipe()
            os.write(written, self.typed.encode())
            os.dup2(given, 0)
        os.dup2(self.out, 1)
        os.dup2(self.err, 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[0] = self.directory
        sys.argv[1:] = self.arguments
        runpy.run_module("window_consumer", run_name="__main__", alter_sys=True)


def _serve(control: int) -> _Request | None:
    """Fork a process for each request; return its request there, and None here at the end."""
    running: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    with socket.socket(fileno=control) as connection:
        while True:
            for ready, _ in poll.poll():
                if ready != control:
                    poll.unregister(ready)
                    os.close(ready)
                    _report_end(*running.pop(ready))
                    continue
                message, fds, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
                if not message:
                    return None
                status, out, err = fds
                pid = os.fork()
                if pid == 0:
                    connection.detach()
                    return _Request.of(message, out, err)
                os.close(out)
                os.close(err)
                os.write(status, b"%8d" % pid)
                end = os.pidfd_open(pid)
                running[end] = pid, status
                poll.register(end, select.POLLIN)


def _report_end(pid: int, status: int) -> None:
    _, waited = os.waitpid(pid, 0)
    os.write(status, b"%8d" % os.waitstatus_to_exitcode(waited))
    os.close(status)


def _main() -> None:
    import window_consumer.cli.main  # noqa: F401, PLC0415 - here, and not where tests import this

    # Otherwise each fork would spend 0.1 s at its end on freeing what was imported.
    gc.freeze()
    request = _serve(int(sys.argv[1]))
    if request is not None:
        request.run()


if __name__ == "__main__":
    _main()
