"""Calls that do not return, as reported to the runtime and observers, and the rules for them."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import TopicPartition

Ending = Literal["cancelled", "killed", "expired"]
"""How a call is ended: as a coroutine, with its process, or with its lease."""


@frozen
class StallRules:
    """The ``stall`` section of a worker's configuration; durations in seconds."""

    after_s: float = float("inf")
    action: Literal["move", "retry", "report"] = "move"
    max_abandoned: int = 4
    ends: bool = False
    """The runtime can end a call from outside: it is a coroutine or has its own process."""
    leases: bool = False
    """Slots are leases: each call ends with its lease (see ``Slice.lease_until``), not before. A
    slice then has one record, and is made when there is a slot for it."""


@frozen(eq=False)
class Stalled:
    """A long-running call whose stack the runtime must read."""

    slice_: Slice
    name: TopicPartition
    offset: int
    key: bytes | None
    attempt: int
    seconds: float
    abandon: bool
    """It is abandoned if it is still running; otherwise it is only reported."""
    is_relief: bool = False
    """It is not stalled yet, but blocks a window in which everything else is done."""
    end: bool = False
    """It is ended if it is still running, and returns as failed."""


@frozen
class AbandonedReturned:
    """An abandoned call has ended; its result was ignored."""

    name: TopicPartition
    offset: int
    seconds: float
