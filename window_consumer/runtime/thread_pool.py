"""Slots as threads: each takes a slice, calls the handler for its records, reports back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from window_consumer.core.slices import LaneOf, Slice
from window_consumer.model.errors import Skip
from window_consumer.model.record import Message, Record

Handler = Callable[[Record], object]


class ThreadPool:
    """A fixed number of daemon threads between a work queue and a completions queue."""

    def __init__(
        self, name: str, slots: int, handler: Handler, completions: SimpleQueue[Any], state: Any
    ):
        self._work: SimpleQueue[Slice | None] = SimpleQueue()
        self._completions = completions
        self._handler = handler
        self._state = state
        self._threads = [
            threading.Thread(target=self._run, name=f"wc-{name}-slot-{n}", daemon=True)
            for n in range(slots)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, slice_: Slice) -> None:
        self._work.put(slice_)

    def stop(self, timeout_s: float) -> int:
        for _ in self._threads:
            self._work.put(None)
        deadline = perf_counter() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - perf_counter()))
        return sum(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        work = self._work
        handler = self._handler
        while (slice_ := work.get()) is not None:
            slice_.thread = threading.get_ident()
            slice_.call.state = self._state
            slice_.started = started = perf_counter()
            call_each(slice_, handler)
            slice_.elapsed = perf_counter() - started
            self._completions.put(slice_)
            del slice_


def call_each(slice_: Slice, handler: Handler) -> None:
    """Call the handler for each record of the slice that is not taken back meanwhile."""
    references = sys.getrefcount
    call = slice_.call
    record = Record()
    record._call = call
    nobody_else = references(record)
    for message in slice_.unclaimed:
        record._message = message
        try:
            handler(record)
        except Skip:
            slice_.skipped.append(message)
        except BaseException as error:
            slice_.failures.append((message, error))
            if slice_.lane_of is not None:
                _call_around(slice_, handler, slice_.lane_of, message)
                return
        if references(record) != nobody_else:
            record = Record()
            record._call = call


def _call_around(slice_: Slice, handler: Handler, lane_of: LaneOf, failed: Message) -> None:
    """Call the handler for the rest, but hold back the lanes in which a record has failed."""
    failed_lanes = {lane_of(failed)}
    for message in slice_.unclaimed:
        lane = lane_of(message)
        if lane is not None and lane in failed_lanes:
            slice_.held.append(message)
            continue
        try:
            handler(Record.of(message, slice_.call))
        except Skip:
            slice_.skipped.append(message)
        except BaseException as error:
            slice_.failures.append((message, error))
            failed_lanes.add(lane)
