"""The transactions of one worker: its copies and results, and the commits of its group.

A client that is fenced or cannot finish a transaction is replaced. The next one has the same id and
ends that transaction before it begins another, so its result is known by then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.writing.client import SendingClient, retried, size_limit
from window_consumer.model.errors import (
    BrokerUnavailableError,
    NotCommittedError,
    PublishFailedError,
    WorkerStoppedError,
    WrongProcessError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Commit, Copy, Delivery

_PARTITION_BY_KEY: Final = -1
_BATCH_BYTES: Final = 1_000_000
"""librdkafka's default."""

_BATCH_SHARE: Final = 0.8
"""The batch.size for a topic with a certain limit; it leaves room for headers."""

_FLUSH_S: Final = 0.05
_INIT_S: Final = 10.0
_RIVAL_S: Final = 60.0
"""A second fencing within this time means that another process keeps using the id."""


class KafkaTransactions:
    """Writes copies and results into transactions. Any thread writes while one is open."""

    def __init__(self, settings: Mapping[str, Any], log: ClientLog):
        self._settings = dict(settings)
        self._log = log
        self._batch_bytes = int(settings.get("batch.size", _BATCH_BYTES))
        self._too_large: str | None = None
        """A topic that has refused a batch for its size."""
        self.id = str(settings["transactional.id"])
        self._timeout_s = int(settings["transaction.timeout.ms"]) / 1000
        self._client: SendingClient | None = None
        self._pid = os.getpid()
        self._is_open = False
        self._failed: KafkaError | None = None
        """Why the first record of this transaction was not written."""
        self._began_at = 0.0
        """When the first record of this transaction was written; 0 before."""
        self._fenced_at = float("-inf")
        self._acked: list[Delivery] = []
        """Callbacks of records that the brokers have but readers do not see yet."""

    # ---- the thread that writes

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Write a copy into the open transaction; ``on_delivery`` gets None once it is committed.

        Raises WrongProcessError in a fork.
        """
        topic, partition, key, value, headers, timestamp = copy
        client = self._client
        if os.getpid() != self._pid or client is None:
            raise WrongProcessError("this producer was created in another process")

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self._acked.append(on_delivery)
                return
            self._failed = self._failed or error
            failure = errors.publish_failure(error, topic)
            if failure.too_large and len(value or b"") < self._batch_bytes:
                # The brokers refuse whole batches: another record may have caused it.
                self._too_large = topic
                failure = PublishFailedError(str(failure), why=failure.why)
            on_delivery(failure)

        self._began_at = self._began_at or time.monotonic()
        try:
            client.produce(
                topic,
                value,
                key,
                _PARTITION_BY_KEY if partition is None else partition,
                report,
                None,
                timestamp or 0,  # 0 is the time of sending
                list(headers),
            )
        except (KafkaException, BufferError) as exception:
            error = errors.cause_of(exception)
            failure = PublishFailedError(f"copy to {topic}: {exception}")
            on_delivery(failure if error is None else errors.publish_failure(error, topic))

    # ---- the thread that waits

    def serve(self, timeout_s: float) -> None:
        """Wait for answers and pass them on."""
        if self._client is None:
            time.sleep(timeout_s)
        else:
            self._client.serve(timeout_s)

    def begin(self) -> None:
        """Begin a transaction, see ``TransactionControl``."""
        if self._is_open:
            return
        self._answer(PublishFailedError("its transaction was aborted"))
        if self._too_large is not None:
            self._make_batches_smaller(self._too_large)
        try:
            if self._client is None:
                client = SendingClient(self._settings, self._log, self._on_error)
                client.init_transactions(_INIT_S)
                self._client = client
            self._client.begin_transaction()
        except KafkaException as exception:
            self._client = None
            raise self._not_begun(exception) from None
        self._is_open, self._failed, self._began_at = True, None, 0.0

    def _not_begun(self, exception: KafkaException) -> Exception:
        error = errors.cause_of(exception)
        if error is None:
            return WorkerStoppedError(f"transactional.id {self.id}: {exception}")
        if errors.is_permission(error):
            text = f"transactional.id {self.id}: {errors.text_of(error)}"
            return WorkerStoppedError(f"{text}: add an ACL with WRITE on it")
        why = errors.text_of_no_transaction(error)
        return BrokerUnavailableError(f"transactional.id {self.id} cannot be used yet: {why}")

    def _on_error(self, error: KafkaError) -> None:
        self._log.info(LogEvent.PRODUCER_WARNED, "transactions: %s", errors.text_of(error))

    def commit(
        self, commits: Sequence[Commit], member: object, is_cancelled: Callable[[], bool]
    ) -> None:
        """Commit the transaction with these offsets, see ``TransactionControl``."""
        client = self._client
        assert client is not None  # begin has made it
        offsets = [ClientPartition(*each.name, each.next_offset, each.metadata) for each in commits]
        self._is_open = False
        try:
            self._flush(client)
            if not is_cancelled():
                retried(lambda wait: client.send_offsets_to_transaction(offsets, member, wait))
                retried(client.commit_transaction)
                self._answer(None)
                return
        except KafkaException as exception:
            self._fail(client, exception)
        self._abort(client)
        raise NotCommittedError("it took longer than the partitions were ours")

    def _answer(self, error: PublishFailedError | None) -> None:
        acked, self._acked = self._acked, []
        for on_delivery in acked:
            on_delivery(error)

    def _flush(self, client: SendingClient) -> None:
        """Wait until all is written, or one record has failed: the others then get no answer."""
        deadline = time.monotonic() + self._timeout_s
        while self._failed is None and client.fatal is None:
            try:
                if not client.hurry(_FLUSH_S):
                    break
            except SystemError:
                break  # raised by callbacks of a fenced client; the next call reports it
            if time.monotonic() > deadline:
                raise errors.timed_out()
        if self._failed is not None and client.fatal is None:
            raise KafkaException(self._failed)

    def _fail(self, client: SendingClient, exception: KafkaException) -> None:
        """Abort, or leave the client to its successor; always raises."""
        error = errors.cause_of(exception)
        if error is None:
            raise exception
        text = errors.text_of(error)
        is_fenced = errors.is_fenced(error)
        if errors.is_fatal(error) or not (error.txn_requires_abort() or error is self._failed):
            self._leave(client)
        else:
            self._abort(client)
        if is_fenced and not self._is_timed_out():
            self._fenced(text)
        too_large = errors.commit_failure(error).metadata_too_large
        raise NotCommittedError(text, metadata_too_large=too_large)

    def _make_batches_smaller(self, topic: str) -> None:
        """Let the next client send smaller batches, so that a large record is sent alone."""
        self._too_large = None
        limit = size_limit(self._settings, topic)
        half = self._batch_bytes // 2
        self._batch_bytes = max(1, half if limit is None else min(half, int(limit * _BATCH_SHARE)))
        self._settings["batch.size"] = self._batch_bytes
        if self._client is not None:
            self._leave(self._client)

    def _is_timed_out(self) -> bool:
        """Return whether the brokers have ended the transaction, which fences the client, too."""
        return self._began_at > 0 and time.monotonic() - self._began_at >= self._timeout_s

    def _fenced(self, text: str) -> None:
        """Continue after a first fencing; raise WorkerStoppedError after the second in a row."""
        now, before = time.monotonic(), self._fenced_at
        self._fenced_at = now
        if now - before < _RIVAL_S:
            raise WorkerStoppedError(
                f"another process uses the transactional.id {self.id} ({text}): give each process"
                " of this worker its own group.instance.id"
            )

    def abort(self) -> None:
        """Abort the transaction; if that fails, ``begin`` replaces the client."""
        if self._is_open and self._client is not None:
            self._is_open = False
            self._abort(self._client)

    def _abort(self, client: SendingClient) -> None:
        try:
            retried(client.abort_transaction)
        except KafkaException as exception:
            self._leave(client)
            error = errors.cause_of(exception)
            if error is not None and errors.is_fenced(error) and not self._is_timed_out():
                self._fenced(errors.text_of(error))

    def _leave(self, client: SendingClient) -> None:
        self._client = None
        client.give_up(in_flight=True)
        with suppress(SystemError):
            client.serve(0)

    def close(self, timeout_s: float) -> int:
        """Abort the open transaction; return 0, because nothing waits for an answer."""
        del timeout_s
        self.abort()
        self._answer(PublishFailedError("its transaction was aborted"))
        return 0
