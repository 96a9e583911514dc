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
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from traceback import FrameSummary
from typing import Any, Final

from window_consumer.model.errors import RunError
from window_consumer.runtime.pools.processes.child_logs import LogSettings
from window_consumer.runtime.pools.processes.child_main import STACK_SIGNAL, ChildBoot
from window_consumer.runtime.pools.processes.remote_slice import Posted
from window_consumer.runtime.pools.processes.serialization import packed, pickled
from window_consumer.runtime.pools.processes.shared_memory import SharedSlots

_PIPE_BYTES: Final = 2**20
"""A pipe holds a whole slice, so that the next one is ready when the child wants it."""

STACK_S: Final = 0.25
"""How long to wait for a child's stack: longer than any child needs, unless it is stopped."""

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_LAST_FRAME = '"<string>", line 1 in <module>'

_WHERE_WE_ARE = str(Path(__file__).parents[4])
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from window_consumer.runtime.pools.processes.child_main import main; main()"
)


class Child:
    """One child process. Owners: the thread that keeps its slot, and the one that feeds it.

    It is spawned, so it inherits none of the parent's threads, locks and connections. It dies with
    the thread that made it.
    """

    def __init__(self, name: str, equip: bytes):
        self.name = name
        self.slot_memory = SharedSlots()
        self.posted: SimpleQueue[Posted | None] = SimpleQueue()
        """Slices to send; None ends the child after everything before it."""
        child_down, down = os.pipe()
        up, child_up = os.pipe()
        stack, child_stack = os.pipe()
        os.set_blocking(stack, False)
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
        self._down = Connection(down, readable=False)
        self._up = Connection(up, writable=False)
        self._stack = stack
        self._end = os.pidfd_open(self.process.pid)
        self._news = select.poll()
        self._news.register(up, select.POLLIN)
        self._news.register(self._end, select.POLLIN)
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
        self._send(pickle.dumps(boot))

    def feed(self, look: Callable[[], float | None]) -> None:
        """Send what is posted, until the end. Runs on a separate thread.

        Calls ``look`` before each wait, and again after as many seconds as it returns.
        """
        while True:
            timeout_s = look()
            try:
                item = self.posted.get(timeout=timeout_s)
            except Empty:
                continue
            if item is None:
                break
            slice_, messages = item.slice_, item.messages
            try:
                serialized = pickled(packed(item.serial, item.shared_slot, slice_, messages))
            except Exception as error:
                first = f"{slice_.partition.name}@{messages[0].offset()}"
                raise RunError(f"{len(messages)} records from {first} on cannot cross") from error
            self._send(serialized)
            del item, slice_, messages, serialized
        with contextlib.suppress(OSError):
            self._down.send_bytes(b"")

    def _send(self, data: bytes | memoryview) -> None:
        # Ignore a dead child: its keeper detects the end reliably.
        with contextlib.suppress(OSError):
            self._down.send_bytes(data)

    def receive(self) -> Any:
        """Return the child's next message; raise EOFError once it has ended."""
        # Programs started by a handler may hold the pipe open, so end of file is no proof of the
        # end.
        if all(fd == self._end for fd, _ in self._news.poll()):
            raise EOFError
        try:
            return pickle.loads(self._up.recv_bytes())  # noqa: S301 - from our own child
        except OSError as error:
            raise EOFError from error

    def kill(self) -> None:
        """Kill the child, whatever it does."""
        self.process.kill()

    def wait(self, timeout_s: float) -> int:
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
        """Return the requested stack, as far as it has arrived by ``deadline``."""
        text = ""
        while _LAST_FRAME not in text:
            left_s = max(0.0, deadline - perf_counter())
            if not select.select([self._stack], [], [], left_s)[0]:
                break
            text += os.read(self._stack, 65536).decode("utf-8", "replace")
        found = map(_FRAME.fullmatch, text.splitlines())
        frames = [FrameSummary(each[1], int(each[2]), each[3]) for each in found if each]
        return frames[::-1]

    def close(self) -> None:
        """Release the resources of a child that has ended and is no longer used."""
        self.process.wait()
        self._down.close()
        self._up.close()
        os.close(self._stack)
        os.close(self._end)
        self.slot_memory.close()


def end_in_words(returncode: int) -> str:
    """Describe how a process ended."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
