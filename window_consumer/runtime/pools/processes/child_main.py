"""A slot as a process: what runs in the child.

``child`` starts it, and says over a pipe what to make the handler of. The main thread calls the
handler, as one thread of a pool of threads would: with the same loop, for which a record is claimed
by a token (see ``shared_memory``).

Signals that are meant for the application end nothing here: the parent says when to end. Should the
parent be gone, the kernel kills the child.
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

from window_consumer.model.errors import (
    UsageError,
    WindowConsumerError,
)
from window_consumer.model.record import (
    Message,
)
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.context import (
    Slot,
    current_slot,
)
from window_consumer.runtime.error_report import lifespan_error
from window_consumer.runtime.pools.processes import child_batch as forks
from window_consumer.runtime.pools.processes.child_batch import run_batch
from window_consumer.runtime.pools.processes.child_logs import (
    LogSettings,
    logs_apart,
    to_parent,
)
from window_consumer.runtime.pools.processes.child_slice import ReceivedCall, ReceivedSlice
from window_consumer.runtime.pools.processes.serialization import (
    SerializedSlice,
)
from window_consumer.runtime.pools.processes.shared_memory import (
    SharedSlots,
)

STACK_SIGNAL: Final = signal.SIGRTMAX - 3
"""Asks for the stack. A real-time signal: applications use others. It is answered even while the
handler keeps the interpreter to itself."""

_DEATH_OF_PARENT: Final = 1  # PR_SET_PDEATHSIG
_NAME: Final = 15  # PR_SET_NAME


@frozen
class ChildTools:
    """What a child needs to call handlers."""

    caller: Caller
    lifespan: AbstractContextManager[Any]
    attempts_before: Callable[[Message], int]
    """For copies: how often a handler was called elsewhere."""
    handlers: Sequence[str] = ()
    """The names by which calls tell which of several handlers they are of."""


Equip = Callable[[], ChildTools]
"""Makes it, in the child. It is pickled, so it holds plain values and names."""


class ChildBoot(NamedTuple):
    """The first thing that a child hears."""

    argv: list[str]
    """An application may look at the command line while it is imported."""
    path: list[str]
    """Where modules are looked for: unpickling the rest imports some."""
    equip: bytes
    logs: LogSettings
    gc_threshold: tuple[int, int, int]
    freezes: bool
    switch_interval_s: float


class ChildLoaded(NamedTuple):
    """The child says: the application is imported; its lifespan comes next."""


class Ready(NamedTuple):
    """The child says: handlers can be called."""

    handlers: Sequence[str]
    """In the order of their numbers in the berths."""


class ChildBroken(NamedTuple):
    """The child says: it cannot begin."""

    text: str
    is_usage: bool
    """The configuration or the application has to be put right."""


class Finished(NamedTuple):
    """The child says: it is through with a cargo."""

    serial: int
    elapsed_s: float


def main() -> None:
    """Run a child to its end."""
    name, parent, down, up, stack, slot_memory = sys.argv[1:]
    _tie_to(int(parent), name)
    listening = Connection(int(down), writable=False)
    speaker = ChildPipe(Connection(int(up), readable=False))
    faulthandler.register(STACK_SIGNAL, int(stack), all_threads=False)
    # Not ignored: that would be passed on to programs that handlers start.
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
        os._exit(1)  # the parent is gone, and the kernel is slow to say so


def _nothing(_number: int, _frame: object) -> None:
    """Leave it to the parent."""


def _tie_to(parent: int, name: str) -> None:
    """Let the child end with its parent, and people see which one it is."""
    libc = ctypes.CDLL(None)
    libc.prctl(_DEATH_OF_PARENT, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_NAME, name[-15:].encode(), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before the first of these lines


class ChildPipe:
    """Tells the parent; any thread of the child may. A child that cannot ends at once."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send something that can be pickled."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            try:
                self._connection.send_bytes(data)
            except OSError:
                # The parent is gone, or the application has closed what is not its own. Threads of
                # the application would keep a process alive that is of no use.
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
    """Works through parcels until the parent says that it is over. Owner: the main thread."""

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
        """Call handlers."""
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
            call.whose = self._equipment.caller.whose
            if not shared_slot.take_whole():
                pass  # somebody else has it
            elif serialized.is_batch:
                run_batch(
                    serialized, call, shared_slot, self.speaker.send, self._equipment.caller, slot
                )
            else:
                slice_ = ReceivedSlice(serialized, shared_slot, call, self.speaker.send)
                call_each(slice_, self._equipment.caller, slot)
            self.speaker.send(Finished(serialized.serial, perf_counter() - started))
