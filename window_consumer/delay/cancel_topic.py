"""Follows all partitions of the topic of cancellations, whichever partitions this member has.

Clients in other languages choose other partitions, so each member reads the whole topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final

from window_consumer.delay.cancellations import Cancellations
from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.kafka.log_follower import LogEnds, LogFollower
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import MissingTopicError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

KIND: Final = "cancellations_unread"
"""The name of the cause in ``doctor``; it is stable."""

_ROUND_S: Final = 0.3
"""How often it queries the end of the topic: records wait until the cancellations of a second ago
are known."""

_FORGET_S: Final = 60.0

_TOLD_S: Final = 5.0
"""After this long without reaching the end, a finding is reported."""

_log = own_logger()


class CancelTopic:
    """Reads the topic on its own thread, ``wc-delay-cancel``. Any thread may ask it."""

    def __init__(
        self,
        topic: str,
        cancellations: Cancellations,
        open_reader: Callable[[], TopicReader],
        log_ends: LogEnds,
    ):
        self._topic = topic
        self._cancellations = cancellations
        self._open_reader = open_reader
        self._log_ends = log_ends
        self._began = self._now()
        self._read_at: float | None = None
        """When the end that has been reached was queried."""
        self._trouble = ""
        self._is_told = False
        self._forget_at = 0.0
        self._stop = Event()
        self._thread = Thread(target=self._run, name="wc-delay-cancel", daemon=True)

    @staticmethod
    def _now() -> float:
        return time.monotonic()

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop; do not wait for long, because the thread may hang in a request."""
        self._stop.set()
        self._thread.join(timeout_s)

    def age_s(self) -> float:
        """Return how many seconds of cancellations may be unknown."""
        return float("inf") if self._read_at is None else self._now() - self._read_at

    @property
    def trouble(self) -> str | None:
        """Why the end has not been reached for some seconds; None if it has."""
        since = self._began if self._read_at is None else self._read_at
        if self._now() - since < _TOLD_S:
            return None
        return self._trouble or "it is still being read"

    # ---- on its own thread

    def _run(self) -> None:
        with self._open_reader() as reader:
            log = LogFollower(reader, self._topic, self._log_ends)
            while not self._stop.is_set():
                asked_at = self._now()
                try:
                    is_read = self._read(log)
                except WindowConsumerError as error:
                    if isinstance(error, MissingTopicError):
                        log.start_over()
                    self._trouble = str(error)
                    self._warn()
                else:
                    if is_read:
                        self._read_at, self._trouble, self._is_told = asked_at, "", False
                self._stop.wait(_ROUND_S)

    def _read(self, log: LogFollower) -> bool:
        """Read to the present end; return False if it was stopped earlier."""
        now_s = time.time()
        for messages in log.to_the_end():
            for message in messages:
                self._cancellations.take(message, now_s)
            if self._stop.is_set():
                return False
        if self._now() >= self._forget_at:
            self._forget_at = self._now() + _FORGET_S
            self._cancellations.remove_past(now_s)
        return True

    def _warn(self) -> None:
        """Log once that records wait."""
        if self._is_told or self.trouble is None:
            return
        self._is_told = True
        _log.warning(
            "delay: due records wait because %s, which may cancel them, cannot be read: %s",
            self._topic,
            self._trouble,
            extra={"event": LogEvent.DELAY_CANCELLATIONS_UNREAD},
        )


class UnreadCancellations(PauseRule):
    """Reports records that wait because cancellations are unknown. Owner: poll thread."""

    def __init__(self, topic: str, trouble: Callable[[], str | None]):
        self._topic = topic
        self._trouble = trouble

    def pauses(self, now: float) -> bool:  # noqa: ARG002 - see PauseRule
        """Return False: records go through their levels."""
        return False

    def findings(self) -> Sequence[RuleFinding]:
        """Return why the topic cannot be read, if so."""
        trouble = self._trouble()
        if trouble is None:
            return ()
        text = (
            f"due records wait because {self._topic}, which may cancel them, has not been read to"
            f" its end ({trouble}): let the service read this topic"
        )
        return [RuleFinding(KIND, text, ends_itself=True, figures={"topic": self._topic})]

    def accept(self) -> None:
        """Keep the finding: it ends once the topic is read."""
