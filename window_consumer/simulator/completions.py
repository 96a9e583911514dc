"""A member's completions queue: its waits drive the simulation, and late results are checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import attrs

from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.runtime.writing.publisher import AckedCopies, Published, ResultAck
from window_consumer.simulator.history import SimulationHistory


class Completions(SimpleQueue[Any]):
    """A completions queue on which waiting lets the simulation continue."""

    def __init__(
        self, member: str, engine: Engine, history: SimulationHistory, wait: Callable[[float], None]
    ):
        self._member = member
        self._engine = engine
        self._history = history
        self._wait = wait
        self._items: deque[Any] = deque()
        self._before: tuple[object, ...] | None = None

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002, FBT001, FBT002 - SimpleQueue's
        """Add an item, or one for each record of several."""
        if isinstance(item, AckedCopies):
            self._items.extend(Published(failed, None) for failed in item.take())
        else:
            self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ARG002, FBT001, FBT002 - SimpleQueue's
        """Return the next item; let time pass where a real queue would block."""
        if not self._items and timeout:
            self._check_late()
            self._wait(timeout)
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Return the next item."""
        self._check_late()
        if not self._items:
            raise Empty
        item = self._items.popleft()
        partition = _partition_of(item)
        if partition is not None:
            given_up = item in self._engine.dispatcher.abandoned
            if given_up or self._engine.partitions.get(partition.name) is not partition:
                self._before = self._impression()
        return item

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return not self._items

    def _check_late(self) -> None:
        """Check the last item's effect: it was processed if the next one is requested."""
        if self._before is not None and self._before != self._impression():
            self._history.violate(f"{self._member}: a late result changed something")
        self._before = None

    def _impression(self) -> tuple[object, ...]:
        """Return the state that a late result must not change.

        Copies that have become due in the meantime may enter the window.
        """
        counted = attrs.asdict(self._engine.counters)
        del counted["late"]
        return (
            *counted.values(),
            *(
                (
                    each.window.open + each.buffered,
                    each.window.next_offset,
                    each.commit.changed,
                    each.bytes,
                )
                for each in self._engine.partitions.values()
            ),
        )


def _partition_of(item: object) -> Partition | None:
    """Return the assignment that a report is about; None if it is about none."""
    if isinstance(item, Slice):
        return item.partition
    if isinstance(item, Published):
        return item.failed.partition
    return item.production.partition if isinstance(item, ResultAck) else None
