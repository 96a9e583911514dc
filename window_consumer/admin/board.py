"""What the admin address tells of the workers of a process, as plain values for JSON.

Everything here may block for as long as a poll thread takes to answer: it is called on threads
that have nothing else to do. Times are milliseconds since 1970, durations are seconds.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any, Final, Protocol

import attrs
from attrs import frozen

from window_consumer.admin.frames import worker_frame
from window_consumer.admin.history import History
from window_consumer.admin.interventions import intervene
from window_consumer.admin.shown_records import ShownRecords
from window_consumer.admin.snapshots import plain
from window_consumer.config.sections.mask import MaskRules
from window_consumer.engine.cell_details import (
    CellDetails,
    Failing,
    blocking,
    cell_details,
    failing,
    held_message,
    number_of,
)
from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.interventions import (
    Intervention,
    Verdict,
)
from window_consumer.engine.snapshot import (
    CallPicture,
    Snapshot,
    picture,
)
from window_consumer.model.protocols import Clock
from window_consumer.model.record import (
    Message,
    TopicPartition,
)
from window_consumer.runtime.poll_loop import Phase
from window_consumer.runtime.running import Running
from window_consumer.runtime.stack_dump import Place as Standing
from window_consumer.runtime.stack_dump import Places
from window_consumer.runtime.worker import Worker

ANSWER_S: Final = 1.0
"""A poll thread that takes longer is shown as silent."""


_LARGEST: Final = 2**31 - 1
_NUMBER: Final = re.compile("[0-9]{1,19}")


class Board(Protocol):
    """Whoever can be asked: the workers of this process, or of several copies of it."""

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return everything about all workers, as ``/api/windows`` tells it."""

    def frame(self, since: int) -> dict[str, Any]:
        """Return what the page shows, with the samples that are later than ``since``."""

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        """Return one cell with its records and running calls, None where it is not there."""

    def value(self, at: CellPlace) -> dict[str, Any] | None:
        """Return the value of one record, None where it is not held; see ``ShownRecords``."""

    def halt(self, at: Place, *, halted: bool) -> bool | None:
        """Pause a worker or a partition, or let it go on; False where there is no such.

        None where it did not answer in time.
        """

    def intervene(self, at: CellPlace, wanted: Intervention) -> Verdict | None:
        """Skip a failed record, or send it to the dead letters, and say what became of it.

        None where its worker did not answer in time.
        """

    def look(self) -> None:
        """Do what has to be done every ``history.EVERY_S``, with nobody asking."""


@frozen
class Place:
    """A worker, or a partition of it."""

    worker: str
    partition: TopicPartition | None = None
    process: str = ""
    """The number of one of several copies; of a worker that has none, all of them are meant."""


@frozen
class CellPlace:
    """A cell of a window, by its number or by an offset in it."""

    worker: str
    partition: TopicPartition
    number: int | None
    offset: int | None = None
    process: str = ""


class BoardOfWorkers:
    """The workers of this process. Any thread may ask."""

    def __init__(self, process: str, mask: Callable[[str], str], rules: MaskRules):
        """``process`` is the number of one of several copies, else empty.

        ``mask`` takes the configuration's secrets out of texts, ``rules`` say what is not told of
        records.
        """
        self._process = process
        self._mask = mask
        self._shown = ShownRecords(mask, rules)
        self._running: Running | None = None
        self._lock = threading.Lock()
        self._histories: dict[str, History] = {}

    def attach(self, running: Running) -> None:
        """Tell of these workers; before that there are none."""
        self._running = running

    def look(self) -> None:
        """Take a sample of each worker, for the charts; to be called every ``history.EVERY_S``."""
        for worker in self._workers:
            seen = worker.snapshot(ANSWER_S, cells=False)
            if seen is not None:
                with self._lock:
                    self._history_of(worker).add(now_ms(), seen)

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return everything about all workers, as ``/api/windows`` tells it."""
        workers = [self._fields(worker, stacks=stacks, history=history) for worker in self._workers]
        return {"process": self._process, "time": now_ms(), "workers": workers}

    def frame(self, since: int) -> dict[str, Any]:
        """Return what the page shows, with the samples that are later than ``since``."""
        return {
            "time": now_ms(),
            "workers": [self._frame_of(worker, since) for worker in self._workers],
        }

    def _frame_of(self, worker: Worker, since: int) -> dict[str, Any]:
        seen = worker.snapshot(ANSWER_S, cells=False)
        with self._lock:
            past = self._history_of(worker)
            fields = {
                **self._head(worker),
                "busy_ratio": past.busy_ratio(),
                **past.drain(seen),
                "samples": past.after(since),
            }
        return fields | ({} if seen is None else worker_frame(seen))

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        """Return one cell with its records and running calls, None where it is not there."""
        worker = self._worker(at.worker)
        if worker is None:
            return None

        def ask(engine: Engine, clock: Clock) -> tuple[CellDetails, Snapshot] | None:
            now = clock.now()
            number = at.number
            if at.offset is not None:
                number = number_of(engine, at.partition, at.offset)
            if number is None:
                return None
            found = cell_details(engine, at.partition, number, now)
            return None if found is None else (found, picture(engine, now, 0.0, cells=False))

        answer = worker.loop.ask(ask, ANSWER_S)
        if answer is None:
            return None
        found, seen = answer
        places = worker.places()
        calls = [
            self._call(call, places.of(call))
            for call in seen.calls
            if call.name == at.partition and found.first_offset <= call.offset <= found.last_offset
        ]
        records = self._shown.records(at.partition.topic, found.source, found.records)
        return attrs.asdict(found, recurse=False) | {"records": records, "calls": calls}

    def value(self, at: CellPlace) -> dict[str, Any] | None:
        """Return the value of one record, None where it is not held."""
        worker, offset = self._worker(at.worker), at.offset
        if worker is None or offset is None:
            return None

        def ask(engine: Engine, _: Clock) -> tuple[Message, str] | None:
            return held_message(engine, at.partition, offset)

        held = worker.loop.ask(ask, ANSWER_S)
        return None if held is None else self._shown.value(*held)

    def halt(self, at: Place, *, halted: bool) -> bool | None:
        """Pause a worker or a partition, or let it go on."""
        worker = self._worker(at.worker)
        return False if worker is None else worker.halt(at.partition, halted=halted)

    def intervene(self, at: CellPlace, wanted: Intervention) -> Verdict | None:
        """Skip a failed record, or send it to the dead letters, and say what became of it."""
        worker = self._worker(at.worker)
        if worker is None or at.offset is None:
            return Verdict.NOT_ASSIGNED
        return intervene(worker, at.partition, at.offset, wanted)

    def _worker(self, name: str) -> Worker | None:
        return next((each for each in self._workers if each.name == name), None)

    def _fields(self, worker: Worker, *, stacks: bool, history: bool) -> dict[str, Any]:
        seen = worker.snapshot(ANSWER_S)
        told = seen and self._shown.snapshot(seen, worker.setup.told_key)
        records = [] if seen is None else self._records(worker, failing)
        blocks = [] if seen is None else self._records(worker, blocking)
        with self._lock:
            past = self._history_of(worker)
            fields = {
                **self._head(worker),
                "slots": worker.setup.engine.slots,
                "snapshot": None if told is None else plain(told),
                "failing": records,
                "blocking": blocks,
                "busy_ratio": past.busy_ratio(),
                **past.drain(seen),
                "history": list(past.samples) if history else [],
            }
        if stacks and seen is not None:
            fields["stacks"] = self._stacks(seen, worker.places())
        return fields

    def _records(
        self, worker: Worker, look: Callable[[Engine, float], list[Failing]]
    ) -> list[dict[str, Any]]:
        found = worker.loop.ask(lambda engine, clock: look(engine, clock.now()), ANSWER_S) or []
        return [
            {"topic": each.name.topic, "partition": each.name.partition, **record}
            for each in found
            for record in self._shown.records(
                each.name.topic, each.source, each.records, len(found)
            )
        ]

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

    def _stacks(self, seen: Snapshot, places: Places) -> list[dict[str, Any]]:
        return [self._call(call, places.of(call)) for call in seen.calls]

    def _call(self, call: CallPicture, place: Standing) -> dict[str, Any]:
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
    number = number_named(partition)
    return None if number is None or number > _LARGEST else TopicPartition(topic, number)


def number_named(text: str) -> int | None:
    """Return the number that a path or a query names, None where it cannot be one of ours."""
    return int(text) if _NUMBER.fullmatch(text) else None
