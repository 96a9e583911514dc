"""What the poll loop asks of a pool, whatever its slots are: threads, tasks, processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol, runtime_checkable

from window_consumer.engine.guards.stalls import (
    Ending,
    Stalled,
)
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.windows_snapshot import LoopSnapshot
from window_consumer.model.fault import Failure
from window_consumer.runtime.pools.threads import Caller
from window_consumer.runtime.stack_dump import ChildPicture, Coroutines


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

    def look_at(self, stalled: Stalled) -> Failure | None:
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
class PoolOfProcesses(Protocol):
    """A pool whose slots are processes."""

    def children(self) -> Sequence[ChildPicture]:
        """Return what they do at this moment, within a second. Any thread may ask."""

    def stop_starting(self) -> None:
        """Let ``start`` raise StartStoppedError, if it still waits. Any thread may call it."""


@runtime_checkable
class PoolOfCoroutines(Protocol):
    """A pool whose slots are tasks of an event loop."""

    def event_loop(self) -> LoopSnapshot:
        """Return what its event loop has done so far. Any thread may ask."""

    def coroutines(self) -> Coroutines:
        """Return where the calls stand that run. Any thread may ask."""


MakePool = Callable[[str, int, Caller, SimpleQueue[Any], Any], Pool]
"""Gets the worker's name, the number of slots, what they call, where they report, and the state
that the lifespan yielded."""
