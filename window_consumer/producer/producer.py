"""``Producer``: sends records, and keeps sending until the brokers have them."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Self

from window_consumer.config.checks.login import properties_with_login
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.client import log_ranges
from window_consumer.model import traceparent
from window_consumer.model.durations import Delay
from window_consumer.model.errors import UsageError
from window_consumer.model.produce import (
    DELAY_TOPIC,
    Bytes,
    HeaderPairs,
    Serializer,
    Tags,
    cancellation,
    checked_delay_topic,
    with_delivery,
    with_id,
    with_wishes,
)
from window_consumer.model.record import TopicPartition
from window_consumer.model.sending import SendWatcher, Traceable
from window_consumer.producer.client_thread import ClientThread
from window_consumer.producer.delivery import Delivery
from window_consumer.producer.future import SendFuture
from window_consumer.producer.preparation import BeforeSend, RecordPreparation
from window_consumer.producer.settings import client_properties, missing_topic_s, seconds, size
from window_consumer.producer.transactions import Transactions
from window_consumer.runtime.log import own_logger

LOGGER: Final = own_logger()

_ROUND: Final = 127
"""``send`` serves delivery reports once per this many records; a power of two minus one."""

_VERIFY_S: Final = 5.0


class Producer:
    """Sends records to Kafka and loses none. Any thread may call.

    A record counts as sent when all in-sync replicas have it, and one client writes it once
    (idempotence). The producer retries until then, or until it is closed: unavailable brokers,
    leader changes and fatal client errors do not fail a record. Records with the same key stay in
    order. Each has a ``wc-id``, by which consumers recognize a record that was written twice
    because its first acknowledgement was lost; an id given in the headers is kept.
    """

    def __init__(  # noqa: PLR0913 - the options of a producer
        self,
        kafka: Mapping[str, Any],
        *,
        memory: str | int = "64MiB",
        max_block: str | float = "60s",
        compression: str = "zstd",
        serialize: Serializer | Mapping[str, Serializer] | None = None,
        before_send: BeforeSend | None = None,
        trace: Traceable | None = None,
        audit: SendWatcher | Sequence[SendWatcher] | None = None,
        transactional_id: str | None = None,
        delay_topic: str = DELAY_TOPIC,
    ):
        """Create a producer; the brokers need not be available yet.

        ``kafka`` has librdkafka's properties, and may have a ``login`` as in the configuration.
        ``memory`` limits unacknowledged records: the bytes
        of their values, and one record per 512 bytes. ``serialize`` converts values to bytes, for
        all topics or by topic. ``before_send`` gets each record as a Produce, and may return
        another one or raise. ``max_block`` limits waiting for room in the buffer, and for the first
        transaction. ``trace`` takes TraceSettings, ``audit`` a counter of records.
        ``delay_topic`` is the ``delay.topic`` of the service for delayed records. Raises
        UsageError, and what Produce raises for that topic.
        """
        self._delay_topic = checked_delay_topic(delay_topic)
        self._kafka = properties_with_login(kafka, "Producer")
        opened = None if trace is None else trace.open(self._kafka)
        watchers = () if audit is None else audit if isinstance(audit, Sequence) else (audit,)
        self._trace = opened
        self._preparation = RecordPreparation(serialize, before_send, opened, tuple(watchers))
        self._properties = client_properties(self._kafka, compression, transactional_id)
        self._delivery = Delivery(
            self._properties,
            ClientLog(LOGGER.getChild("client")),
            memory=size("memory", memory),
            max_block_s=seconds("max_block", max_block),
            missing_topic_s=missing_topic_s(self._kafka),
            resends=transactional_id is None,
            careful=transactional_id is not None or not self._preparation.is_empty,
        )
        self._thread = ClientThread(self._delivery)
        self._transactions = None if transactional_id is None else Transactions(self._delivery)
        self._contexts = traceparent.contexts()
        self._is_closed = False
        _PRODUCERS.add(self)

    def send(  # noqa: PLR0913 - the parts of a record
        self,
        topic: str,
        key: Bytes = None,
        value: Any = None,
        *,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
        ttl: str | float | None = None,
        tags: Tags = "",
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the usual word
    ) -> SendFuture:
        """Send a record; its future completes once the brokers acknowledge it.

        ``ttl``, such as ``30s``, becomes the header ``ttl`` in seconds, ``tags`` become
        ``wc-tags``. ``timestamp`` is in milliseconds since 1970. ``delay`` and ``deliver_at`` send
        it to the delay service, as in Produce; the future has its position there. ``id`` is its
        ``wc-id``, by default a new one, which the future has, too. Waits up to ``max_block`` while
        the buffer is full, then raises BufferFullError. Raises TypeError and ValueError for an
        invalid record, and UsageError after ``close`` and in a forked process.
        """
        delivery = self._delivery
        client = delivery.client  # read before ``careful``, which is set after a replacement
        if (
            delivery.careful
            or headers
            or tags
            or ttl is not None
            or delay is not None
            or deliver_at is not None
            or id is not None
            or partition is not None
            or timestamp is not None
            or (self._contexts() and traceparent.current() is not None)
        ):
            pairs = with_wishes(headers, None if ttl is None else seconds("ttl", ttl), tags)
            if delay is not None or deliver_at is not None:
                pairs = with_delivery(pairs, topic, delay, deliver_at)
                topic = self._delay_topic
            if id is not None:
                pairs = with_id(pairs, id)
            return self._send_prepared(topic, key, value, pairs, partition, timestamp)
        try:
            future = delivery.spares.pop()
        except IndexError:
            future = SendFuture()
            future.handler = delivery.reports
            future.answer = future.callbacks = None
        future.topic = topic
        future.key = key
        future.value = value
        number, record_id = delivery.next_number()
        future.number = number
        try:
            client.produce(topic, value, key, -1, future, None, 0, [record_id])
        except Exception:
            delivery.submit(future)  # raises the caller's errors again
        else:
            if delivery.client is not client:
                delivery.settle(client)
        if not number & _ROUND:
            delivery.take_turn()
        return future

    def cancel(self, id: str, deliver_at: datetime | None = None) -> SendFuture:  # noqa: A002 - as above
        """Cancel the delayed record with this ``wc-id``; the future is that of the cancellation.

        It must be written at least 1 s before the record is due. With the record's time in
        ``deliver_at``, the delay service can drop the cancellation afterwards. Raises ValueError
        for an invalid id, and what ``send`` raises.
        """
        record = cancellation(id, deliver_at, topic=self._delay_topic)
        return self.send(record.topic, record.key, record.value, headers=record.headers)

    def _send_prepared(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: HeaderPairs,
        partition: int | None,
        timestamp: int | None,
    ) -> SendFuture:
        delivery = self._delivery
        delivery.check_usable()
        if self._transactions is not None:
            self._transactions.check_open()
        record = self._preparation.record(topic, key, value, headers, partition, timestamp)
        number, (_, record_id) = delivery.next_number()
        now_ms = time.time_ns() // 1_000_000
        future = self._preparation.future(record, record_id, now_ms)
        future.handler, future.number = delivery.reports, number
        try:
            delivery.submit(future)
        except BufferError as error:
            if future.watched is not None:
                future.watched.failed(error)
            raise
        if not number & _ROUND:
            delivery.take_turn()
        return future

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records sent so far are done; return how many are still outstanding.

        ``timeout`` is in seconds; None waits without limit.
        """
        self._delivery.check_usable()
        return self._delivery.flush(float("inf") if timeout is None else timeout)

    @property
    def memory(self) -> int:
        """The limit of unacknowledged records, in bytes.

        A change first sends what is buffered under the old limit; meanwhile ``send`` waits.
        """
        return self._delivery.memory

    @memory.setter
    def memory(self, memory: str | int) -> None:
        self._delivery.check_usable()
        self._delivery.set_memory(size("memory", memory))

    @property
    def events_dropped(self) -> int:
        """How many trace events were lost so far."""
        return 0 if self._trace is None else self._trace.dropped

    def verify(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Query the leader of each partition for its first and end offset, within 5 s.

        Raises BrokerUnavailableError, MissingTopicError, NotPermittedError or
        AuthenticationError.
        """
        self._delivery.check_usable()
        return log_ranges(self._properties, topics, _VERIFY_S)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is sent within the block; abort if the block raises.

        Needs ``transactional_id=``. Raises TransactionAbortedError if it was not committed.
        """
        self._delivery.check_usable()
        if self._transactions is None:
            raise UsageError(
                "transaction: the producer needs a transactional_id=, a different one per process"
            )
        with self._transactions.run():
            yield

    def close(self, timeout: str | float = "30s") -> None:
        """Wait for delivery reports, then close: futures still outstanding fail.

        NeverSentError means that a record was certainly not written, MayHaveArrivedError that this
        is unknown. Repeated calls do nothing.
        """
        if self._is_closed:
            return
        self._delivery.check_process()
        self._is_closed = True
        self._thread.close(seconds("close(timeout)", timeout))
        if self._trace is not None:
            self._trace.close()

    def after_fork(self) -> None:
        """Refuse all use in a forked child; called by Python."""
        self._thread.after_fork()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_PRODUCERS: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_PRODUCERS):
        producer.after_fork()


os.register_at_fork(after_in_child=_after_fork)
