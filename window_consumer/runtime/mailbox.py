"""Messages from other threads to the poll thread, in the order of their arrival.

Slots and the publisher report results, the topic watch reports changes, and any thread may run a
request on the Engine. One queue carries everything and also wakes the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from attrs import define, field

from window_consumer.engine.engine import Engine
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import WindowConsumerError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, TopicFacts
from window_consumer.runtime.freeze_detector import FreezeDetector
from window_consumer.runtime.topic_watch import LogEnds, TopicNews
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.writing.publisher import AckedCopies, Published, ResultAck

SERVE_S: Final = 0.05
"""While the slots are busy, the loop still polls the client this often, also for copies."""

T = TypeVar("T")

Ask = Callable[[Engine, Clock], T]
"""Called on the poll thread between two events; must be quick and must not block."""


class MailboxRequest(Generic[T]):
    """A request that is answered once. Any thread may wait for the answer."""

    def __init__(self, ask: Ask[T]):
        self._ask = ask
        self._answered = threading.Event()
        self._answer: T | None = None
        self._wanted = True

    def answer(self, engine: Engine, clock: Clock) -> None:
        """Answer on the poll thread; the waiting thread continues even if that raises.

        A request is skipped if nobody waits for it any more.
        """
        try:
            if self._wanted:
                self._answer = self._ask(engine, clock)
        finally:
            self._answered.set()

    def wait(self, timeout_s: float) -> T | None:
        """Return the answer, None if it did not come in time or the request failed."""
        if not self._answered.wait(timeout_s):
            self._wanted = False
            return None
        return self._answer


@define(eq=False)
class WorkerMailbox:
    """The completions queue of a worker. Owner: poll thread, except ``ask`` and ``wake``."""

    _engine: Engine
    _clock: Clock
    _worker_log: WorkerLog
    _freeze_detector: FreezeDetector
    _completions: SimpleQueue[Any]
    _inherited: Sequence[SimpleQueue[Any]]
    on_topics: Callable[[Mapping[str, TopicFacts]], None] = field(init=False)
    """Gets changes of topics; set by the ownership."""
    given_up: WorkerStoppedError | None = None
    """Why the pool cannot continue, None while it can."""

    # ---- for any thread

    def ask(self, ask: Ask[T], timeout_s: float) -> T | None:
        """Run ``ask`` with the Engine on the poll thread and return its answer; wakes the thread.

        Return None after ``timeout_s`` without an answer. An exception of ``ask`` is logged and has
        no other effect.
        """
        question = MailboxRequest(ask)
        self._completions.put(question)
        return question.wait(timeout_s)

    def wake(self) -> None:
        """Wake the poll thread."""
        self._completions.put(None)

    # ---- for the poll thread

    def take(self, timeout_s: float) -> bool:
        """Pass the other threads' reports to the Engine; wait up to ``timeout_s`` for the first."""
        completions = self._completions
        taken = False
        try:
            item = completions.get(timeout=timeout_s) if timeout_s > 0 else completions.get_nowait()
            now = self._freeze_detector.notice()
            while True:
                taken = True
                if type(item) is Slice:
                    self._engine.on_completion(item, now)
                elif type(item) is AckedCopies:
                    acked_at = self._clock.now()
                    for failed in item.take():
                        self._engine.on_published(failed, None, acked_at)
                elif type(item) is MailboxRequest:
                    self._answer(item)
                elif item is not None:
                    self._receive(item)
                item = completions.get_nowait()
        except Empty:
            if timeout_s > 0:
                # A thread that waits in a loop for long calls was not frozen.
                self._freeze_detector.notice()
            return taken

    def take_inherited(self, now: float) -> None:
        """Pass the ends of the predecessors' calls to the Engine, and ignore everything else."""
        for queue in self._inherited:
            while not queue.empty():
                item = queue.get_nowait()
                if type(item) is Slice:
                    self._engine.on_inherited_completion(item, now)

    def _receive(
        self, item: ResultAck | Published | TopicNews | LogEnds | WindowConsumerError
    ) -> None:
        if isinstance(item, ResultAck):
            if item.error is not None:
                self._worker_log.not_produced(item.production, item.index, item.error)
            self._engine.on_produced(item.production, item.index, item.error, self._clock.now())
        elif isinstance(item, Published):
            if item.error is not None:
                self._worker_log.not_copied(item.failed, item.error)
            self._engine.on_published(item.failed, item.error, self._clock.now())
        elif isinstance(item, TopicNews):
            self.on_topics(item.facts)
        elif isinstance(item, LogEnds):
            self._engine.on_log_ends(item.ends)
        elif isinstance(item, WorkerStoppedError):
            self.given_up = item
        else:
            self._worker_log.trouble(item)

    def _answer(self, question: MailboxRequest[Any]) -> None:
        try:
            question.answer(self._engine, self._clock)
        except Exception as error:
            # A read-only request must not stop the work.
            self._worker_log.warn(
                LogEvent.REQUEST_FAILED, f"a request failed: {error!r}; please report this bug"
            )
