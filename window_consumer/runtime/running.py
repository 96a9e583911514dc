"""A running application: its lifespan, its supervisor, and the order in which they start and end.

Start: enter the lifespan, then start the workers. Stop: every worker drains and commits, the
lifespan exits, then every worker leaves its group.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

from window_consumer.engine.counters import Counters
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.errors import LifespanError, WrongProcessError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.error_report import lifespan_error
from window_consumer.runtime.supervisor import MakeSource, MakeWorkers, WorkerSupervisor, as_failure
from window_consumer.runtime.worker import Worker

_ASK_S: Final = 0.2


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
        self._supervisor = WorkerSupervisor(logger, make_source)
        self._pid = os.getpid()
        self._started = threading.Event()
        self._ended = threading.Event()
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
                self._supervisor.stop_starting()
        if self._start_error is not None:
            self._ended.wait()
            raise self._start_error
        return self

    def stop(self) -> None:
        """Request a drain and an end; return at once. May be called again."""
        self._check_process()
        self._supervisor.stop()

    def lifespan_is_over(self, error: BaseException) -> None:
        """Drain all workers because the lifespan ended by itself and its resources are gone."""
        failure = lifespan_error(error, "ended by itself")
        self._logger.error(
            "%s: its resources are gone, so the workers drain",
            failure,
            extra={"event": LogEvent.LIFESPAN_ENDED},
        )
        self._supervisor.fail(failure)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False if it has not come within ``timeout_s``."""
        self._check_process()
        return self._ended.wait(timeout_s)

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers; none before the lifespan has been entered."""
        return self._supervisor.workers

    @property
    def failure(self) -> BaseException | None:
        """Why it ended by itself, or why its start or end failed."""
        return self._supervisor.failure

    @property
    def left_behind(self) -> bool:
        """Whether one of its threads still runs after the end, in a handler that never returned."""
        return self._supervisor.left_behind

    @property
    def counters(self) -> Mapping[str, Counters]:
        """The counters of each worker so far."""
        self._check_process()
        return {worker.name: worker.counters for worker in self.workers}

    def snapshots(self, timeout_s: float = 1.0) -> Mapping[str, WindowsSnapshot]:
        """Return the windows of each worker, without those that do not answer in time."""
        self._check_process()
        return windows_of(self.workers, timeout_s)

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
                    self._supervise(state[0])
            self._supervisor.leave()
        except BaseException as error:
            self._died(error)
        try:
            self._on_end()
        except Exception:
            self._logger.exception(
                "the parts beside the workers did not end properly",
                extra={"event": LogEvent.CLEANUP_FAILED},
            )
        finally:
            self._ended.set()
            self._started.set()

    def _supervise(self, state: Any) -> None:
        """Supervise the workers; return even after an error, so that the lifespan can exit."""
        supervisor = self._supervisor
        try:
            try:
                supervisor.start(self._make_workers, state)
            except BaseException as error:
                self._start_error = error
            self._started.set()
            supervisor.run()
        except BaseException as error:
            self._died(error)
            supervisor.drain()

    def _died(self, error: BaseException) -> None:
        """Record an unexpected error as the failure that waiting callers get."""
        self._logger.error(
            "the supervisor has died, please report this bug",
            exc_info=error,
            extra={"event": LogEvent.SUPERVISOR_CRASHED},
        )
        self._supervisor.fail(as_failure(error, "the supervisor"))
        if not self._started.is_set():
            self._start_error = self.failure

    @contextlib.contextmanager
    def _entered(self) -> Any:
        """Enter and exit the lifespan on this one thread; its exceptions become the failure."""
        try:
            state = self._lifespan.__enter__()
        except BaseException as error:
            self._start_error = lifespan_error(error)
            self._supervisor.fail(self._start_error)
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
            self._supervisor.fail(error)


def windows_of(workers: Sequence[Worker], timeout_s: float) -> Mapping[str, WindowsSnapshot]:
    """Return the windows of each worker, without those that do not answer in time."""
    if len(workers) < 2:
        found = [worker.snapshot(timeout_s).windows for worker in workers]
    else:
        # In parallel, so that several silent workers cost one timeout.
        with concurrent.futures.ThreadPoolExecutor(len(workers), "wc-pictures") as pool:
            found = list(pool.map(lambda worker: worker.snapshot(timeout_s).windows, workers))
    snapshots = zip(workers, found, strict=True)
    return {worker.name: each for worker, each in snapshots if each is not None}
