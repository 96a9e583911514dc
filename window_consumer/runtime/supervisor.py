"""The supervisor: starts the workers of an application, restarts one whose calls hang, ends all.

A worker that stops by itself stops the others, and the application ends with a failure.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Final

from window_consumer.model.errors import CallsHangError, RunError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Source
from window_consumer.runtime.error_report import class_name
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.worker import Worker

MakeSource = Callable[[str], Source]
"""Creates a new Source for the named worker, for its restart."""

MAX_RESTARTS: Final = 3
"""How often one worker is restarted after hanging calls. Each restart leaves its threads behind."""

MakeWorkers = Callable[[Any, Callable[[Worker, Phase], None]], Sequence[Worker]]
"""Gets the value that the lifespan yielded and a callback for phases; returns workers that are not
started."""

_CHECK_S: Final = 1.0
"""How often the supervisor checks that the poll threads are alive."""
_LEAVE_S: Final = 4.0
_GRACE_S: Final = 4.0
"""The time beyond the stop timeout that the last commits may take."""


class WorkerSupervisor:
    """Supervises workers. Owner: its thread; any thread may read, ``stop`` and ``fail``."""

    def __init__(self, logger: logging.Logger, make_source: MakeSource | None):
        """``make_source`` is None where no worker can be restarted."""
        self._logger = logger
        self._make_source = make_source
        self._restarts: Counter[str] = Counter()
        self._events: SimpleQueue[tuple[Worker, Phase] | None] = SimpleQueue()
        self._stop_asked = threading.Event()
        self.workers: Sequence[Worker] = ()
        self.failure: BaseException | None = None
        """Why it ended by itself, or why its start or end failed."""
        self.left_behind = False
        """Whether a thread still runs after the end: a handler that never returned."""

    # ---- for any thread

    def stop(self) -> None:
        """Let all workers drain; return at once."""
        self._stop_asked.set()
        self._events.put(None)

    def fail(self, failure: BaseException) -> None:
        """Let all workers drain because of a failure; the first one counts."""
        self.failure = self.failure or failure
        self.stop()

    def stop_starting(self) -> None:
        """Let workers no longer wait for their child processes."""
        for worker in self.workers:
            worker.stop_starting()

    # ---- the supervisor's thread

    def start(self, make_workers: MakeWorkers, state: Any) -> None:
        """Make and start the workers; where one cannot start, ``run`` ends those that have."""
        try:
            self.workers = make_workers(state, self._on_phase)
            for worker in self.workers:
                worker.start()
        except BaseException as error:
            self.failure = error
            self._stop_asked.set()
            raise

    def run(self) -> None:
        """Wait until all workers have drained, or one has not in time."""
        deadline: float | None = None
        # Track events, not phases: a worker may pass DRAINED before its failure was handled.
        working = set(self._alive())
        while working:
            if self._stop_asked.is_set() and deadline is None:
                deadline = perf_counter() + self._longest_stop_s()
                self.drain()
            left_s = _CHECK_S if deadline is None else max(0.0, deadline - perf_counter())
            try:
                event = self._events.get(timeout=min(left_s, _CHECK_S))
            except Empty:
                if not left_s:
                    self.failure = self.failure or RunError("a worker did not drain in time")
                    return
                self._check_threads(working)
                continue
            if event is not None and event[1] is Phase.DRAINED:
                working.discard(event[0])
                working.update(self._successors(event[0]))

    def drain(self) -> None:
        """Let the workers that run drain; return at once."""
        for worker in self._alive():
            worker.stop()

    def leave(self) -> None:
        """Let the drained workers leave their groups, and wait for their threads."""
        alive = self._alive()
        for worker in alive:
            worker.leave()
        for worker in alive:
            self.left_behind |= not worker.end(_LEAVE_S)
            worker.log_summary()

    def _check_threads(self, working: set[Worker]) -> None:
        """Stop all workers, as after any failure, if a poll thread ended silently."""
        for worker in [each for each in working if not each.loop.thread.is_alive()]:
            working.discard(worker)
            thread = worker.loop.thread.name
            worker.loop.failure = worker.loop.failure or RunError(f"its thread {thread} has died")
            self._on_drained(worker)

    def _successors(self, worker: Worker) -> Sequence[Worker]:
        """Return the replacement of a drained worker; normally None."""
        successor = self._restarted(worker) if self._may_restart(worker) else None
        if successor is None:
            self._on_drained(worker)
            return ()
        return (successor,)

    def _may_restart(self, worker: Worker) -> bool:
        """Return whether to restart a worker whose calls hang, so that the others can continue.

        A process with a single worker ends instead: a new process has no leftover threads.
        """
        return (
            isinstance(worker.loop.failure, CallsHangError)
            and len(self.workers) > 1
            and not self._stop_asked.is_set()
            and not worker.setup.is_async
            and self._restarts[worker.name] < MAX_RESTARTS
        )

    def _restarted(self, worker: Worker) -> Worker | None:
        """End a worker and start its successor; return None if that is impossible."""
        assert worker.loop.failure is not None
        if self._make_source is None:
            return None
        self._report_end(worker, worker.loop.failure)
        worker.leave()
        worker.end(_LEAVE_S)
        worker.log_summary()
        if worker.loop.thread.is_alive():
            return None
        self._restarts[worker.name] += 1
        self.left_behind = True
        ordered = len(worker.left_behind().calls)
        self._logger.warning(
            "%s: restart %d of %d; the threads of its hanging calls remain%s",
            worker.name,
            self._restarts[worker.name],
            MAX_RESTARTS,
            f", and the keys of {ordered} of them wait for their end" if ordered else "",
            extra={
                "event": LogEvent.WORKER_RESTARTED,
                "worker": worker.name,
                "restart": self._restarts[worker.name],
                "calls_waited_for": ordered,
            },
        )
        successor = worker.successor(self._make_source(worker.name))
        self.workers = [successor if each is worker else each for each in self.workers]
        successor.start()
        return successor

    def _longest_stop_s(self) -> float:
        longest = max((worker.setup.loop.stop_timeout_s for worker in self.workers), default=0.0)
        return longest + _GRACE_S

    def _alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.loop.thread.ident is not None]

    def _on_phase(self, worker: Worker, phase: Phase) -> None:
        self._events.put((worker, phase))

    def _on_drained(self, worker: Worker) -> None:
        error = worker.loop.failure
        if error is not None:
            self._report_end(worker, error)
            self.failure = self.failure or as_failure(error, worker.name)
        elif worker.loop.outlived:
            self.failure = self.failure or RunError(
                f"{worker.name}: {worker.loop.outlived} calls outlived the stop timeout"
            )
        self._stop_asked.set()

    def _report_end(self, worker: Worker, error: BaseException) -> None:
        if isinstance(error, WindowConsumerError):
            self._logger.error(
                "%s: stopped: %s",
                worker.name,
                error,
                extra={
                    "event": LogEvent.WORKER_FAILED,
                    "worker": worker.name,
                    "error": type(error).__name__,
                    "code": error.code,
                },
            )
        else:
            self._logger.error(
                "%s: stopped by a bug",
                worker.name,
                exc_info=error,
                extra={"event": LogEvent.WORKER_CRASHED},
            )


def as_failure(error: BaseException, who: str) -> BaseException:
    """Return the exception to raise instead: a SystemExit would end a program with success."""
    if isinstance(error, Exception):
        return error
    failure = RunError(f"{who} ended with {class_name(type(error))}")
    failure.__cause__ = error
    return failure
