"""Ends transactions and begins the next ones, on a thread that waits for the brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Final, Protocol

from attrs import define, frozen

from window_consumer.model.errors import (
    BrokerUnavailableError,
    NotCommittedError,
    WorkerStoppedError,
)
from window_consumer.model.protocols import Commit, Sink, TransactionControl
from window_consumer.runtime.threads import WatchedThread

_SERVE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 10.0


@define(eq=False)
class TransactionEnd:
    """The end of one transaction."""

    commits: Sequence[Commit]
    member: object = None
    """The return value of ``Source.member`` at the freeze; None aborts."""
    error: NotCommittedError | None = None
    """Why it was aborted."""
    is_cancelled: bool = False
    """Its partitions are no longer ours: unsent commits must not be sent."""


class EndTransactions(Protocol):
    """Ends transactions and begins the next. Owner: poll thread."""

    def start(self) -> None:
        """Begin the first transaction."""

    def end(self, ending: TransactionEnd) -> None:
        """End the open transaction and begin another; ``take`` returns ``ending`` then."""

    def take(self, timeout_s: float) -> TransactionEnd | None:
        """Return the transaction that ended, or the first that began; None after the timeout."""

    def stop(self, timeout_s: float) -> int:
        """Abort the open transaction, and end."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written; None if it can. Any thread may ask."""


class TransactionThread:
    """Ends transactions on a separate thread, which waits for the brokers."""

    def __init__(self, worker: str, writer: TransactionalSink, completions: SimpleQueue[Any]):
        self._transactions = writer.transactions
        self._sink = writer.sink
        self._completions = completions
        self._requests: SimpleQueue[TransactionEnd | None] = SimpleQueue()
        self._ended: SimpleQueue[TransactionEnd] = SimpleQueue()
        self._stopping = Event()
        self._failures = 0
        """Transactions in a row that were aborted."""
        self.trouble: str | None = None
        self._thread = WatchedThread(self._run, f"wc-{worker}-transactions", completions.put)

    def start(self) -> None:
        """Begin the first transaction."""
        self._thread.start()

    def end(self, ending: TransactionEnd) -> None:
        """End the open transaction and begin another."""
        self._requests.put(ending)

    def take(self, timeout_s: float) -> TransactionEnd | None:
        """Return the transaction that ended; None after the timeout."""
        if not timeout_s and self._ended.empty():
            return None  # called in each turn of the poll loop
        try:
            return self._ended.get(timeout=timeout_s or None)
        except Empty:
            return None

    def stop(self, timeout_s: float) -> int:
        """Abort the open transaction, and end; return 0."""
        self._stopping.set()
        self._requests.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return 0

    # ---- the thread

    def _run(self) -> None:
        ending: TransactionEnd | None = TransactionEnd(())
        try:
            while ending is not None and self._begin():
                self._answer(ending)
                ending = self._next()
                if ending is not None:
                    self._end(ending)
        except WorkerStoppedError as error:
            self._completions.put(error)
            while ending is not None:
                ending.error = NotCommittedError(str(error))
                self._answer(ending)
                ending = self._requests.get()
        self._sink.close(0.0)

    def _answer(self, ending: TransactionEnd) -> None:
        self._ended.put(ending)
        self._completions.put(None)  # wakes the poll thread

    def _begin(self) -> bool:
        """Begin as soon as possible; return False at a stop."""
        while not self._stopping.is_set():
            try:
                self._transactions.begin()
            except BrokerUnavailableError as error:
                if self.trouble is None:
                    self._completions.put(error)
                self.trouble = str(error)
                self._stopping.wait(1.0)
            else:
                self.trouble = None
                return True
        return False

    def _next(self) -> TransactionEnd | None:
        while True:
            try:
                return self._requests.get(timeout=_SERVE_S)
            except Empty:
                self._sink.serve(0.0)

    def _end(self, ending: TransactionEnd) -> None:
        try:
            if ending.member is None:
                self._transactions.abort()
            else:
                self._transactions.commit(
                    ending.commits, ending.member, lambda: ending.is_cancelled
                )
        except NotCommittedError as error:
            ending.error = error
        if ending.error is None:
            self._failures = 0
            return
        if self._failures:
            self._stopping.wait(min(_LONGEST_PAUSE_S, 0.05 * 2**self._failures))
        self._failures += 1


@frozen
class TransactionalSink:
    """A Sink that writes into transactions."""

    sink: Sink
    transactions: TransactionControl
    ends: Callable[[str, TransactionalSink, SimpleQueue[Any]], EndTransactions] = TransactionThread
    """Creates the object that ends them; the test kit runs everything on one thread."""
