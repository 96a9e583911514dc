"""``SendFuture``: the result of sending one record.

There is one for each record, so it has slots, no constructor and no lock. The thread that serves
delivery reports writes ``answer`` and then reads ``callbacks``; a waiter writes ``callbacks`` and
then reads ``answer``. Whichever thread sees both runs the callbacks; each is popped once.

Most futures are dropped before their delivery report arrives. Those are reused: Python's garbage
collector would visit each one several times, which takes a fifth of the time of sending it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from sys import getrefcount
from typing import Any, Final, Protocol

from attrs import frozen

from window_consumer.model import headers as names
from window_consumer.model.record_identity import id_text
from window_consumer.producer.errors import SendError


@frozen
class SendResult:
    """Where the brokers wrote a record; ``timestamp`` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class AnswerHandler(Protocol):
    """The interface of its producer that a future needs."""

    id_prefix: str
    """The prefix of record ids; the future's number follows."""
    spares: deque[SendFuture]
    """Delivered futures that nobody holds, for the next records."""

    def on_left(self, future: DetailedSendFuture) -> None:
        """Stop counting a record that has left the client's queue."""

    def on_error(self, future: SendFuture, error: Any, message: Any) -> None:
        """Decide what happens to a record that the client could not send."""

    def on_callback_error(self, future: SendFuture) -> None:
        """Report that a callback has raised; called within ``except``."""

    def check_may_wait(self) -> None:
        """Raise UsageError on the thread that serves delivery reports: it would deadlock."""


Headers = list[tuple[str, bytes | str | None]]
DoneCallback = Callable[["SendFuture"], object]

_REGISTERING = threading.Lock()
"""For the first callback of a future; delivery reports never take it."""


class SendFuture:
    """A record's result: await it in any event loop, or wait for it on any thread.

    It cannot be cancelled, because a sent record cannot be taken back.
    """

    __slots__ = ("answer", "callbacks", "handler", "key", "number", "topic", "value")

    answer: Any
    """First None; then the client's message, later a SendResult; or a SendError."""
    callbacks: deque[DoneCallback] | None
    handler: AnswerHandler
    topic: str
    key: bytes | str | None
    value: bytes | str | None
    number: int
    """The order in which the producer's records were sent."""

    partition = -1
    timestamp = 0

    @property
    def headers(self) -> Headers:
        """The headers to send it with, the same on each attempt."""
        return [(names.ID, self.handler.id_prefix + str(self.number))]

    @property
    def id(self) -> str:
        """The record's ``wc-id``: ``Producer.cancel`` takes it if the record is delayed."""
        given = dict(self.headers)[names.ID] or b""
        return given if isinstance(given, str) else id_text(given)

    def produce_with(self, client: Any, on_answer: Callable[[Any, Any], None]) -> None:
        """Hand the record to a client; raises what its ``produce`` raises."""
        client.produce(
            self.topic,
            self.value,
            self.key,
            self.partition,
            on_answer,
            None,
            self.timestamp,
            self.headers,
        )

    def __call__(self, error: Any, message: Any) -> None:
        """Take the client's delivery report. Runs within the client, so it must not raise."""
        if error is not None:
            self.handler.on_error(self, error, message)
        elif self.callbacks is None and getrefcount(self) == _FORGOTTEN:
            self.key = self.value = None
            self.handler.spares.append(self)
        else:
            self.succeed(message)

    def succeed(self, message: Any) -> None:
        """End with the client's message."""
        self.answer = message
        if self.callbacks is not None:
            self.run_callbacks()

    def fail(self, error: SendError) -> None:
        """Fail with an error."""
        self.answer = error
        if self.callbacks is not None:
            self.run_callbacks()

    def run_callbacks(self) -> None:
        """Run each callback once; an exception of one is logged and has no other effect."""
        callbacks = self.callbacks
        while callbacks:
            try:
                callback = callbacks.popleft()
            except IndexError:
                return  # another thread took the last one
            try:
                callback(self)
            except Exception:
                self.handler.on_callback_error(self)

    @property
    def size(self) -> int:
        """The bytes of key, value and headers."""
        parts = [self.key, self.value]
        for name, value in self.headers:
            parts += (name, value)
        return sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part)

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self.answer is not None

    def add_done_callback(self, callback: DoneCallback) -> None:
        """Call ``callback`` with this future once done: on the thread that completes it, or here.

        A callback must return soon: it delays the results of other records.
        """
        with _REGISTERING:
            if self.callbacks is None:
                self.callbacks = deque()
        self.callbacks.append(callback)
        if self.answer is not None:
            self.run_callbacks()

    def result(self, timeout: float | None = None) -> SendResult:
        """Return where the record was written; ``timeout`` in seconds.

        Raises the SendError that ended it, or TimeoutError if it is still outstanding.
        """
        answer = self._wait(timeout)
        if isinstance(answer, SendError):
            raise answer
        if type(answer) is not SendResult:
            _, timestamp = answer.timestamp()
            answer = SendResult(answer.topic(), answer.partition(), answer.offset(), timestamp)
            self.answer = answer  # the message holds a copy of the value
        return answer

    def exception(self, timeout: float | None = None) -> SendError | None:
        """Return the SendError, or None if the record was written; otherwise as ``result``."""
        answer = self._wait(timeout)
        return answer if isinstance(answer, SendError) else None

    def _wait(self, timeout: float | None) -> Any:
        if self.answer is None:
            self.handler.check_may_wait()
            done = threading.Event()
            self.add_done_callback(lambda _: done.set())
            if not done.wait(timeout):
                raise TimeoutError(f"no result for a record of {self.topic} within {timeout} s")
        return self.answer

    def __await__(self) -> Generator[Any, None, SendResult]:
        if self.answer is None:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            self.add_done_callback(lambda _: _wake(loop, waiter))
            yield from waiter
        return self.result(0)


class _Probe(SendFuture):
    __slots__ = ()

    def __call__(self, error: Any, message: Any) -> None:  # noqa: ARG002 - as the client calls
        error.append(getrefcount(self))


def _forgotten() -> int:
    """Return the reference count, within ``__call__``, of a future that only its caller has.

    Measured, as it is Python's own business; 0 where counts are no proof (without the GIL).
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 0
    counts: list[int] = []
    list(map(_Probe(), [counts], [None]))  # called from C, like the client does
    return counts[0]


_FORGOTTEN: Final = _forgotten()


class DetailedSendFuture(SendFuture):
    """A record with headers, a partition, a timestamp or watchers."""

    __slots__ = ("headers", "partition", "queued_bytes", "timestamp", "watched")

    headers: Headers
    partition: int
    timestamp: int

    watched: Any
    """A WatchedSend, or None."""

    queued_bytes: int
    """The bytes it counts for in the client's queue."""

    def __call__(self, error: Any, message: Any) -> None:
        """Take the client's delivery report; watchers see it first."""
        self.handler.on_left(self)
        if error is not None:
            self.handler.on_error(self, error, message)
            return
        if self.watched is not None:
            self.watched.acked(message)
        self.succeed(message)

    def fail(self, error: SendError) -> None:
        """Fail with an error; watchers see it first."""
        if self.watched is not None:
            self.watched.failed(error)
        super().fail(error)


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    try:
        loop.call_soon_threadsafe(_resolve, waiter)
    except RuntimeError:
        if not loop.is_closed():
            raise  # a closed loop has no waiters


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
