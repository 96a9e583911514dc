"""Which process sends the ticks: the owner of the delay service's first partition.

Exactly one member of the group owns it, in both group protocols, and it always exists. A separate
thread sends, so that a broker's answer never delays the poll thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, Sink
from window_consumer.model.record import TopicPartition
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.schedules.schedule import LastTick
from window_consumer.schedules.sender import TickSender

THREAD: Final = "wc-schedules"

_LOOK_S: Final = 1.0
"""The longest pause: the wall clock may be corrected meanwhile."""

_SERVE_S: Final = 0.1
_AGAIN_S: Final = 2.0
_END_S: Final = 5.0


class ScheduleOwner(Observer):
    """Runs the schedules while the delay worker owns the first partition."""

    def __init__(
        self,
        partition: TopicPartition,
        sender: TickSender,
        sink: Sink,
        read: Callable[[], Mapping[str, LastTick]],
        clock: Clock,
    ):
        """``read`` returns the contents of the topic; it may raise a WindowConsumerError."""
        self._partition = partition
        self._sender = sender
        self._sink = sink
        self._read = read
        self._clock = clock
        self._assignment: object | None = None
        """A new one for each assignment; the poll thread sets it, and the thread reads it."""
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)

    # ---- the poll thread

    def assigned(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - see Observer
        """See Observer."""
        if partition.name == self._partition:
            self._assignment = object()
            self._wake.set()

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - see Observer
        """See Observer."""
        if partition.name == self._partition:
            self._assignment = None
            self._wake.set()

    # ---- the supervisor

    def start(self) -> None:
        """Start the thread, which waits for the partition."""
        self._thread.start()

    def stop(self) -> None:
        """End it within some seconds; the next owner repeats unacked ticks."""
        self._stop.set()
        self._wake.set()
        self._thread.join(_END_S)
        self._sink.close(0.0)

    # ---- its own thread

    def _run(self) -> None:
        ours: object | None = None
        while not self._stop.is_set():
            try:
                assignment = self._assignment
                if assignment is not ours:
                    ours = None
                    self._sender.end()
                    self._begin(assignment)
                    ours = assignment
                self._advance()
            except WindowConsumerError as error:
                self._fail(f"schedules: the last ticks cannot be read: {error}")
            except Exception:  # a bug; only acked ticks are recorded
                self._sender.end()
                ours = None
                LOGGER.exception(
                    "schedules: failed, retrying", extra={"event": LogEvent.SCHEDULES_FAILED}
                )
                self._stop.wait(_AGAIN_S)

    def _begin(self, assignment: object | None) -> None:
        if assignment is None:
            return
        self._sender.begin(self._read(), self._clock.wall_ms())
        LOGGER.info(
            "schedules: this process sends their ticks", extra={"event": LogEvent.SCHEDULES_OWNED}
        )

    def _advance(self) -> None:
        now, wall_ms = self._clock.now(), self._clock.wall_ms()
        self._sender.advance(now, wall_ms)
        if self._sender.is_waiting:
            self._sink.serve(_SERVE_S)
            return
        self._wake.wait(self._sender.wait_s(now, wall_ms, _LOOK_S))
        self._wake.clear()

    def _fail(self, message: str) -> None:
        LOGGER.warning("%s", message, extra={"event": LogEvent.SCHEDULES_FAILED})
        self._stop.wait(_AGAIN_S)
