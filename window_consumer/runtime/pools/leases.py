"""Leases of single records.

A client asks for records, takes those that are ready, and ends each lease by its number. The one
that removes a lease from the table decides how it ends; all others find nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Final

from attrs import frozen

from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import LeaseExpiredError
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message, Record
from window_consumer.runtime.calls.caller import Caller, record_raised

_NUMBERS: Final = count(1)
"""No two leases of a process have the same number, even those of a worker and its successor."""


@frozen(eq=False)
class Lease:
    """A record that a client has taken."""

    number: int
    slice_: Slice
    message: Message


@frozen(eq=False)
class LeaseRequest:
    """A client that waits for records."""

    most: int
    on_ready: Callable[[], None]
    """Called once, on any thread, when records are ready for it."""


class Leases:
    """The leases of one worker. Any thread may ask for, take, renew and end them."""

    def __init__(self, most: int, caller: Caller, completions: SimpleQueue[Any]):
        self._most = most
        self._caller = caller
        self._completions = completions
        self._lock = threading.Lock()
        self._ready: deque[Slice] = deque()
        """Slices for requests that were called."""
        self._taken: dict[int, Lease] = {}
        self._numbers: dict[Slice, int] = {}
        self._waiting: dict[LeaseRequest, None] = {}
        self._called: dict[LeaseRequest, None] = {}
        self._asked = 0
        """How many records all requests ask for."""
        self._promised = 0
        """How many of them belong to requests that were called."""
        self._is_over = False

    # ---- for clients

    def ask(self, most: int, on_ready: Callable[[], None]) -> LeaseRequest:
        """Ask for up to ``most`` records; the request ends with ``take`` or ``withdraw``."""
        request = LeaseRequest(most, on_ready)
        with self._lock:
            self._waiting[request] = None
            self._asked += most
            is_over = self._is_over
        if is_over:
            on_ready()
        else:
            self._completions.put(None)  # wakes the poll thread
        return request

    def take(self, request: LeaseRequest, lease_s: float) -> list[Lease]:
        """End a request; return leases of this duration on the records that are ready.

        There may be none, although the request was called: their partition may have been given up,
        or a layer around calls may have removed them, for example as expired.
        """
        found: list[Lease] = []
        empty: list[Slice] = []
        with self._lock:
            self._remove_request(request)
            now = perf_counter()
            while self._ready and len(found) < request.most:
                slice_ = self._ready.popleft()
                slice_.lease_until, slice_.started = now + lease_s, now
                message = next(slice_.unclaimed, None)
                if message is None:  # it was taken back meanwhile
                    empty.append(slice_)
                    continue
                lease = Lease(next(_NUMBERS), slice_, message)
                self._taken[lease.number], self._numbers[slice_] = lease, lease.number
                found.append(lease)
            called, surplus = self._rearrange()
        self._hand_on(called, [*empty, *surplus])
        return [each for each in found if self._may_begin(each)]

    def withdraw(self, request: LeaseRequest) -> None:
        """End a request without taking anything. Does nothing if it has ended."""
        with self._lock:
            self._remove_request(request)
            called, surplus = self._rearrange()
        self._hand_on(called, surplus)

    def renew(self, number: int, lease_s: float) -> bool:
        """Let a lease end this many seconds from now; return False if it has ended."""
        with self._lock:
            lease = self._taken.get(number)
            if lease is not None:
                lease.slice_.lease_until = perf_counter() + lease_s
        return lease is not None

    def finish(self, number: int, error: Exception | None = None) -> bool:
        """End a lease, with an error if the record failed; return False if it has already ended."""
        with self._lock:
            lease = self._remove(number)
        if lease is None:
            return False
        if error is None:
            self._end(lease.slice_)
        else:
            self._fail(lease.slice_, error)
        return True

    @property
    def in_flight(self) -> int:
        """How many leases there are."""
        return len(self._taken)

    # ---- for the pool, on the poll thread

    @property
    def slots(self) -> int:
        """How many leases there are or may begin at once."""
        return min(self._most, len(self._taken) + self._asked)

    def offer(self, slice_: Slice) -> None:
        """Offer a slice of one record to the request that has waited longest."""
        with self._lock:
            self._ready.append(slice_)
            called, surplus = self._rearrange()
        self._hand_on(called, surplus)

    def expire(self, slice_: Slice, seconds: float) -> Failure | None:
        """End a lease whose time is over; return None if it was renewed or has ended."""
        with self._lock:
            if slice_.lease_until > perf_counter():
                return None
            lease = self._remove(self._numbers.get(slice_, 0))
        if lease is None:
            return None
        error = LeaseExpiredError(f"the lease ended after {seconds:.1f} s without an answer")
        return self._fail(slice_, error)

    def interrupt(self, slices: Iterable[Slice]) -> None:
        """End leases whose partitions are given up; their records stay unfinished."""
        for slice_ in slices:
            with self._lock:
                lease = self._remove(self._numbers.get(slice_, 0))
            if lease is not None:
                slice_.deviate().held.append(lease.message)
                self._end(slice_)

    def close(self) -> None:
        """Call all requests: no more records will come."""
        with self._lock:
            self._is_over = True
            waiting, self._waiting = self._waiting, {}
            self._asked -= sum(each.most for each in waiting)
        for request in waiting:
            request.on_ready()

    # ---- with the lock

    def _rearrange(self) -> tuple[list[LeaseRequest], list[Slice]]:
        """Return the requests to call for ready slices, and the slices without a request."""
        called = []
        while len(self._ready) > self._promised and self._waiting:
            request = next(iter(self._waiting))
            del self._waiting[request]
            self._called[request] = None
            self._promised += request.most
            called.append(request)
        more = len(self._ready) - self._promised
        return called, [self._ready.pop() for _ in range(more)]

    def _remove_request(self, request: LeaseRequest) -> None:
        if request in self._called:
            del self._called[request]
            self._promised -= request.most
            self._asked -= request.most
        elif request in self._waiting:
            del self._waiting[request]
            self._asked -= request.most

    def _remove(self, number: int) -> Lease | None:
        lease = self._taken.pop(number, None)
        if lease is not None:
            del self._numbers[lease.slice_]
        return lease

    # ---- without it

    def _may_begin(self, lease: Lease) -> bool:
        """Ask the layers around calls; end a lease that one of them refuses."""
        slice_, message = lease.slice_, lease.message
        try:
            self._caller.handler(Record.of(message, slice_.call))
        except Exception as error:  # becomes the record's outcome
            with self._lock:
                is_ours = self._remove(lease.number) is not None
            if is_ours:
                record_raised(slice_, message, error, self._caller)
                self._end(slice_)
            return False
        return True

    def _hand_on(self, called: Iterable[LeaseRequest], unused: Iterable[Slice]) -> None:
        """Call requests, and return slices whose records wait again."""
        for request in called:
            request.on_ready()
        for slice_ in unused:
            message = next(slice_.unclaimed, None)
            if message is not None:
                slice_.deviate().held.append(message)
            self._completions.put(slice_)

    def _fail(self, slice_: Slice, error: Exception) -> Failure:
        (message,) = slice_.messages
        failure = self._caller.describe(error, slice_.call.handler, (message,))
        slice_.deviate().failed.append((message, failure))
        self._end(slice_)
        return failure

    def _end(self, slice_: Slice) -> None:
        slice_.elapsed = perf_counter() - slice_.started
        self._completions.put(slice_)
