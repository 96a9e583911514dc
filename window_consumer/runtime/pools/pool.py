"""The protocols of pools and of pool kinds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol, runtime_checkable

from attrs import field, frozen

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.windows_snapshot import LoopSnapshot
from window_consumer.model.fault import Failure
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.figures.stack_dump import ChildPicture, Coroutines
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.pools.event_loop import EventLoop
from window_consumer.runtime.pools.leases import Leases


class Pool(Protocol):
    """Slots between the poll thread and the handlers. Owner: poll thread, except ``stop``.

    Each submitted slice comes back once, through the completions queue, when all of its records
    that were not taken back have ended. Any thread may bring it back: the pool finds the slice by
    the slot's own id of the call, and the first thread that removes it from the running ones
    decides how it ends. Later results are ignored. An abandoned slice comes back when its call has
    really ended, which may be never.

    The slots of a kind with ``leases`` are clients that ask for records. Such a slot has a
    deadline, ``Slice.lease_until``, which it may postpone repeatedly, from any thread. After the
    deadline, ``inspect`` gets the call as one to end.
    """

    ending: ClassVar[Ending]
    """What happens to a call that must end."""

    @property
    def slots(self) -> int:
        """The current number of slots, busy or free, excluding those of abandoned calls.

        A thread that raises it puts None into the completions queue, which wakes the poll thread.
        """

    def start(self) -> None:
        """Start the slots."""

    def submit(self, slice_: Slice) -> None:
        """Queue a slice; the next free slot takes it."""

    def inspect(self, stalled: Stalled) -> Failure | None:
        """Return the position of a call that does not return; None if it has returned.

        The slot of a call to abandon is replaced. A call to end is interrupted, and its slice comes
        back with that failure once it has ended, whatever it returns. A lease that was renewed in
        time counts as returned.
        """

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """End the calls of these slices, whose partitions are given up; return False if it cannot.

        Their slices come back with the records unfinished once the calls have ended.
        """

    def stop(self, timeout_s: float) -> int:
        """Let the slots end after their current calls; return how many outlast ``timeout_s``."""


@runtime_checkable
class ResizablePool(Protocol):
    """A pool that can use fewer slots for a while."""

    @property
    def is_ready(self) -> bool:
        """Whether all slots in use can take slices."""

    def use(self, slots: int) -> None:
        """Limit the number of slots that take slices from now on; running calls may end.

        Called periodically with the same number too, so that the pool can release slots that have
        long been unused.
        """


@runtime_checkable
class PoolWithChildren(Protocol):
    """A pool that calls handlers in child processes."""

    def children(self) -> Sequence[ChildPicture]:
        """Return the current states of the children, within a second. Any thread may ask."""

    def stop_starting(self) -> None:
        """Let ``start`` raise StartStoppedError if it still waits. Any thread may call it."""


@runtime_checkable
class PoolWithEventLoop(Protocol):
    """A pool that calls handlers on an event loop."""

    def event_loop(self) -> LoopSnapshot:
        """Return the event loop's figures so far. Any thread may ask."""

    def coroutines(self) -> Coroutines:
        """Return the positions of the running calls. Any thread may ask."""


@runtime_checkable
class PoolWithLeases(Protocol):
    """A pool whose slots are leases."""

    @property
    def leases(self) -> Leases:
        """The requests and leases of clients. Any thread may use it."""


MakePool = Callable[[str, int, Caller, SimpleQueue[Any], Any], Pool]
"""Gets the worker's name, the number of slots, the caller, the completions queue, and the state
that the lifespan yielded."""


@frozen
class PoolParts:
    """What a kind needs to create its pools, besides the arguments of every pool."""

    loop: EventLoop | None = None
    """The loop that also runs the worker's lifespan; for kinds that run coroutines."""
    equip: Callable[[], object] | None = None
    """Builds the handler within a child; pickled. For kinds with children."""
    logger: logging.Logger = field(factory=own_logger)


@frozen(kw_only=True)
class PoolKind:
    """A kind of pool. Other code decides by its capabilities, never by its name."""

    name: str
    """The value of ``pool`` in a configuration."""
    make: Callable[[PoolParts], MakePool]
    runs_functions: bool = True
    """Whether it calls plain functions. Only such kinds can be configured."""
    coroutines_on: str | None = None
    """The kind that runs coroutines for workers configured with this one, possibly itself; None if
    such workers cannot have coroutines."""
    interruptible: bool = False
    """Whether a call that does not return can be ended, so that its slice comes back."""
    has_children: bool = False
    """Whether handlers run in child processes, which import the application, enter its lifespan,
    and are killed if a call does not return."""
    computes_in_parallel: bool = False
    """Whether slots compute in parallel, so one slot per core makes sense. Otherwise they share one
    interpreter."""
    leases: bool = False
    """Whether slots are leases: they come and go, each slice has one record, and only the end of
    its lease ends a call. Such a kind is interruptible."""
    max_slots: int | None = None
    """The largest number of slots that a worker may have; None without a limit."""
    slot_bytes: int = 0
    """The resident memory of a slot in bytes (measured)."""
