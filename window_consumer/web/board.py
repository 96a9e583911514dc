"""What the admin address tells of the workers of a process, as plain values for JSON.

Everything here may block for as long as a poll thread takes to answer: it is called on threads
that have nothing else to do. Times are milliseconds since 1970, durations are seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any, Final, Protocol

from window_consumer.core.snapshot import CallPicture, Snapshot
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.places import Place, Places
from window_consumer.runtime.poll_loop import Phase
from window_consumer.runtime.running import Running
from window_consumer.runtime.worker import Worker
from window_consumer.telemetry.pictures import plain
from window_consumer.web.history import History

ANSWER_S: Final = 1.0
"""A poll thread that takes longer is shown as silent."""


class Board(Protocol):
    """Whoever can be asked: the workers of this process, or of several copies of it."""

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return everything about all workers, as ``/api/windows`` tells it."""


class BoardOfWorkers:
    """The workers of this process. Any thread may ask."""

    def __init__(self, process: str, mask: Callable[[str], str]):
        """``process`` is the number of one of several copies, else empty."""
        self._process = process
        self._mask = mask
        self._running: Running | None = None
        self._lock = threading.Lock()
        self._histories: dict[str, History] = {}

    def attach(self, running: Running) -> None:
        """Tell of these workers; before that there are none."""
        self._running = running

    def look(self) -> None:
        """Take a sample of each worker, for the charts; to be called every ``history.EVERY_S``."""
        for worker in self._workers:
            picture = worker.snapshot(ANSWER_S, cells=False)
            if picture is not None:
                with self._lock:
                    self._history_of(worker).add(now_ms(), picture)

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return everything about all workers, as ``/api/windows`` tells it."""
        workers = [self._fields(worker, stacks=stacks, history=history) for worker in self._workers]
        return {"process": self._process, "time": now_ms(), "workers": workers}

    def _fields(self, worker: Worker, *, stacks: bool, history: bool) -> dict[str, Any]:
        picture = worker.snapshot(ANSWER_S)
        with self._lock:
            past = self._history_of(worker)
            fields = {
                **self._head(worker),
                "slots": worker.setup.engine.slots,
                "snapshot": None if picture is None else plain(picture),
                "busy_ratio": past.busy_ratio(),
                "time_to_drain_s": None if picture is None else past.time_to_drain_s(picture),
                "history": list(past.samples) if history else [],
            }
        if stacks and picture is not None:
            fields["stacks"] = self._stacks(picture, worker.places())
        return fields

    def _head(self, worker: Worker) -> dict[str, Any]:
        loop = worker.loop
        return {
            "process": self._process,
            "name": worker.name,
            "group": worker.setup.origin.group,
            "handlers": worker.setup.origin.handler.split(","),
            "phase": loop.phase.value,
            "ready": loop.phase is Phase.RUNNING and loop.in_group,
            "silent_s": loop.silent_s,
        }

    def _stacks(self, picture: Snapshot, places: Places) -> list[dict[str, Any]]:
        return [self.call_fields(call, places.of(call)) for call in picture.calls]

    def call_fields(self, call: CallPicture, place: Place) -> dict[str, Any]:
        """Return where a running call stands."""
        return {
            "topic": call.name.topic,
            "partition": call.name.partition,
            "offset": call.offset,
            "attempt": call.attempt,
            "seconds": call.seconds,
            "abandoned": call.abandoned,
            "process": place.process,
            "stack": self._mask(place.stack),
        }

    def _history_of(self, worker: Worker) -> History:
        history = self._histories.get(worker.name)
        if history is None:
            history = self._histories[worker.name] = History(worker.setup.engine.slots)
        return history

    @property
    def _workers(self) -> Sequence[Worker]:
        return () if self._running is None else self._running.workers


def now_ms() -> int:
    """Return the time of the machine's clock, in milliseconds since 1970."""
    return time_ns() // 1_000_000


def partition_named(topic: str, partition: str) -> TopicPartition | None:
    """Return the partition that a path names, None where it cannot be one."""
    if not partition.isdecimal() or len(partition) > 9:
        return None
    return TopicPartition(topic, int(partition))
