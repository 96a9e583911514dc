"""A producer that gives each record an id and reports its delivery to watchers."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from window_consumer.kafka import errors
from window_consumer.model import headers as names
from window_consumer.model import traceparent
from window_consumer.model.errors import PublishFailedError, WindowConsumerError
from window_consumer.model.sending import SendTrace, SendWatcher

Text = str | bytes
GivenHeaders = Mapping[str, Text | None] | Sequence[tuple[str, Text | None]]
OnDelivery = Callable[[KafkaError | None, Message], None]


class WatchedProducer(Producer):
    """A confluent_kafka.Producer whose ``produce`` adds headers and reports to watchers.

    An error of a watcher is never raised and fails no record.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        trace: SendTrace | None = None,
        watchers: Sequence[SendWatcher] = (),
        parent: Callable[[], str | None] = lambda: None,
        tags: str = "",
        **more: Any,
    ):
        """``parent`` returns the current traceparent; ``tags`` go to records without any."""
        super().__init__(dict(conf), **more)
        self._trace = trace
        self._watchers = tuple(watchers)
        self._parent = parent
        self._tags = tags.encode()

    def produce(  # noqa: PLR0913 - as the client has it
        self,
        topic: str,
        value: Text | None = None,
        key: Text | None = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: GivenHeaders | None = None,
    ) -> None:
        """Send a record with ``wc-id`` and ``wc-sent-at``, like confluent_kafka's produce.

        Keeps a ``wc-id``, ``wc-tags`` or ``traceparent`` among the headers. Raises the same errors
        as the client's produce.
        """
        now_ms = time.time_ns() // 1_000_000
        pairs = self._completed(headers, now_ms)
        sending = WatchedSend(self._trace, self._watchers, topic, on_delivery or callback)
        sending.begin(_bytes(key), len(_bytes(value) or b""), timestamp or now_ms, pairs)
        try:
            super().produce(
                topic,
                value=value,
                key=key,
                partition=partition,
                on_delivery=sending.answered,
                timestamp=timestamp or now_ms,
                headers=[*pairs],
            )
        except BufferError as error:
            sending.failed(error)
            raise
        except KafkaException as exception:
            cause = errors.cause_of(exception)
            text = f"{topic}: {exception}"
            sending.failed(
                PublishFailedError(text, refused=True)
                if cause is None
                else errors.publish_failure(cause, topic)
            )
            raise

    def _completed(self, given: GivenHeaders | None, now_ms: int) -> list[tuple[str, bytes | None]]:
        """Return the headers, completed with ours."""
        items = given.items() if isinstance(given, Mapping) else given or ()
        pairs = [(name, _bytes(value)) for name, value in items]
        there = {name for name, _ in pairs}
        if names.ID not in there:
            pairs.append((names.ID, new_id(now_ms).encode()))
        if names.SENT_AT not in there:
            pairs.append((names.SENT_AT, str(now_ms).encode()))
        if self._tags and names.TAGS not in there:
            pairs.append((names.TAGS, self._tags))
        if traceparent.HEADER not in there:
            parent = None
            with suppress(Exception):
                parent = self._parent()
            if parent is not None:
                pairs.append((traceparent.HEADER, parent.encode()))
        return pairs


class WatchedSend:
    """One record that is being sent."""

    __slots__ = ("_on_delivery", "_topic", "_trace", "_watched", "_watchers")

    def __init__(
        self,
        trace: SendTrace | None,
        watchers: Sequence[SendWatcher],
        topic: str,
        on_delivery: OnDelivery | None,
    ):
        self._trace = trace
        self._watchers = watchers
        self._topic = topic
        self._on_delivery = on_delivery
        self._watched: list[tuple[SendWatcher | SendTrace, Any]] = []

    def begin(
        self,
        key: bytes | None,
        size: int,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        """Report that the record is about to be sent."""
        record_id = dict(headers)[names.ID] or b""
        for watcher in self._watchers:
            with suppress(Exception):
                token = watcher.sent(self._topic, key, size, timestamp_ms, record_id)
                self._watched.append((watcher, token))
        if self._trace is not None:
            with suppress(Exception):
                token = self._trace.began(self._topic, key, record_id, headers)
                self._watched.append((self._trace, token))

    def answered(self, error: KafkaError | None, message: Message) -> None:
        """Report the result to the watchers, then call the sender's ``on_delivery``."""
        if error is None:
            self.acked(message)
        else:
            self.failed(errors.publish_failure(error, self._topic))
        if self._on_delivery is not None:
            self._on_delivery(error, message)

    def acked(self, message: Message) -> None:
        """Report where the record was written."""
        partition, offset = message.partition(), message.offset()
        for watcher, token in self._watched:
            with suppress(Exception):
                # With acks=0 the client does not know where the record is: -1 and -1001.
                watcher.acked(token, int(partition or 0), int(offset or 0))

    def failed(self, error: BufferError | WindowConsumerError) -> None:
        """Report that the record was not sent, or that its fate is unknown."""
        for watcher, token in self._watched:
            with suppress(Exception):
                watcher.failed(token, error)


def new_id(now_ms: int) -> str:
    """Return a unique id, a UUID of version 7: ids sort by time."""
    number = (now_ms & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    return str(uuid.UUID(int=number))


def _bytes(text: Text | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
