"""What starts while the breaker lets records start one by one: new ones, and some that failed."""

from __future__ import annotations

from collections.abc import Iterator

from window_consumer.engine.guards.breaker.record_sampling import RecordSampling
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.guards.crash_suspects import CrashSuspects
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.record_queue import Place
from window_consumer.engine.scheduling.slices import Slice


class SingleStarts:
    """Dispatches single records for the breaker. Owner: poll thread."""

    def __init__(
        self,
        breaker: CircuitBreaker,
        dispatcher: Dispatcher,
        retry_queue: RetryQueue,
        suspects: CrashSuspects,
        sampling: RecordSampling,
    ):
        self._breaker = breaker
        self._dispatcher = dispatcher
        self._retry_queue = retry_queue
        self._suspects = suspects
        self._sampling = sampling
        self._failed_first = False

    def next_slices(self, limit: int, now: float) -> Iterator[tuple[Slice, Place | None]]:
        """Yield records until ``limit`` run, each with its place; without a limit a due sample.

        Report each to the breaker before the next.
        """
        breaker, dispatcher = self._breaker, self._dispatcher
        if breaker.state is BreakerState.PAUSED:
            return
        if limit:
            while len(dispatcher.out) < limit and not dispatcher.full:
                slice_ = self._next(now, known=True)
                if slice_ is None:
                    return
                yield slice_, self._sampling.place_of(slice_)
            return
        for known in (False, True):
            due = breaker.samples.is_due(now, known=known) and not dispatcher.full
            slice_ = self._next(now, known=known) if due else None
            if slice_ is not None:
                yield slice_, self._sampling.place_of(slice_)
                return

    def _next(self, now: float, *, known: bool) -> Slice | None:
        """Return one record, a new one if possible; unless ``known``, of a lane not sampled yet."""
        if self._breaker.samples.ends_hold:
            return self._last_try(now)
        if self._breaker.state is BreakerState.OVERLOAD:
            self._failed_first = not self._failed_first
            first = self._failed_one(now) if self._failed_first else None
            return first or self._sampling.new_one(now, known=True) or self._failed_one(now)
        new = self._sampling.new_one(now, known=known)
        return self._failed_one(now) if new is None and known else new

    def _last_try(self, now: float) -> Slice | None:
        """Return a held record that is called once more; if that fails too, it leaves."""
        if slice_ := self._sampling.new_one(now, known=True):
            return slice_
        slice_ = self._failed_one(now)
        if slice_ is not None:
            self._breaker.samples.let_go()
            for seq in slice_.seqs:
                if failed := slice_.again.get(seq):
                    failed.released = True
        return slice_

    def _failed_one(self, now: float) -> Slice | None:
        """Return a suspect, half of a batch that ended its process, a retry or a copy."""
        dispatcher = self._dispatcher
        if self._suspects.cases and (suspect := next(self._suspects.slices(now), None)):
            return suspect
        # The last call was inconclusive: its process died on several records at once.
        if half := dispatcher.next_half(now):
            return half
        if records := self._retry_queue.next_calls(1):
            return dispatcher.again(records, now)
        return dispatcher.single_copy(now)
