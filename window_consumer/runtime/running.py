"""A running application: its workers, its lifespan, and the order in which they start and end.

Start: enter the lifespan, then start the workers. Stop: every worker drains and commits, the
lifespan exits, then every worker leaves its group. A worker that stops by itself stops the others,
and the application ends with a failure.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self

from window_consumer.engine.counters import Counters
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.errors import (
    CallsHangError,
    LifespanError,
    RunError,
    WindowConsumerError,
    WrongProcessError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Source
from window_consumer.runtime.error_report import class_name, lifespan_error
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.worker import Worker

MakeSource = Callable[[str], Source]
"""Makes a new Source for the named worker, for its restart."""

MAX_RESTARTS: Final = 3
"""How often one worker is restarted after hanging calls. Each restart leaves its threads behind."""

MakeWorkers = Callable[[Any, Callable[[Worker, Phase], None]], Sequence[Worker]]
"""Gets what the lifespan yielded and a callback for phases; returns workers that are not
started."""


_ASK_S = 0.2
_CHECK_S = 1.0
"""How often the supervisor checks that the poll threads are alive."""
_LEAVE_S = 4.0
_GRACE_S = 4.0
"""The time beyond the stop timeout that the last commits may take."""


class Running:
    """A started application. Use it as a context manager, or call ``stop`` and ``wait``.

    It installs no signal handlers and changes no interpreter setting. In a forked process its
    methods raise WrongProcessError, because a fork copies no threads.
    """

    def __init__(
        self,
        make_workers: MakeWorkers,
        lifespan: AbstractContextManager[Any],
        logger: logging.Logger,
        on_end: Callable[[], None] = lambda: None,
        make_source: MakeSource | None = None,
    ):
        self._make_workers = make_workers
        self._lifespan = lifespan
        self._logger = logger
        self._on_end = on_end
        """Called when everything has ended, with or without a failure."""
        self._make_source = make_source
        """None where no worker can be restarted."""
        self._restarts: Counter[str] = Counter()
        self._pid = os.getpid()
        self._events: SimpleQueue[tuple[Worker, Phase] | None] = SimpleQueue()
        self._started = threading.Event()
        self._ended = threading.Event()
        self._stop_asked = threading.Event()
        self.workers: Sequence[Worker] = ()
        self.failure: BaseException | None = None
        """Why it ended by itself, or why its start or end failed."""
        self.left_behind = False
        """Whether one of its threads still runs after the end: a handler that never returned."""
        self._start_error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="wc-supervisor", daemon=True)

    # ---- for the application

    def start(self, stop_asked: Callable[[], bool] = lambda: False) -> Self:
        """Enter the lifespan and start the workers; raise LifespanError if that fails.

        While it waits for child processes it polls ``stop_asked``, and raises StartStoppedError
        once that returns True.
        """
        self._thread.start()
        while not self._started.wait(_ASK_S):
            if stop_asked():
                for worker in self.workers:
                    worker.stop_starting()
        if self._start_error is not None:
            self._ended.wait()
            raise self._start_error
        return self

    def stop(self) -> None:
        """Request a drain and an end; return at once. May be called again."""
        self._check_process()
        self._stop_asked.set()
        self._events.put(None)

    def lifespan_is_over(self, error: BaseException) -> None:
        """Drain all workers because the lifespan ended by itself and its resources are gone."""
        failure = lifespan_error(error, "ended by itself")
        self._logger.error(
            "%s: its resources are gone, so the workers drain",
            failure,
            extra={"event": LogEvent.LIFESPAN_ENDED},
        )
        self.failure = self.failure or failure
        self._stop_asked.set()
        self._events.put(None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False if it has not come within ``timeout_s``."""
        self._check_process()
        return self._ended.wait(timeout_s)

    @property
    def counters(self) -> Mapping[str, Counters]:
        """The counters of each worker so far."""
        self._check_process()
        return {worker.name: worker.counters for worker in self.workers}

    def snapshots(self, timeout_s: float = 1.0) -> Mapping[str, WindowsSnapshot]:
        """Return the windows of each worker, without those that do not answer in time."""
        self._check_process()
        workers = self.workers
        if len(workers) < 2:
            found = [worker.snapshot(timeout_s).windows for worker in workers]
        else:
            # In parallel, so that several silent workers cost one timeout.
            with concurrent.futures.ThreadPoolExecutor(len(workers), "wc-pictures") as pool:
                found = list(pool.map(lambda worker: worker.snapshot(timeout_s).windows, workers))
        snapshots = zip(workers, found, strict=True)
        return {worker.name: each for worker, each in snapshots if each is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop and wait; raise the failure, unless another exception is propagating."""
        if error is not None and os.getpid() != self._pid:
            return
        self.stop()
        self.wait()
        if self.failure is not None and error is None:
            raise self.failure

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise WrongProcessError(
                "this application was started in another process, and a fork takes neither its"
                " threads nor Kafka's client along: start it after forking, or spawn processes"
            )

    # ---- the supervisor's thread

    def _run(self) -> None:
        try:
            with self._entered() as state:
                if state is not None:
                    self._supervise_or_die(state[0])
            self._leave()
        except BaseException as error:
            self._died(error)
        try:
            self._on_end()
        except Exception:
            self._logger.exception(
                "what runs beside the workers did not end properly",
                extra={"event": LogEvent.CLEANUP_FAILED},
            )
        finally:
            self._ended.set()
            self._started.set()

    def _supervise_or_die(self, state: Any) -> None:
        """Supervise the workers, and return whatever happens so that the lifespan can exit."""
        try:
            self._supervise(state)
        except BaseException as error:
            self._died(error)
            for worker in self._alive():
                worker.stop()

    def _died(self, error: BaseException) -> None:
        """Record an unexpected error as the failure that waiting callers get."""
        self._logger.error(
            "the supervisor has died, please report this bug",
            exc_info=error,
            extra={"event": LogEvent.SUPERVISOR_CRASHED},
        )
        self.failure = self.failure or _as_failure(error, "the supervisor")
        if not self._started.is_set():
            self._start_error = self.failure

    @contextlib.contextmanager
    def _entered(self) -> Any:
        """Enter and exit the lifespan on this one thread; its exceptions become the failure."""
        try:
            state = self._lifespan.__enter__()
        except BaseException as error:
            self.failure = self._start_error = lifespan_error(error)
            yield None
            return
        yield (state,)
        try:
            self._lifespan.__exit__(None, None, None)
        except BaseException as error:
            if not isinstance(self.failure, LifespanError):  # already logged
                self._logger.exception(
                    "the lifespan failed while it was left",
                    extra={"event": LogEvent.LIFESPAN_FAILED},
                )
            self.failure = self.failure or error

    def _supervise(self, state: Any) -> None:
        try:
            self.workers = self._make_workers(state, self._on_phase)
            for worker in self.workers:
                worker.start()
        except BaseException as error:
            self.failure = self._start_error = error
            self._stop_asked.set()
        self._started.set()
        deadline: float | None = None
        # Track events, not phases: a worker may pass DRAINED before its failure was handled.
        working = set(self._alive())
        while working:
            if self._stop_asked.is_set() and deadline is None:
                deadline = perf_counter() + self._longest_stop_s()
                for worker in self._alive():
                    worker.stop()
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

    def _check_threads(self, working: set[Worker]) -> None:
        """Stop all workers, as after any failure, where a poll thread ended silently."""
        for worker in [each for each in working if not each.loop.thread.is_alive()]:
            working.discard(worker)
            thread = worker.loop.thread.name
            worker.loop.failure = worker.loop.failure or RunError(f"its thread {thread} has died")
            self._on_drained(worker)

    def _successors(self, worker: Worker) -> Sequence[Worker]:
        """Return the worker that replaces a drained one; normally none does."""
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
        """End a worker and start its successor; return None where that is impossible."""
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
            self.failure = self.failure or _as_failure(error, worker.name)
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

    def _leave(self) -> None:
        alive = self._alive()
        for worker in alive:
            worker.leave()
        for worker in alive:
            self.left_behind |= not worker.end(_LEAVE_S)
            worker.log_summary()


def _as_failure(error: BaseException, who: str) -> BaseException:
    """Return the exception to raise for it: a SystemExit would end a program with success."""
    if isinstance(error, Exception):
        return error
    failure = RunError(f"{who} has ended by {class_name(type(error))}")
    failure.__cause__ = error
    return failure
