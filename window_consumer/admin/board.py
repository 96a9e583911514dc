"""What the admin address reports about the workers of a process, as plain values for JSON.

Every method may block until a poll thread answers, so it runs on a separate thread. Times are in
milliseconds since 1970, durations in seconds.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from time import time_ns
from typing import Any, Final, Protocol

import attrs
from attrs import evolve, frozen

from window_consumer.admin.history import SampleHistory
from window_consumer.admin.interventions import intervene
from window_consumer.admin.record_view import RecordView
from window_consumer.config.sections.mask import MaskRules
from window_consumer.engine.cell_details import Failing
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    InterventionResult,
    PauseRequest,
)
from window_consumer.engine.windows_snapshot import CallSnapshot
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.figures.inspection import ShownFailures
from window_consumer.runtime.figures.stack_dump import CallPositions
from window_consumer.runtime.figures.worker_snapshot import (
    CallStack,
    FailingRecord,
    WorkerSnapshot,
    to_json,
)
from window_consumer.runtime.running import Running
from window_consumer.runtime.worker import Worker

ANSWER_S: Final = 1.0
"""A poll thread that takes longer is shown as silent."""

MOST_CALLS: Final = 12
"""The longest running calls in a frame; ``/api/windows`` has all of them."""

_LARGEST: Final = 2**31 - 1
_NUMBER: Final = re.compile("[0-9]{1,19}")


class Board(Protocol):
    """A source of answers: the workers of this process, or its replicas."""

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return the state of all workers, as ``/api/windows`` serves it."""

    def frame(self, since: int) -> dict[str, Any]:
        """Return the data of the page, with the samples that are newer than ``since``.

        It is the answer of ``windows`` with fewer calls, and without single cells and records.
        """

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        """Return one cell with its records and running calls, None if it is unknown."""

    def value(self, at: CellPlace) -> dict[str, Any] | None:
        """Return the value of one record, None if it is not held; see ``RecordView``."""

    def halt(self, at: BoardAddress, request: PauseRequest, *, halted: bool) -> bool | None:
        """Pause or resume a worker or a partition; return False if it is unknown.

        None if it did not answer in time.
        """

    def set_concurrency(
        self, at: BoardAddress, request: ConcurrencyRequest
    ) -> ConcurrencyAnswer | None:
        """Set how many calls of a worker run at once in a process, and return the result.

        None if it did not answer in time.
        """

    def decide_breaker(self, at: BoardAddress, *, release: bool) -> BreakerAnswer | None:
        """Release the records that a breaker holds, or declare an outage; return the result.

        None if it did not answer in time.
        """

    def intervene(self, at: CellPlace, wanted: Intervention) -> InterventionResult | None:
        """Skip a failed record or dead-letter it, and return the result.

        None if its worker did not answer in time.
        """

    def take_samples(self) -> None:
        """Do the periodic work of every ``history.EVERY_S``."""


@frozen
class BoardAddress:
    """A worker, or a partition of it."""

    worker: str
    partition: TopicPartition | None = None
    process: str = ""
    """The number of one replica. If empty, a worker's address means all replicas."""


@frozen
class CellPlace:
    """A cell of a window, by its number or by an offset in it."""

    worker: str
    partition: TopicPartition
    number: int | None
    offset: int | None = None
    process: str = ""


class WorkersBoard:
    """The workers of this process. Any thread may call it."""

    def __init__(self, process: str, mask: Callable[[str], str], rules: MaskRules):
        """``process`` is the number of one of several replicas, else empty.

        ``mask`` hides the configuration's secrets in texts; ``rules`` hide parts of records.
        """
        self._process = process
        self._mask = mask
        self._shown = RecordView(mask, rules)
        self._running: Running | None = None
        self._lock = threading.Lock()
        self._histories: dict[str, SampleHistory] = {}

    def attach(self, running: Running) -> None:
        """Show these workers; before that there are none."""
        self._running = running

    def take_samples(self) -> None:
        """Take a sample of each worker for the charts; call it every ``history.EVERY_S``."""
        for worker in self._workers:
            windows = worker.snapshot(ANSWER_S, cells=False).windows
            if windows is not None:
                with self._lock:
                    self._history_of(worker).add(now_ms(), windows)

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return the state of all workers, as ``/api/windows`` serves it."""
        workers = [self._seen(worker, stacks=stacks, history=history) for worker in self._workers]
        return {"process": self._process, "time": now_ms(), "workers": list(map(to_json, workers))}

    def frame(self, since: int) -> dict[str, Any]:
        """Return the data of the page, with the samples that are newer than ``since``."""
        workers = [self._framed(worker, since) for worker in self._workers]
        return {"time": now_ms(), "workers": list(map(to_json, workers))}

    def _framed(self, worker: Worker, since: int) -> WorkerSnapshot:
        seen = worker.snapshot(ANSWER_S, cells=False)
        with self._lock:
            past = self._history_of(worker)
            seen = evolve(past.added_to(seen), process=self._process, history=past.after(since))
        if seen.windows is None:
            return seen
        windows = evolve(seen.windows, calls=longest(seen.windows.calls))
        return evolve(seen, windows=self._shown.snapshot(windows, worker.setup.loggable_key))

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        """Return one cell with its records and running calls, None if it is unknown."""
        worker = self._worker(at.worker)
        if worker is None:
            return None
        answer = worker.inspect.cell(at.partition, at.number, at.offset, ANSWER_S)
        if answer is None:
            return None
        found, running = answer
        calls = self._stacks(running, worker.places())
        records = self._shown.records(at.partition.topic, found.source, found.records)
        details = attrs.asdict(found, recurse=False)
        return details | {"records": to_json(records), "calls": to_json(calls)}

    def value(self, at: CellPlace) -> dict[str, Any] | None:
        """Return the value of one record, None if it is not held."""
        worker, offset = self._worker(at.worker), at.offset
        if worker is None or offset is None:
            return None
        held = worker.inspect.message(at.partition, offset, ANSWER_S)
        return None if held is None else self._shown.value(*held)

    def halt(self, at: BoardAddress, request: PauseRequest, *, halted: bool) -> bool | None:
        """Pause or resume a worker or a partition."""
        worker = self._worker(at.worker)
        if worker is None:
            return False
        return worker.interventions.halt(at.partition, request, halted=halted)

    def set_concurrency(
        self, at: BoardAddress, request: ConcurrencyRequest
    ) -> ConcurrencyAnswer | None:
        """Set how many calls of a worker run at once."""
        worker = self._worker(at.worker)
        if worker is None:
            return ConcurrencyAnswer.NO_SUCH_WORKER
        return worker.interventions.set_concurrency(request)

    def decide_breaker(self, at: BoardAddress, *, release: bool) -> BreakerAnswer | None:
        """Release the records that a breaker holds, or declare an outage; return the result."""
        worker = self._worker(at.worker)
        if worker is None:
            return BreakerAnswer.NO_SUCH_WORKER
        return worker.interventions.decide_breaker(release=release)

    def intervene(self, at: CellPlace, wanted: Intervention) -> InterventionResult | None:
        """Skip a failed record or dead-letter it, and return the result."""
        worker = self._worker(at.worker)
        if worker is None or at.offset is None:
            return InterventionResult.NOT_ASSIGNED
        return intervene(worker, at.partition, at.offset, wanted)

    def _worker(self, name: str) -> Worker | None:
        return next((each for each in self._workers if each.name == name), None)

    def _seen(self, worker: Worker, *, stacks: bool, history: bool) -> WorkerSnapshot:
        """Return the displayable data of a worker; queries its poll thread twice."""
        seen = worker.snapshot(ANSWER_S)
        with self._lock:
            past = self._history_of(worker)
            samples = list(past.samples) if history else ()
            seen = evolve(past.added_to(seen), process=self._process, history=samples)
        if seen.windows is None:
            return seen
        failed = worker.inspect.failed(ANSWER_S) or ShownFailures()
        return evolve(
            seen,
            windows=self._shown.snapshot(seen.windows, worker.setup.loggable_key),
            failing=self._failing(failed.failing),
            blocking=self._failing(failed.blocking),
            stacks=self._stacks(seen.windows.calls, worker.places()) if stacks else None,
        )

    def _failing(self, found: Sequence[Failing]) -> list[FailingRecord]:
        return [
            FailingRecord(
                topic=each.name.topic,
                partition=each.name.partition,
                **attrs.asdict(record, recurse=False),
            )
            for each in found
            for record in self._shown.records(
                each.name.topic, each.source, each.records, len(found)
            )
        ]

    def _stacks(self, calls: Iterable[CallSnapshot], places: CallPositions) -> list[CallStack]:
        return [self._stack(call, places) for call in calls]

    def _stack(self, call: CallSnapshot, places: CallPositions) -> CallStack:
        place = places.of(call)
        return CallStack(
            topic=call.name.topic,
            partition=call.name.partition,
            offset=call.offset,
            attempt=call.attempt,
            seconds=call.seconds,
            abandoned=call.abandoned,
            process=place.process,
            stack=self._mask(place.stack),
        )

    def _history_of(self, worker: Worker) -> SampleHistory:
        history = self._histories.get(worker.name)
        if history is None:
            history = self._histories[worker.name] = SampleHistory()
        return history

    @property
    def _workers(self) -> Sequence[Worker]:
        return () if self._running is None else self._running.workers


def longest(calls: Iterable[CallSnapshot]) -> tuple[CallSnapshot, ...]:
    """Return the calls that a frame has, those that have run longest first."""
    return tuple(sorted(calls, key=lambda call: -call.seconds)[:MOST_CALLS])


def now_ms() -> int:
    """Return the wall time in milliseconds since 1970."""
    return time_ns() // 1_000_000


def partition_named(topic: str, partition: str) -> TopicPartition | None:
    """Return the partition that a path names, None if the name is invalid."""
    number = number_named(partition)
    return None if number is None or number > _LARGEST else TopicPartition(topic, number)


def number_named(text: str) -> int | None:
    """Return the number in a path or query, None if it cannot be valid."""
    return int(text) if _NUMBER.fullmatch(text) else None
