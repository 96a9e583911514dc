"""A pool whose slots are leases: whoever asks for a record has one, and ends it by its receipt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, ClassVar

from attrs import frozen

from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import LeaseExpiredError
from window_consumer.model.fault import Failure
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.pools.pool import PoolKind


@frozen
class Lease:
    """A record that somebody has taken."""

    receipt: str
    value: bytes | None
    attempt: int


class LeasePool:
    """Leases of single records. Any thread may take, renew and end them."""

    ending: ClassVar[Ending] = "expired"

    def __init__(
        self, worker: str, slots: int, caller: Caller, completions: SimpleQueue[Any], state: Any
    ):
        del worker, state
        self._most = slots
        self._caller = caller
        self._completions = completions
        self._ready: SimpleQueue[Slice] = SimpleQueue()
        self._taken: dict[str, Slice] = {}
        self._lock = threading.Lock()
        """Guards who takes a lease out, and its deadline."""
        self._asking = 0
        self._given = 0

    # ---- for the poll thread

    @property
    def slots(self) -> int:
        return min(self._most, len(self._taken) + self._asking)

    def start(self) -> None: ...

    def submit(self, slice_: Slice) -> None:
        self._ready.put(slice_)

    def inspect(self, stalled: Stalled) -> Failure | None:
        slice_ = stalled.slice_
        with self._lock:
            receipt = self._receipt_of(slice_)
            if receipt is None or slice_.lease_until > perf_counter():
                return None
            del self._taken[receipt]
        error = LeaseExpiredError(f"nothing came of the call within {stalled.seconds:.1f} s")
        return self._fail(slice_, error)

    def interrupt(self, slices: Sequence[Slice]) -> bool:
        for slice_ in slices:
            with self._lock:
                receipt = self._receipt_of(slice_)
                if receipt is None:
                    continue
                del self._taken[receipt]
            slice_.deviate().held.extend(slice_.messages)
            self._end(slice_)
        return True

    def stop(self, timeout_s: float) -> int:
        del timeout_s
        return 0

    def _receipt_of(self, slice_: Slice) -> str | None:
        return next((receipt for receipt, each in self._taken.items() if each is slice_), None)

    # ---- for clients

    def take(self, lease_s: float, timeout_s: float) -> Lease | None:
        """Wait for a record; it is the caller's for so many seconds."""
        with self._lock:
            self._asking += 1
        self._completions.put(None)
        try:
            while True:
                slice_ = self._ready.get(timeout=timeout_s)
                with self._lock:
                    message = next(slice_.unclaimed, None)
                    if message is not None:
                        self._given += 1
                        receipt = f"{slice_.partition.name}@{message.offset()}#{self._given}"
                        slice_.started = perf_counter()
                        slice_.lease_until = slice_.started + lease_s
                        self._taken[receipt] = slice_
                        return Lease(receipt, message.value(), slice_.call.number_of(message))
                self._completions.put(slice_)  # it was taken back meanwhile
        except Empty:
            return None
        finally:
            with self._lock:
                self._asking -= 1

    def renew(self, receipt: str, lease_s: float) -> bool:
        """Let a lease end so many seconds from now; return False if it has ended."""
        with self._lock:
            slice_ = self._taken.get(receipt)
            if slice_ is not None:
                slice_.lease_until = perf_counter() + lease_s
        return slice_ is not None

    def finish(self, receipt: str, error: Exception | None = None) -> bool:
        """End a lease, with an error if the record has failed; return False if it has ended."""
        with self._lock:
            slice_ = self._taken.pop(receipt, None)
        if slice_ is None:
            return False
        if error is None:
            self._end(slice_)
        else:
            self._fail(slice_, error)
        return True

    def _fail(self, slice_: Slice, error: Exception) -> Failure:
        (message,) = slice_.messages
        failure = self._caller.describe(error, slice_.call.handler, (message,))
        slice_.deviate().failed.append((message, failure))
        self._end(slice_)
        return failure

    def _end(self, slice_: Slice) -> None:
        slice_.elapsed = perf_counter() - slice_.started
        self._completions.put(slice_)


def kind_of(pools: list[LeasePool]) -> PoolKind:
    """Return a kind whose pools come into a list."""

    def make(*given: Any) -> LeasePool:
        pools.append(LeasePool(*given))
        return pools[-1]

    return PoolKind(name="leases", make=lambda _parts: make, interruptible=True, leases=True)
