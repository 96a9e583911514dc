"""The publisher sends copies and results and passes the broker's answers to the poll thread.

The poll thread sends. A separate thread waits for the answers, so that an ack wakes the poll thread
through the completions queue, like everything else.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any

from attrs import frozen

from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.model.errors import PublishFailedError, RunError
from window_consumer.model.produce import Produce
from window_consumer.model.protocols import Copy, Sink
from window_consumer.runtime.threads import WatchedThread

_SERVE_S = 0.1
_AFTER_A_BUG_S = 1.0
_TROUBLE_S = 60.0
"""Copies are retried every ten seconds, so an older error is outdated."""


@frozen
class Published:
    """The answer for a record's copy: ``error`` is None once it is acked."""

    failed: FailedRecord
    error: PublishFailedError | None


class AckedCopies:
    """The records whose copies are acked; one item of the completions queue for all of them.

    Any thread may add to it. It is in the queue whenever it is not empty: acks arrive by hundreds,
    and an item costs the poll thread as much as processing an ack.
    """

    def __init__(self, completions: SimpleQueue[Any]):
        self._completions = completions
        self._records: deque[FailedRecord] = deque()

    def add(self, failed: FailedRecord) -> None:
        """Add a record; wake the poll thread for the first one."""
        self._records.append(failed)
        if len(self._records) == 1:
            self._completions.put(self)

    def take(self) -> Iterator[FailedRecord]:
        """Remove and yield the records, including those added meanwhile."""
        records = self._records
        while records:
            yield records.popleft()


@frozen
class ResultAck:
    """The answer for one result of a call: ``error`` is None once it is acked."""

    production: Production
    index: int
    error: PublishFailedError | None


def copy_of_result(result: Produce) -> Copy:
    """Return the record to write for one result of a call."""
    return Copy(
        result.topic, result.partition, result.key, result.value, result.headers, result.timestamp
    )


class Publisher:
    """Sends copies and results through a Sink.

    Owner: poll thread; the publisher's thread only waits for answers.
    """

    def __init__(self, worker: str, sink: Sink, completions: SimpleQueue[Any]):
        self._sink = sink
        self._completions = completions
        self._acked = AckedCopies(completions)
        self._ended = threading.Event()
        self._trouble: tuple[str, float] | None = None
        """Why the client last gave up, and when; None since the last ack."""
        self._thread = WatchedThread(self._serve, f"wc-{worker}-publisher", completions.put)

    def start(self) -> None:
        """Start waiting for answers."""
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written; None if it can. Any thread may ask."""
        trouble = self._trouble
        return trouble[0] if trouble and monotonic() - trouble[1] < _TROUBLE_S else None

    def publish(self, failed: FailedRecord, copy: Copy) -> None:
        """Send a record's copy; it comes back in ``AckedCopies`` or in a ``Published``, once."""

        def answer(error: PublishFailedError | None) -> None:
            if error is None:
                self._trouble = None
                self._acked.add(failed)
            else:
                self._record_health(error)
                self._completions.put(Published(failed, error))

        self._sink.write(copy, answer)

    def produce(self, production: Production) -> None:
        """Send the results of a call; exactly one ``ResultAck`` follows for each of them."""
        for index in production.to_send:
            copy = copy_of_result(production.results[index])
            self._sink.write(copy, partial(self._answer, production, index))

    def _answer(self, production: Production, index: int, error: PublishFailedError | None) -> None:
        self._record_health(error)
        self._completions.put(ResultAck(production, index, error))

    def _record_health(self, error: PublishFailedError | None) -> None:
        if error is None:
            self._trouble = None
        elif error.gave_up:
            self._trouble = error.why, monotonic()

    def stop(self, timeout_s: float) -> int:
        """End; return how many copies and results have no answer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_SERVE_S * 2)
        return self._sink.close(timeout_s)

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                self._sink.serve(_SERVE_S)
            except Exception as error:
                # Stopping here would leave every copy without an answer forever.
                stack = "".join(traceback.format_exception(error))
                self._completions.put(RunError(f"copies: a bug, please report it:\n{stack}"))
                self._ended.wait(_AFTER_A_BUG_S)
