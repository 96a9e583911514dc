"""Where the breaker's samples come from: new records from different places of the windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator

from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.record_queue import Place
from window_consumer.engine.scheduling.slices import Slice


class RecordSampling:
    """Dispatches single new records for the breaker. Owner: poll thread."""

    def __init__(self, breaker: CircuitBreaker, dispatcher: Dispatcher):
        self._breaker = breaker
        self._dispatcher = dispatcher
        self._sampled: set[Slice] = set()
        """Samples beside the usual calls that have not ended."""
        self._places = deque(Place)
        """Where the next sample of an outage comes from, first."""
        self._place_of: dict[object, Place] = {}
        """Where the running samples come from."""

    def beside(self, now: float) -> Iterator[Slice]:
        """Yield new records from the far ends of the windows for up to half of the slots.

        Unless calls are quick, nothing else queues in front of these slots.
        """
        dispatcher = self._dispatcher
        self._sampled = {each for each in self._sampled if each in dispatcher.out}
        most = max(1, dispatcher.slots // 2)
        dispatcher.kept_free = None if dispatcher.length.is_quick else 0
        while len(self._sampled) < most and not dispatcher.full:
            slice_ = dispatcher.sample(now, Place.LAST, _never)
            if slice_ is None:
                return
            self._sampled.add(slice_)
            yield slice_
        if dispatcher.kept_free is not None:
            dispatcher.kept_free = max(0, dispatcher.slots // 2 - len(self._sampled))

    def new_one(self, now: float, *, known: bool) -> Slice | None:
        """Return a new record; its place alternates until calls return, then stays there."""
        was_asked = _never if known else self._breaker.samples.was_asked
        if self._breaker.state is not BreakerState.HOLDING:
            # Holding, it compares: samples come from all places alike.
            self._stay_where_calls_return()
        for _ in Place:
            place = self._places[0]
            self._places.rotate(-1)
            if slice_ := self._dispatcher.sample(now, place, was_asked):
                self._place_of[slice_] = place
                return slice_
        return None

    def _stay_where_calls_return(self) -> None:
        """Take the next sample from the place of the last one that returned."""
        place = self._place_of.get(self._breaker.last_returned)
        if place is not None:
            self._places.remove(place)
            self._places.appendleft(place)
        if self._place_of:
            out = self._dispatcher.out
            self._place_of = {each: at for each, at in self._place_of.items() if each in out}

    def place_of(self, slice_: Slice) -> Place | None:
        """Return where a running sample comes from; None for any other slice."""
        return self._place_of.get(slice_)


def _never(_lane: Hashable) -> bool:
    return False
