"""What others ask of a pool, and of a kind of pool, whatever its slots are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol, runtime_checkable

from attrs import field, frozen

from window_consumer.engine.guards.stalls import (
    Ending,
    Stalled,
)
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.windows_snapshot import LoopSnapshot
from window_consumer.model.fault import Failure
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.figures.stack_dump import ChildPicture, Coroutines
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.pools.event_loop import EventLoop


class Pool(Protocol):
    """Slots between the poll thread and the handlers. Owner: poll thread, ``stop`` aside.

    Each slice that was submitted comes back once, through the completions queue, when all of its
    records that nobody took back are over. An abandoned slice comes back when its call has really
    ended, which may be never.
    """

    ending: ClassVar[Ending]
    """What becomes of a call that is told to end."""

    def start(self) -> None:
        """Start the slots."""

    def submit(self, slice_: Slice) -> None:
        """Queue a slice; the next free slot takes it."""

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Say where a call stands that has not returned for long; None where it has by now.

        Where it is to be abandoned its slot is replaced. Where it is to be ended it is told to, and
        its slice comes back with that failure once it has ended, whatever it returns.
        """

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """End the calls of these slices, whose partitions are given up; False where none can be.

        Their slices come back with the records unfinished once the calls have ended.
        """

    def stop(self, timeout_s: float) -> int:
        """Let the slots end after what they run; return how many are still running then."""


@runtime_checkable
class ResizablePool(Protocol):
    """A pool of which fewer slots can be used for a while."""

    @property
    def is_ready(self) -> bool:
        """As many slots as may be used could take slices."""

    def use(self, slots: int) -> None:
        """Let no more than so many slots take slices from now on; what runs may end.

        Called now and then with the same number, too: what has rested for long may be let go of.
        """


@runtime_checkable
class PoolWithChildren(Protocol):
    """A pool that calls handlers in child processes."""

    def children(self) -> Sequence[ChildPicture]:
        """Return what they do at this moment, within a second. Any thread may ask."""

    def stop_starting(self) -> None:
        """Let ``start`` raise StartStoppedError, if it still waits. Any thread may call it."""


@runtime_checkable
class PoolWithEventLoop(Protocol):
    """A pool that calls handlers on an event loop."""

    def event_loop(self) -> LoopSnapshot:
        """Return what its event loop has done so far. Any thread may ask."""

    def coroutines(self) -> Coroutines:
        """Return where the calls stand that run. Any thread may ask."""


MakePool = Callable[[str, int, Caller, SimpleQueue[Any], Any], Pool]
"""Gets the worker's name, the number of slots, what they call, where they report, and the state
that the lifespan yielded."""


@frozen
class PoolParts:
    """What a kind makes its pools of, beside what every pool gets."""

    loop: EventLoop | None = None
    """On which the worker's lifespan is entered, too; for kinds that run coroutines."""
    equip: Callable[[], object] | None = None
    """What children make their handler of; pickled. For kinds with children."""
    logger: logging.Logger = field(factory=own_logger)


@frozen(kw_only=True)
class PoolKind:
    """A kind of pool. Others decide by what it can do, never by its name."""

    name: str
    """As ``pool`` has it in a configuration."""
    make: Callable[[PoolParts], MakePool]
    runs_functions: bool = True
    """It calls plain functions; only such a kind can be configured."""
    coroutines_on: str | None = None
    """The kind that runs coroutines for workers configured with this one, which may be this one;
    None where such workers cannot have coroutines."""
    interruptible: bool = False
    """A call that does not return can be ended, so that its slice comes back."""
    has_children: bool = False
    """Handlers run in child processes, which import the application, enter its lifespan, and are
    killed where a call does not return."""
    computes_in_parallel: bool = False
    """Slots compute at the same time, so that as many as there are cores are of use; without it
    they share one interpreter."""
    max_slots: int | None = None
    """More are refused."""
    slot_bytes: int = 0
    """The resident memory of a slot (measured)."""
