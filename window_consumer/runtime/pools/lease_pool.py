"""Slots that are leases: a client asks for a record, and ends its lease by number."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, ClassVar, Final

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.pools.leases import Leases
from window_consumer.runtime.pools.pool import PoolKind


class LeasePool:
    """Slots without threads: clients take, renew and end ``leases``. Owner: poll thread."""

    ending: ClassVar[Ending] = "expired"

    def __init__(
        self, worker: str, slots: int, caller: Caller, completions: SimpleQueue[Any], state: Any
    ):
        del worker, state
        self.leases = Leases(slots, caller, completions)
        self.submit = self.leases.offer

    @property
    def slots(self) -> int:
        """How many leases there are or may begin at once."""
        return self.leases.slots

    def start(self) -> None:
        """Start nothing: clients have their own threads."""

    def inspect(self, stalled: Stalled) -> Failure | None:
        """End a lease whose time is over; return None if it was renewed or has ended."""
        return self.leases.expire(stalled.slice_, stalled.seconds)

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        """End the leases of these slices, whose partitions are given up."""
        self.leases.interrupt(slices)
        return True

    def stop(self, timeout_s: float) -> int:
        """Let all requests end without records."""
        del timeout_s
        self.leases.close()
        return 0


LEASES: Final = PoolKind(
    name="leases",
    make=lambda _parts: LeasePool,
    runs_functions=False,
    interruptible=True,
    leases=True,
    # A message of 100 bytes that a client holds, its slice and its lease (estimated).
    slot_bytes=2_000,
)
