"""``window-consumer run --processes N``: replicas of the whole process, supervised together.

Each replica is a separate process with its own members of the groups, as if somebody had started
``run`` N times. The supervisor starts them, replaces those that end, and passes signals on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType
from typing import Final

from window_consumer.app.limits import STOP_GRACE_S
from window_consumer.cli.output import FAILED, INTERRUPTED, OK, WRONG_USAGE
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.pools.processes.child_process import end_in_words
from window_consumer.runtime.replica import NUMBER, PARENT, SOCKETS, sockets_of

_CHECK_S: Final = 0.05
_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 30.0
"""The longest wait before an ended replica is replaced; waits double while replicas die sooner."""

_KILL_S: Final = STOP_GRACE_S + 2.0
"""Wait after the stop timeout before a kill; replicas end by themselves before."""

_log = own_logger()


class Replica:
    """One replica, across all its processes. Owner: the main thread."""

    def __init__(self, number: int, command: Sequence[str]):
        self.number = number
        self._command = command
        self._born = 0.0
        self._short_lives = 0
        self.due = 0.0
        """The earliest time to start it."""
        self.process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None
        """Exit code of its last process."""

    def start(self, now: float) -> None:
        """Start a process in its own session, out of reach of signals to this one's group."""
        self._born = now
        env = {**os.environ, NUMBER: str(self.number), PARENT: str(os.getpid())}
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            self._command, env=env, start_new_session=True
        )
        _log.info(
            "process %d started (%d)",
            self.number,
            self.process.pid,
            extra={
                "event": LogEvent.REPLICA_STARTED,
                "replica": self.number,
                "pid": self.process.pid,
            },
        )

    def has_ended(self, now: float) -> bool:
        """Return whether its process has ended since the last call."""
        if self.process is None or (code := self.process.poll()) is None:
            return False
        self.process, self.code = None, code
        self._short_lives = 0 if now - self._born > 2 * _MAX_BACKOFF_S else self._short_lives + 1
        backoff_s = _BACKOFF_S * 2 ** min(max(0, self._short_lives - 1), 16)
        self.due = now + min(_MAX_BACKOFF_S, backoff_s)
        return True

    def signal(self, number: signal.Signals) -> None:
        """Pass a signal on."""
        if self.process is not None:
            self.process.send_signal(number)


class Supervisor:
    """Keeps the replicas alive until a signal arrives. Owner: the main thread."""

    def __init__(
        self,
        copies: Sequence[Replica],
        stop_timeout_s: float,
        on_end: Callable[[str], None] = lambda _number: None,
    ):
        self._copies = copies
        self._on_end = on_end
        """Called with the number of a replica whose process has ended."""
        self._stop_timeout_s = stop_timeout_s
        self._stops = 0
        self._pictures = 0
        self._worst = OK

    def run(self) -> int:
        """Run the replicas to the end and return the worst of their exit codes."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGUSR1, self._on_picture)
        while not self._stops:
            now = monotonic()
            for copy in self._copies:
                self._keep(copy, now)
            self._show_pictures()
            signal.sigtimedwait([], _CHECK_S)
        return self._stop()

    def _keep(self, copy: Replica, now: float) -> None:
        if copy.has_ended(now):
            self._on_end(str(copy.number))
            if copy.code == WRONG_USAGE:
                # It has reported the problem, and every replica would fail in the same way.
                self._worst = WRONG_USAGE
                self._stops += 1
                return
            wait_s = copy.due - now
            _log.warning(
                "process %d %s; it is started again in %.1f s",
                copy.number,
                end_in_words(copy.code or 0),
                wait_s,
                extra={
                    "event": LogEvent.REPLICA_CRASHED,
                    "replica": copy.number,
                    "exit_code": copy.code,
                },
            )
        if copy.process is None and now >= copy.due and not self._stops:
            copy.start(now)

    def _stop(self) -> int:
        deadline = monotonic() + self._stop_timeout_s + _KILL_S
        running = [copy for copy in self._copies if copy.process is not None]
        _log.info("stopping %d processes", len(running), extra={"event": LogEvent.REPLICAS_STOPPED})
        asked = self._stops
        for copy in running:
            copy.signal(signal.SIGTERM)
        while running:
            self._show_pictures()
            for copy in [each for each in running if each.has_ended(monotonic())]:
                running.remove(copy)
                _log.info(
                    "process %d %s",
                    copy.number,
                    end_in_words(copy.code or 0),
                    extra={
                        "event": LogEvent.REPLICA_ENDED,
                        "replica": copy.number,
                        "exit_code": copy.code,
                    },
                )
                # A process that died of the signal had not started; otherwise it would have caught
                # it.
                well = copy.code in (OK, -signal.SIGTERM)
                self._worst = max(self._worst, OK if well else FAILED)
            if self._stops > asked or monotonic() > deadline:
                for copy in running:
                    _log.error(
                        "process %d is killed; what it had will run again",
                        copy.number,
                        extra={"event": LogEvent.REPLICA_KILLED, "replica": copy.number},
                    )
                    copy.signal(signal.SIGKILL)
                return INTERRUPTED if self._stops > asked else FAILED
            signal.sigtimedwait([], _CHECK_S)
        return self._worst

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stops += 1

    def _on_picture(self, _number: int, _frame: FrameType | None) -> None:
        self._pictures += 1

    def _show_pictures(self) -> None:
        while self._pictures:
            self._pictures -= 1
            for copy in self._copies:
                copy.signal(signal.SIGUSR1)


def run_copies(count: int, make_plan: Callable[[], AppPlan], app: AppDefinition) -> int:
    """Run ``count`` replicas of this command until a signal ends them; return the exit code.

    Raises UsageError for a configuration with which no replica could run, or no two at once.
    """
    plans = []
    for number in (1, 2):
        os.environ[NUMBER] = str(number)
        plans.append(make_plan())
    del os.environ[NUMBER]
    if count > 1:
        _refuse_equal_instances(*plans)
        app.features.refuse_replicas(*plans)
    longest = max(worker.config.stop_timeout for worker in plans[0].workers)
    command = [
        sys.executable,
        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing does
        *("-m", "window_consumer"),
        *sys.argv[1:],
    ]
    copies = [Replica(number, command) for number in range(1, count + 1)]
    features = app.features
    if not any(feature.asks_replicas(plans[0]) for feature in features.each):
        return Supervisor(copies, longest).run()
    with TemporaryDirectory(prefix="window-consumer-") as directory:
        os.environ[SOCKETS] = directory
        numbers = [str(copy.number) for copy in copies]
        sockets = {number: sockets_of(directory, number) for number in numbers}
        with features.beside_replicas(plans[0], sockets, app.token_function) as on_end:
            return Supervisor(copies, longest, on_end).run()


def _refuse_equal_instances(one: AppPlan, other: AppPlan) -> None:
    """Refuse static members with the same name: they would fence each other."""
    for first, second in zip(one.workers, other.workers, strict=True):
        instance = first.consumer.get("group.instance.id")
        if instance is not None and instance == second.consumer.get("group.instance.id"):
            raise UsageError(
                f"--processes: workers.{first.name}: group.instance.id is {instance} in all of"
                f" them, but must differ within a group: write {instance}-${{{NUMBER}}}"
            )
