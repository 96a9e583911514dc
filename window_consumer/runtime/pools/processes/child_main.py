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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Final, NamedTuple

from attrs import frozen

from window_consumer.engine.scheduling.lanes import LaneOf
from window_consumer.engine.scheduling.slices import Deviations
from window_consumer.model.errors import (
    UsageError,
    WindowConsumerError,
)
from window_consumer.model.produce import Produce
from window_consumer.model.record import (
    Call,
    Message,
)
from window_consumer.runtime.context import (
    Slot,
    current_slot,
)
from window_consumer.runtime.pools.processes import child_batch as forks
from window_consumer.runtime.pools.processes.carried_errors import (
    CarriedFailure,
    carried,
)
from window_consumer.runtime.pools.processes.child_batch import run_batch
from window_consumer.runtime.pools.processes.child_logs import (
    LogSettings,
    logs_apart,
    to_parent,
)
from window_consumer.runtime.pools.processes.serialization import (
    Cargo,
    CrossedMessage,
    Row,
    unpacked,
)
from window_consumer.runtime.pools.processes.shared_memory import (
    CANCELLED,
    TOLD,
    Berth,
    Harbour,
)
from window_consumer.runtime.pools.threads import (
    Caller,
    call_each,
)
from window_consumer.runtime.running import lifespan_error

STACK_SIGNAL: Final = signal.SIGRTMAX - 3
"""Asks for the stack. A real-time signal: applications use others. It is answered even while the
handler keeps the interpreter to itself."""

_DEATH_OF_PARENT: Final = 1  # PR_SET_PDEATHSIG
_NAME: Final = 15  # PR_SET_NAME


@frozen
class Equipment:
    """What a child needs to call handlers."""

    caller: Caller
    lifespan: AbstractContextManager[Any]
    attempts_before: Callable[[Message], int]
    """For copies: how often a handler was called elsewhere."""
    handlers: Sequence[str] = ()
    """The names by which calls tell which of several handlers they are of."""


Equip = Callable[[], Equipment]
"""Makes it, in the child. It is pickled, so it holds plain values and names."""


class Boot(NamedTuple):
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


class Loaded(NamedTuple):
    """The child says: the application is imported; its lifespan comes next."""


class Ready(NamedTuple):
    """The child says: handlers can be called."""

    handlers: Sequence[str]
    """In the order of their numbers in the berths."""


class Broken(NamedTuple):
    """The child says: it cannot begin."""

    text: str
    is_usage: bool
    """The configuration or the application has to be put right."""


class Told(NamedTuple):
    """The child says of a record that its handler did not just return."""

    serial: int
    place: int
    """Among the records of the cargo."""
    failure: CarriedFailure | None
    is_skip: bool
    """It was skipped."""
    results: Sequence[Produce]
    """What its handler returned to be produced. A record with nothing of all this was held back."""
    handler: str
    is_filtered: bool = False
    """It was skipped, for it is for none of the handlers."""


class Finished(NamedTuple):
    """The child says: it is through with a cargo."""

    serial: int
    elapsed_s: float


def main() -> None:
    """Run a child to its end."""
    name, parent, down, up, stack, harbour = sys.argv[1:]
    _tie_to(int(parent), name)
    listening = Connection(int(down), writable=False)
    speaker = Speaker(Connection(int(up), readable=False))
    faulthandler.register(STACK_SIGNAL, int(stack), all_threads=False)
    # Not ignored: that would be passed on to programs that handlers start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    threading.current_thread().name = name
    harbour_ = Harbour(int(harbour))
    fds = [int(fd) for fd in (down, up, stack, harbour)]
    for fd in fds:
        os.set_inheritable(fd, False)
    forks.keep_apart(fds, logs_apart)
    try:
        boot: Boot = pickle.loads(listening.recv_bytes())  # noqa: S301 - from our own parent
        equipment = _equipped(boot, speaker)
        if equipment is not None:
            _serve(boot, equipment, SlotLoop(equipment, harbour_, listening, speaker))
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


class Speaker:
    """Tells the parent; any thread of the child may. A child that cannot ends at once."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._lock = threading.Lock()

    def say(self, message: object) -> None:
        """Send something that can be pickled."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            try:
                self._connection.send_bytes(data)
            except OSError:
                # The parent is gone, or the application has closed what is not its own. Threads of
                # the application would keep a process alive that is of no use.
                os._exit(1)


def _equipped(boot: Boot, speaker: Speaker) -> Equipment | None:
    sys.argv[:] = boot.argv
    sys.path[:] = boot.path
    to_parent(boot.logs, speaker.say)
    gc.set_threshold(*boot.gc_threshold)
    sys.setswitchinterval(boot.switch_interval_s)
    try:
        equip: Equip = pickle.loads(boot.equip)  # noqa: S301 - from our own parent
        return equip()
    except UsageError as error:
        speaker.say(Broken(str(error), is_usage=True))
    except BaseException as error:
        text = traceback.format_exc() if not isinstance(error, WindowConsumerError) else str(error)
        speaker.say(Broken(f"the application could not be loaded: {text}", is_usage=False))
    return None


def _serve(boot: Boot, equipment: Equipment, loop: SlotLoop) -> None:
    lifespan = equipment.lifespan
    loop.speaker.say(Loaded())
    try:
        state = lifespan.__enter__()
    except BaseException as error:
        loop.speaker.say(Broken(str(lifespan_error(error)), is_usage=False))
        return
    if boot.freezes:
        gc.freeze()
    loop.speaker.say(Ready(equipment.handlers))
    loop.run(state)
    lifespan.__exit__(None, None, None)


class SlotLoop:
    """Works through parcels until the parent says that it is over. Owner: the main thread."""

    def __init__(
        self, equipment: Equipment, harbour: Harbour, listening: Connection, speaker: Speaker
    ):
        self._equipment = equipment
        self._harbour = harbour
        self._listening = listening
        self.speaker = speaker

    def run(self, state: Any) -> None:
        """Call handlers."""
        slot = Slot()
        current_slot.set(slot)
        numbers = {name: number for number, name in enumerate(self._equipment.handlers, 1)}
        while data := self._listening.recv_bytes():
            cargo = Cargo(*pickle.loads(data))  # noqa: S301 - from our own parent
            del data
            started = perf_counter()
            berth = self._harbour.berths[cargo.berth]
            before = self._equipment.attempts_before if cargo.is_copy else None
            call = CrossedCall(cargo.attempt, state, before, berth, numbers)
            call.whose = self._equipment.caller.whose
            if not berth.take_whole():
                pass  # somebody else has it
            elif cargo.is_batch:
                run_batch(cargo, call, berth, self.speaker.say, self._equipment.caller, slot)
            else:
                slice_ = CrossedSlice(cargo, berth, call, self.speaker.say)
                call_each(slice_, self._equipment.caller, slot)
            self.speaker.say(Finished(cargo.serial, perf_counter() - started))


class CrossedCall(Call):
    """What a parcel's records share; the parent cancels it through the berth.

    It looks there, too, which of several handlers is called.
    """

    __slots__ = ("_berth", "_handler", "_numbers")

    def __init__(
        self,
        attempt: int,
        state: Any,
        before: Callable[[Message], int] | None,
        berth: Berth,
        numbers: Mapping[str, int],
    ):
        self._berth = berth
        self._numbers = numbers
        super().__init__(attempt, state, before)

    @property
    def handler(self) -> str:
        """Which of a worker's several handlers was called last; empty where it has one."""
        return self._handler

    @handler.setter
    def handler(self, name: str) -> None:
        self._handler = name
        if name:
            self._berth.note_handler(self._numbers[name])

    @property
    def cancelled(self) -> bool:
        """True once the result of the call will be ignored."""
        return bool(self._berth.words[CANCELLED])

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """Leave it to the parent."""


class CrossedSlice:
    """A slice as the slot's loop sees it in a child. Owner: the main thread."""

    def __init__(self, cargo: Cargo, berth: Berth, call: Call, say: Callable[[object], None]):
        self.call = call
        self.lane_of: LaneOf | None = cargo.ordering.lane_of if cargo.ordering else None
        self._serial = cargo.serial
        self._berth = berth
        self._say = say
        self._noted: Deviations | None = None
        self._told = 0
        self.unclaimed: Iterator[Message] = self._claim(unpacked(cargo))

    def deviate(self) -> Deviations:
        """Return where the slot notes records whose handler did not just return."""
        if self._noted is None:
            self._noted = Deviations()
        return self._noted

    def _claim(self, rows: Iterator[Row]) -> Iterator[Message]:
        """Yield the records that the parent does not take back."""
        take, add_to_over = self._berth.tokens.take, self._berth.over.add
        came_back = forks.came_back
        make = CrossedMessage
        for row in rows:
            if not take(False):
                return
            message = make()
            message.row = row
            yield message
            if came_back:
                forks.end()
            if self._noted is not None:
                # Before the next one is claimed: whoever takes the rest back then knows of it.
                self._tell()
            add_to_over()

    def _tell(self) -> None:
        place = self._berth.over.value  # those before it are over, and nobody else adds to them
        noted, self._noted = self._noted, None
        assert noted is not None
        failure = carried(noted.failed[0][1]) if noted.failed else None
        results = noted.returned[0].results if noted.returned else ()
        skipped = bool(noted.skipped)
        filtered = bool(noted.filtered)
        told = Told(self._serial, place, failure, skipped, results, self.call.handler, filtered)
        self._say(told)
        self._told += 1
        self._berth.words[TOLD] = self._told
