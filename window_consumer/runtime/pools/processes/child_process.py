"""A child process as seen by its parent: start, messages, stack requests, end."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pickle
import re
import select
import signal
import subprocess
import sys
from math import ceil
from pathlib import Path
from struct import Struct
from time import perf_counter
from traceback import FrameSummary
from typing import Any, Final

from window_consumer.runtime.pools.processes.child_logs import LogSettings
from window_consumer.runtime.pools.processes.child_main import STACK_SIGNAL, ChildBoot
from window_consumer.runtime.pools.processes.shared_memory import SharedSlots

_PIPE_BYTES: Final = 2**20
"""A pipe holds a whole slice, so that the next one is ready when the child wants it."""

_READ_BYTES: Final = 2**16
"""As much as a pipe from a child holds."""

_SIZE, _LONG_SIZE = Struct("!i"), Struct("!Q")
_MAX_SIZE: Final = 2**31 - 1

STACK_S: Final = 0.25
"""How long to wait for a child's stack: longer than any running child needs."""

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_LAST_FRAME = '"<string>", line 1 in <module>'

_WHERE_WE_ARE = str(Path(__file__).parents[4])
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from window_consumer.runtime.pools.processes.child_main import main; main()"
)


class Child:
    """One child process. Owner: its thread; the pool may also kill it and request stacks.

    It is spawned, so it inherits none of the parent's threads, locks and connections. It dies with
    the thread that made it.
    """

    def __init__(self, name: str, equip: bytes, wake: int):
        """Start a process. An event on the file ``wake`` ends ``wait``."""
        self.name = name
        self.slot_memory = SharedSlots()
        child_down, down = os.pipe()
        up, child_up = os.pipe()
        stack, child_stack = os.pipe()
        os.set_blocking(stack, False)
        os.set_blocking(down, False)
        with contextlib.suppress(OSError):  # as large as the system allows
            fcntl.fcntl(down, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        given = (child_down, child_up, child_stack, self.slot_memory.fd)
        # Block signals until the child can handle them; the process group's are for the parent.
        waiting = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing does
                    *("-c", _PROGRAM, _WHERE_WE_ARE),
                    *(name, str(os.getpid()), *map(str, given)),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=given,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
            for fd in (child_down, child_up, child_stack):
                os.close(fd)
        self._down, self._up, self._stack, self._wake = down, up, stack, wake
        self._end = os.pidfd_open(self.process.pid)
        self._poll = select.poll()
        self._poll.register(up, select.POLLIN)
        self._poll.register(self._end, select.POLLIN)
        self._poll.register(wake, select.POLLIN)
        self._unsent: list[bytes | memoryview] = []
        """Bytes that the pipe to the child has not taken yet."""
        self._received = bytearray()
        """The received parts of incomplete messages."""
        self._boot(equip)

    def _boot(self, equip: bytes) -> None:
        boot = ChildBoot(
            sys.argv,
            [path or os.getcwd() for path in sys.path],  # noqa: PTH109 - sys.path has strings
            equip,
            LogSettings.of_this_process(),
            gc.get_threshold(),
            freezes=bool(gc.get_freeze_count()),
            switch_interval_s=sys.getswitchinterval(),
        )
        self.send(pickle.dumps(boot))

    def send(self, data: bytes | memoryview) -> None:
        """Send a message now; ``wait`` sends the part that the pipe does not take."""
        self._unsent += [_header(len(data)), data]
        self._flush()

    def _flush(self) -> None:
        # A pipe that takes nothing for now must not block: the child may be blocked as well, until
        # its own messages are read.
        try:
            while self._unsent:
                self._remove_sent(os.writev(self._down, self._unsent))
        except BlockingIOError:
            self._poll.register(self._down, select.POLLOUT)
            return
        except OSError:
            self._unsent.clear()  # ignore a dead child: its end is detected reliably
        with contextlib.suppress(KeyError):
            self._poll.unregister(self._down)

    def _remove_sent(self, sent: int) -> None:
        while self._unsent and sent >= len(self._unsent[0]):
            sent -= len(self._unsent.pop(0))
        if sent:
            self._unsent[0] = memoryview(self._unsent[0])[sent:]

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for messages of the child, its end, or ``wake``; return whether to ``receive``."""
        timeout_ms = None if timeout_s is None else ceil(timeout_s * 1000.0)
        ready = {fd for fd, _ in self._poll.poll(timeout_ms)}
        if self._down in ready:
            self._flush()
        if self._wake in ready:
            os.eventfd_read(self._wake)
        return self._up in ready or self._end in ready

    def receive(self) -> list[Any]:
        """Return the messages that have arrived; raise EOFError once the child has ended.

        Raises other errors for a message that cannot be read.
        """
        # Programs started by a handler may hold the pipe open, so end of file does not prove the
        # end.
        if not select.select([self._up], [], [], 0.0)[0]:
            raise EOFError
        data = os.read(self._up, _READ_BYTES)
        if not data:
            raise EOFError
        self._received += data
        return [pickle.loads(each) for each in self._frames()]  # noqa: S301 - from our own child

    def _frames(self) -> list[bytes]:
        """Remove the complete messages from what was received."""
        received, frames, start = self._received, [], 0
        while (body := start + _SIZE.size) <= len(received):
            (size,) = _SIZE.unpack_from(received, start)
            if size < 0:  # it is longer than 2 GiB
                if body + _LONG_SIZE.size > len(received):
                    break
                (size,) = _LONG_SIZE.unpack_from(received, body)
                body += _LONG_SIZE.size
            if body + size > len(received):
                break
            start = body + size
            frames.append(bytes(received[body:start]))
        del received[:start]
        return frames

    def kill(self) -> None:
        """Kill the child, whatever it does."""
        self.process.kill()

    def wait_for_end(self, timeout_s: float) -> int:
        """Wait for the end of a silent child, and kill it after ``timeout_s``.

        Returns its exit code; for a signal, the negative of its number.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout_s)
        self.kill()
        return self.process.wait()

    def frames(self) -> list[FrameSummary]:
        """Return the stack of its main thread, innermost frame last; empty without an answer."""
        deadline = perf_counter() + STACK_S
        while True:
            self.ask_for_frames()
            frames = self.asked_frames(min(deadline, perf_counter() + STACK_S / 5))
            # If another thread takes the signal during an earlier answer, no new answer comes.
            if frames or perf_counter() >= deadline:
                return frames

    def ask_for_frames(self) -> None:
        """Request the stack of its main thread, without waiting for the answer."""
        with contextlib.suppress(OSError):
            while os.read(self._stack, 65536):
                pass
        self.process.send_signal(STACK_SIGNAL)

    def asked_frames(self, deadline: float) -> list[FrameSummary]:
        """Return the part of the requested stack that arrives by ``deadline``."""
        text = ""
        while _LAST_FRAME not in text:
            left_s = max(0.0, deadline - perf_counter())
            if not select.select([self._stack], [], [], left_s)[0]:
                break
            data = os.read(self._stack, 65536)
            if not data:
                break  # the child has ended: its pipe stays readable
            text += data.decode("utf-8", "replace")
        found = map(_FRAME.fullmatch, text.splitlines())
        frames = [FrameSummary(each[1], int(each[2]), each[3]) for each in found if each]
        return frames[::-1]

    def close(self) -> None:
        """End the child, if it has not ended, and release its resources."""
        self.kill()
        self.process.wait()
        for fd in (self._down, self._up, self._stack, self._end):
            os.close(fd)
        self.slot_memory.close()


def _header(size: int) -> bytes:
    """Return the header of a message, in the format that ``multiprocessing`` reads."""
    return _SIZE.pack(size) if size <= _MAX_SIZE else _SIZE.pack(-1) + _LONG_SIZE.pack(size)


def end_in_words(returncode: int) -> str:
    """Describe how a process ended."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
