"""The main program of a child process.

``child_process`` starts it and sends it, over a pipe, how to build the handler. The main thread
runs the same loop as a thread of a thread pool, but claims each record by a token (see
``shared_memory``).

It ignores signals meant for the application: the parent decides when it ends. If the parent dies,
the kernel kills the child.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Final, NamedTuple

from attrs import frozen

from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.record import Message
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.context import Slot, current_slot
from window_consumer.runtime.error_report import lifespan_error
from window_consumer.runtime.pools.processes import child_batch as forks
from window_consumer.runtime.pools.processes.child_batch import run_batch
from window_consumer.runtime.pools.processes.child_logs import LogSettings, logs_apart, to_parent
from window_consumer.runtime.pools.processes.child_slice import ReceivedCall, ReceivedSlice
from window_consumer.runtime.pools.processes.serialization import SerializedSlice
from window_consumer.runtime.pools.processes.shared_memory import SharedSlots

STACK_SIGNAL: Final = signal.SIGRTMAX - 3
"""Requests the stack. A real-time signal, because applications use the others. The answer comes
even while the handler holds the interpreter lock."""

_DEATH_OF_PARENT: Final = 1  # PR_SET_PDEATHSIG
_NAME: Final = 15  # PR_SET_NAME


@frozen
class ChildTools:
    """The tools of a child for calling handlers."""

    caller: Caller
    lifespan: AbstractContextManager[Any]
    attempts_before: Callable[[Message], int]
    """For copies: the number of earlier calls, in other deliveries."""
    handlers: Sequence[str] = ()
    """The names of the handlers, if there are several."""


Equip = Callable[[], ChildTools]
"""Builds the tools in the child. It is pickled, so it holds plain values and names."""


class ChildBoot(NamedTuple):
    """The first message to a child."""

    argv: list[str]
    """The parent's command line, which the application may read while it is imported."""
    path: list[str]
    """The module search path; set before unpickling, which imports some modules."""
    equip: bytes
    logs: LogSettings
    gc_threshold: tuple[int, int, int]
    freezes: bool
    switch_interval_s: float


class ChildLoaded(NamedTuple):
    """Message: the application is imported, and its lifespan comes next."""


class Ready(NamedTuple):
    """Message: handlers can be called."""

    handlers: Sequence[str]
    """In the order of their numbers in the shared slots."""


class ChildBroken(NamedTuple):
    """Message: the child cannot begin."""

    text: str
    is_usage: bool
    """Whether the configuration or the application must be corrected."""


class Finished(NamedTuple):
    """Message: the child has finished a slice."""

    serial: int
    elapsed_s: float


def main() -> None:
    """Run a child to its end."""
    name, parent, down, up, stack, slot_memory = sys.argv[1:]
    _tie_to(int(parent), name)
    listening = Connection(int(down), writable=False)
    speaker = ChildPipe(Connection(int(up), readable=False))
    faulthandler.register(STACK_SIGNAL, int(stack), all_threads=False)
    # Ignored signals would stay ignored in programs that handlers start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    threading.current_thread().name = name
    slot_memory_ = SharedSlots(int(slot_memory))
    fds = [int(fd) for fd in (down, up, stack, slot_memory)]
    for fd in fds:
        os.set_inheritable(fd, False)
    forks.keep_apart(fds, logs_apart)
    try:
        boot: ChildBoot = pickle.loads(listening.recv_bytes())  # noqa: S301 - from our own parent
        equipment = _equipped(boot, speaker)
        if equipment is not None:
            _serve(boot, equipment, SlotLoop(equipment, slot_memory_, listening, speaker))
    except EOFError:
        os._exit(1)  # the parent is gone, and the kernel signals it late


def _nothing(_number: int, _frame: object) -> None:
    """Ignore the signal; the parent reacts to it."""


def _tie_to(parent: int, name: str) -> None:
    """Let the child die with its parent, and set the process's visible name."""
    libc = ctypes.CDLL(None)
    libc.prctl(_DEATH_OF_PARENT, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_NAME, name[-15:].encode(), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before prctl


class ChildPipe:
    """Sends messages to the parent, from any thread. A child that cannot send ends at once."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send a message that can be pickled."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            try:
                self._connection.send_bytes(data)
            except OSError:
                # The parent is gone, or the application has closed our file descriptor. Exit hard:
                # the application's threads would keep a useless process alive.
                os._exit(1)


def _equipped(boot: ChildBoot, speaker: ChildPipe) -> ChildTools | None:
    sys.argv[:] = boot.argv
    sys.path[:] = boot.path
    to_parent(boot.logs, speaker.send)
    gc.set_threshold(*boot.gc_threshold)
    sys.setswitchinterval(boot.switch_interval_s)
    try:
        equip: Equip = pickle.loads(boot.equip)  # noqa: S301 - from our own parent
        return equip()
    except UsageError as error:
        speaker.send(ChildBroken(str(error), is_usage=True))
    except BaseException as error:
        text = traceback.format_exc() if not isinstance(error, WindowConsumerError) else str(error)
        speaker.send(ChildBroken(f"the application could not be loaded: {text}", is_usage=False))
    return None


def _serve(boot: ChildBoot, equipment: ChildTools, loop: SlotLoop) -> None:
    lifespan = equipment.lifespan
    loop.speaker.send(ChildLoaded())
    try:
        state = lifespan.__enter__()
    except BaseException as error:
        loop.speaker.send(ChildBroken(str(lifespan_error(error)), is_usage=False))
        return
    if boot.freezes:
        gc.freeze()
    loop.speaker.send(Ready(equipment.handlers))
    loop.run(state)
    lifespan.__exit__(None, None, None)


class SlotLoop:
    """Works through slices until the parent ends it. Owner: the main thread."""

    def __init__(
        self,
        equipment: ChildTools,
        slot_memory: SharedSlots,
        listening: Connection,
        speaker: ChildPipe,
    ):
        self._equipment = equipment
        self._slot_memory = slot_memory
        self._listening = listening
        self.speaker = speaker

    def run(self, state: Any) -> None:
        """Call handlers until the parent sends the end."""
        slot = Slot()
        current_slot.set(slot)
        numbers = {name: number for number, name in enumerate(self._equipment.handlers, 1)}
        while data := self._listening.recv_bytes():
            serialized = SerializedSlice(*pickle.loads(data))  # noqa: S301 - from our own parent
            del data
            started = perf_counter()
            shared_slot = self._slot_memory.shared_slots[serialized.shared_slot]
            before = self._equipment.attempts_before if serialized.is_copy else None
            call = ReceivedCall(serialized.attempt, state, before, shared_slot, numbers)
            call.assignment = serialized.assignment
            call.whose = self._equipment.caller.whose
            if not shared_slot.take_whole():
                pass  # another slot has it
            elif serialized.is_batch:
                run_batch(
                    serialized, call, shared_slot, self.speaker.send, self._equipment.caller, slot
                )
            else:
                slice_ = ReceivedSlice(serialized, shared_slot, call, self.speaker.send)
                call_each(slice_, self._equipment.caller, slot)
            self.speaker.send(Finished(serialized.serial, perf_counter() - started))
