"""Messages that a call publishes become its results.

FastStream's own producer encodes each message; only the client below it is ours, and keeps the
messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any

from attrs import define, field

from window_consumer import Produce, UsageError

Headers = list[tuple[str, bytes]]


@define
class PublishingCall:
    """One call of a subscriber. Owner: the task that makes it."""

    results: list[Produce] = field(factory=list)
    """The published messages, in order."""
    signal: BaseException | None = None
    """The function's signal to FastStream, such as ``NackMessage``."""
    nacked: bool = False
    """Whether the function has called ``message.nack()``."""
    ended: bool = False
    """Whether its results are taken; later messages would be lost."""


_CALL: ContextVar[PublishingCall | None] = ContextVar("window_consumer_faststream", default=None)


def current_call() -> PublishingCall | None:
    """Return the running call; None outside calls, such as in a web application."""
    return _CALL.get()


@contextmanager
def call_begun() -> Iterator[PublishingCall]:
    """Yield a call for this block."""
    call = PublishingCall()
    token = _CALL.set(call)
    try:
        yield call
    finally:
        call.ended = True
        _CALL.reset(token)


class CallProducer:
    """Wraps a broker's producer, and takes messages published within our calls.

    Outside our calls the broker's own producer works. Any event loop may use it.
    """

    def __init__(self, config: Any):
        self._own = config.producer
        self._config = config
        self._encoding: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __bool__(self) -> bool:
        return current_call() is not None or bool(self._own)

    async def publish(self, command: Any) -> Any:
        """Encode one message; see ``KafkaBroker.publish``."""
        return await (await self._producer()).publish(command)

    async def publish_batch(self, command: Any) -> Any:
        """Encode several messages; see ``KafkaBroker.publish_batch``."""
        return await (await self._producer()).publish_batch(command)

    async def request(self, command: Any) -> Any:
        """Let FastStream refuse it: its Kafka brokers do not support requests."""
        return await self._own.request(command)

    async def _producer(self) -> Any:
        if current_call() is None:
            return self._own
        if self._encoding is None:
            encoding = type(self._own)(None, None)
            connected = encoding.connect(
                RecordingClient(),
                serializer=self._config.fd_config._serializer,  # noqa: SLF001 - has no other name
                codec=self._config.broker_codec,
            )
            if isawaitable(connected):
                await connected
            self._encoding = encoding
        return self._encoding


class RecordingClient:
    """Has the methods of a client's producer that FastStream calls; records stay in the call."""

    async def start(self) -> None:
        """Connect nothing."""

    async def send(  # noqa: PLR0913 - the parts of a record
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        no_confirm: bool = True,  # noqa: FBT001, FBT002 - FastStream's name; aiokafka has none
    ) -> asyncio.Future[None] | None:
        """Keep one record; answer like the client after an acknowledgement."""
        call = current_call()
        if call is None or call.ended:
            raise UsageError(
                f"a message for {topic} was published after its handler had returned: await"
                " broker.publish() in the handler, or the message may be lost with the process"
            )
        call.results.append(
            Produce(
                topic,
                key,
                value,
                headers=headers or (),
                partition=partition,
                timestamp=timestamp_ms,
            )
        )
        return _answered() if no_confirm else None

    def create_batch(self) -> RecordedBatch:
        """Return an empty batch."""
        return RecordedBatch()

    async def send_batch(
        self,
        batch: RecordedBatch,
        topic: str,
        *,
        partition: int | None = None,
        no_confirm: bool = True,
    ) -> asyncio.Future[None] | None:
        """Keep the records of a batch in their order."""
        for key, value, timestamp, headers in batch.rows:
            await self.send(topic, value, key, partition, timestamp, headers)
        return _answered() if no_confirm else None


@define
class RecordedBatch:
    """A batch that FastStream fills."""

    rows: list[tuple[bytes | str | None, bytes | None, int | None, Headers]] = field(factory=list)

    def append(
        self,
        *,
        key: bytes | str | None = None,
        value: bytes | None,
        timestamp: int | None = None,
        headers: Headers,
    ) -> bool:
        """Add a record; always True, because there is room."""
        self.rows.append((key, value, timestamp, headers))
        return True


def _answered() -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
