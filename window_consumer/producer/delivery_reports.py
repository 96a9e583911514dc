"""Delivery reports: which thread serves them, and their effect on records.

One thread at a time serves them: the background thread, or a thread that sends a lot. If two
threads alternated, each report would wait a whole switch interval of the GIL, 5 ms.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, repeat
from typing import Any, Final

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.unacked_records import UnackedRecords
from window_consumer.model.errors import UsageError
from window_consumer.model.headers import ID
from window_consumer.model.log_events import LogEvent
from window_consumer.producer.errors import send_error
from window_consumer.producer.future import DetailedSendFuture, SendFuture

_MOST_SPARES: Final = 20_000
"""Futures that are kept for the next records: 2 MB."""

_HOT_S: Final = 0.05
"""A thread that sent a round of records this recently serves delivery reports itself."""


class DeliveryReports:
    """The reports of all clients of a Producer. Any thread may call."""

    def __init__(
        self,
        records: UnackedRecords[SendFuture],
        lock: AbstractContextManager[object],
        log: ClientLog,
        be_careful: Callable[[], None],
    ):
        """``lock`` guards ``records``. ``be_careful`` is called once records wait for a topic."""
        self.id_prefix = f"{os.urandom(9).hex()}-"
        self.next_number: Callable[[], tuple[int, tuple[str, str]]] = _numbered(self.id_prefix)
        """Returns the number of the next record, and its header."""
        self.spares: deque[SendFuture] = deque(maxlen=_MOST_SPARES)
        self.background_thread: int | None = None
        self.turns = 0
        """How often senders may have served."""
        self._records = records
        self._lock = lock
        self._log = log
        self._be_careful = be_careful
        self._serving = threading.Lock()
        self._serving_thread: int | None = None
        self._turned_at = 0.0

    # ---- the thread that serves

    @property
    def is_serving(self) -> bool:
        """Return whether this thread serves delivery reports."""
        return self._serving_thread == threading.get_ident()

    @property
    def is_hot(self) -> bool:
        """Return whether a thread sends so much that it serves delivery reports itself."""
        return time.monotonic() - self._turned_at < _HOT_S

    def is_due(self) -> bool:
        """Return whether this thread, which has sent a round of records, should serve reports."""
        now = time.monotonic()
        is_hot, self._turned_at = now - self._turned_at < _HOT_S, now
        self.turns += 1
        return is_hot and not self.is_serving

    @contextmanager
    def serve_alone(self) -> Iterator[None]:
        """Be the thread that serves delivery reports."""
        self.check_may_wait()
        if threading.get_ident() != self.background_thread:
            self._turned_at = time.monotonic()  # makes the background thread step back
        with self._serving:
            self._serving_thread = threading.get_ident()
            try:
                yield
            finally:
                self._serving_thread = None

    def check_may_wait(self) -> None:
        """Raise UsageError on the thread that serves delivery reports: it would deadlock."""
        if self.is_serving:
            raise UsageError(
                "a callback of a SendFuture cannot wait for other records: it runs on the thread"
                " that serves their delivery reports"
            )

    def after_fork(self) -> None:
        """Forget the serving thread, in a process that has none of the threads."""
        self._serving = threading.Lock()

    # ---- processing them, within the client

    def on_left(self, future: SendFuture) -> None:
        """Stop counting a record that has left the client's queue."""
        if isinstance(future, DetailedSendFuture):
            self._records.memory.leave(future.queued_bytes)
            future.queued_bytes = 0

    def on_error(self, future: SendFuture, error: Any, message: Any) -> None:
        """Decide what happens to a record that the client could not send."""
        with self._lock:
            self.fail(future, error, message)
        self.report_ends()

    def fail(self, future: SendFuture, error: Any, message: Any) -> None:
        """Decide the same, for a record that the client refused at once. Needs the lock."""
        missing = self._records.missing
        is_known = future.topic in missing
        self._records.on_failed(future, errors.send_failure(error, message), time.monotonic())
        if missing:
            self._be_careful()
        if not is_known and future.topic in missing:
            self._log.log(
                logging.WARNING,
                "%s: the topic does not exist; its records wait for it",
                future.topic,
                event=LogEvent.PRODUCER_TOPIC_MISSING,
            )

    def report_ends(self) -> None:
        """Fail the futures of records that have ended. The caller does not hold the lock."""
        endings = self._records.endings
        while endings:
            try:
                future, end = endings.popleft()
            except IndexError:
                return  # another thread took the last one
            future.fail(send_error(future, end))

    def on_callback_error(self, future: SendFuture) -> None:
        """Report that a callback has raised; called within ``except``."""
        self._log.log(
            logging.ERROR,
            "a callback of a record sent to %s raised; the record's result is unaffected",
            future.topic,
            event=LogEvent.SEND_CALLBACK_FAILED,
            exc_info=True,
        )


def _numbered(prefix: str) -> Callable[[], tuple[int, tuple[str, str]]]:
    """Return a function for the next record's number and header: one C call, thread-safe."""
    ids = map(prefix.__add__, map(str, count(1)))
    headers = zip(repeat(ID), ids, strict=False)
    return zip(count(1), headers, strict=False).__next__
