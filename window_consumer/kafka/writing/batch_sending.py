"""Sends batches of records in transactions, with an answer for each within a bounded time.

``Producer`` keeps sending until the brokers have a record. Here a record without an answer in time
is given up, so that the holder of a lock for it may release the lock.

Taking a transactional id fences all earlier senders with that id: Kafka refuses a frozen process
when it wakes. So after taking an id, check that the lock is still ours: ``check_lock`` raises
otherwise.

A broker refuses a batch of the client as a whole, although one record may have caused it. Then the
transaction is aborted, and its records are sent again, in smaller batches or by halves, until the
refused records are alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.writing.batch_answers import (
    AfterAbort,
    Answer,
    AnsweredBatch,
    RefusedRecord,
)
from window_consumer.kafka.writing.batch_limits import BatchLimits, batch_bytes
from window_consumer.kafka.writing.client import SendingClient, has_topic, new_client, size_limit
from window_consumer.kafka.writing.sent_record import SendFailure
from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy

_PARTITION_BY_KEY: Final = -1
_POLL_S: Final = 0.1
_PAUSE_S: Final = 0.01
_ABORT_S: Final = 1.0
_TRANSACTION_MS: Final = 10_000
"""Readers of committed records wait this long for a frozen process, or until another begins."""

_MISSING_TOPIC_MS: Final = 60_000
"""A new topic takes a moment to be known everywhere."""

_LARGEST_RECORD: Final = 100_000_000
"""Just below the broker's socket.request.max.bytes, beyond which the broker always hangs up."""

NO_FAULTS: Final[Mapping[int, str]] = MappingProxyType({})


class FencedError(RunError):
    """Another process sends under this transactional id."""

    code = "WC121"


class BatchSender:
    """Sends batches in their order, each in a transaction. Owner: one thread."""

    def __init__(  # noqa: PLR0913 - independent settings of a sender
        self,
        user_settings: Mapping[str, Any],
        name: str,
        transactional_id: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        timeout_s: float,
        holds_keys: bool,
    ):
        """Give up a record ``timeout_s`` after it was sent, or up to a second later.

        With ``holds_keys`` no record is sent after a refused one of its topic and key.
        """
        ours = {
            "compression.type": "zstd",
            "topic.metadata.propagation.max.ms": _MISSING_TOPIC_MS,
            "message.max.bytes": _LARGEST_RECORD,
            **user_settings,
            "client.id": f"wc-{name}",
            "linger.ms": 0,  # a batch is complete at once, and nothing follows it
            "message.timeout.ms": round(timeout_s * 1000),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "delivery.report.only.error": True,  # the commit answers for the rest
        }
        ours.pop("delivery.timeout.ms", None)  # the same by another name
        self._conf = settings.producer_settings(ours, name)
        self._conf.update(token_setting(self._conf, oauth_token))
        self._log = log
        self.holds_keys = holds_keys
        self.limits = BatchLimits[RefusedRecord](batch_bytes(self._conf))
        self._client: SendingClient | None = None

    def _on_error(self, error: KafkaError) -> None:
        self._log.info(LogEvent.PRODUCER_WARNED, "producer: %s", errors.text_of(error))

    def begin(
        self,
        copies: Sequence[Copy],
        within_s: float,
        check_lock: Callable[[], object],
        faults: Mapping[int, str] = NO_FAULTS,
    ) -> BatchInFlight:
        """Give records to the client; call ``answers`` of the result next.

        ``faults`` has the reasons, by place, why some items are not records: these are refused.
        Connecting a client takes ``within_s`` at most. Raises the exceptions of ``check_lock``.
        """
        flight = BatchInFlight(self, copies, within_s, check_lock, faults)
        flight.hand_over()
        return flight

    def send(
        self,
        copies: Sequence[Copy],
        within_s: float,
        check_lock: Callable[[], object],
        faults: Mapping[int, str] = NO_FAULTS,
    ) -> list[Answer]:
        """Send records and return the answer for each, in their order; see ``begin``."""
        return self.begin(copies, within_s, check_lock, faults).answers(within_s)

    def take_client(
        self, batch: AnsweredBatch, deadline: float, check_lock: Callable[[], object]
    ) -> SendingClient | None:
        """Take the client; a new one fences other senders before the lock is checked.

        Only a returned client is used again: any other has an open transaction.
        """
        client, self._client = self._client, None
        if client is not None:
            return client
        conf = {**self._conf, **self.limits.properties}
        client = new_client(conf, self._log, self._on_error)
        # Connects it: an unconnected client looks for its coordinator only every half second.
        has_topic(client, batch.copies[0].topic)
        try:
            client.init_transactions(max(_POLL_S, deadline - time.monotonic()))
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None:
                raise
            batch.on_unconnected(errors.text_of_no_transaction(error))
            return None
        check_lock()
        return client

    def give_back(self, client: SendingClient) -> None:
        """Keep a client for the next transaction."""
        self._client = client

    def send_again(self, batch: AnsweredBatch, attempt: _Transaction) -> None:
        """Keep the records that did not cause the end of a transaction; they are sent next."""
        topics = batch.topics_to_measure(attempt.failures)
        limits = {topic: size_limit(self._conf, topic) for topic in topics}
        after = batch.on_aborted(attempt.places, attempt.failures, attempt.reason, limits)
        if after is AfterAbort.NEW_CLIENT:
            self._client = None
        elif after is AfterAbort.PAUSE:
            time.sleep(_PAUSE_S)


class BatchInFlight:
    """Records that the client has, or will get at their turn. Owner: one thread."""

    def __init__(
        self,
        sender: BatchSender,
        copies: Sequence[Copy],
        within_s: float,
        check_lock: Callable[[], object],
        faults: Mapping[int, str],
    ):
        self._sender = sender
        self._batch = AnsweredBatch(copies, sender.limits, holds_keys=sender.holds_keys)
        self._deadline = time.monotonic() + within_s
        self._check_lock, self._faults = check_lock, faults
        self._attempt: _Transaction | None = None

    def hand_over(self) -> None:
        """Begin a transaction with the next part, if there is a client."""
        client = self._sender.take_client(self._batch, self._deadline, self._check_lock)
        if client is not None:
            part = self._batch.next_part()
            self._attempt = _Transaction(client, self._batch, part, self._deadline)
            self._attempt.hand_over(self._faults)

    def answers(self, within_s: float) -> list[Answer]:
        """Wait for the answer to each record, in their order.

        A record without an answer after ``within_s`` counts as unknown. After a FencedError, the
        fate of every record is unknown.
        """
        self._deadline = time.monotonic() + within_s
        while (attempt := self._attempt) is not None:
            self._attempt = None
            attempt.commit(self._deadline)
            if attempt.is_reusable:
                self._sender.give_back(attempt.client)
            if attempt.is_fenced:
                raise FencedError("another relay has taken over")
            if not attempt.is_committed:
                self._sender.send_again(self._batch, attempt)
            if self._batch and time.monotonic() < self._deadline:
                self.hand_over()
        return self._batch.answers


@define(eq=False)
class _Transaction:
    """Records that one client sends in a transaction."""

    client: SendingClient
    _batch: AnsweredBatch
    places: Sequence[int]
    _deadline: float
    _taken: list[int] = field(factory=list, init=False)
    failures: dict[int, SendFailure] = field(factory=dict, init=False)
    _error: KafkaError | None = field(default=None, init=False)
    """Why it was not committed."""
    _failed: KafkaError | None = field(default=None, init=False)
    """Why the first of its records failed."""
    is_committed: bool = field(default=False, init=False)
    is_fenced: bool = field(default=False, init=False)
    is_reusable: bool = field(default=False, init=False)
    """Whether the client may begin the next one."""

    @property
    def reason(self) -> SendFailure | None:
        """Return why it was not committed."""
        return None if self._error is None else errors.send_failure(self._error, None)

    def hand_over(self, faults: Mapping[int, str]) -> None:
        """Begin, and give the client all records."""
        try:
            self.client.begin_transaction()
            self._taken = [place for place in self.places if self._hand_over(place, faults)]
        except KafkaException as exception:
            self._fail(exception)

    def commit(self, deadline: float) -> None:
        """Wait until all are written, and commit; else abort, with the reasons in ``failures``."""
        if self._error is not None:
            return
        self._deadline = deadline
        try:
            self._flush()
            self.client.commit_transaction(self._left_s())
        except KafkaException as exception:
            self._fail(exception)
        else:
            self.is_committed = self.is_reusable = True
            self._batch.on_committed(self._taken)

    def _flush(self) -> None:
        """Wait until all are written, or until one has failed: the others then get no answer."""
        while self.client.hurry(_POLL_S) and self._failed is None:
            if time.monotonic() >= self._deadline:
                return
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _left_s(self) -> float:
        return max(_POLL_S, self._deadline - time.monotonic())

    def _fail(self, exception: KafkaException) -> None:
        error = errors.cause_of(exception)
        if error is None:
            raise exception
        self._error = error
        self.is_fenced = errors.is_fenced(error)
        if errors.is_fatal(error):
            return
        try:
            self.client.abort_transaction(max(_ABORT_S, self._left_s()))
        except KafkaException as another:
            cause = errors.cause_of(another)
            self.is_fenced = cause is not None and errors.is_fenced(cause)
            return
        self.client.serve(0)
        self.is_reusable = True

    def _hand_over(self, place: int, faults: Mapping[int, str]) -> bool:
        """Give the client a record; False if it is refused at once."""
        if self._batch.is_held(place):
            return False
        if (fault := faults.get(place)) is not None:
            self._batch.refuse(place, fault)
            return False
        topic, partition, key, value, headers, timestamp = self._batch.copies[place]
        while True:
            try:
                # Positional: it is faster, and there are many. Timestamp 0 is the time of sending.
                self.client.produce(
                    topic,
                    value,
                    key,
                    _PARTITION_BY_KEY if partition is None else partition,
                    partial(self._report, place),
                    None,
                    timestamp or 0,
                    headers,  # type: ignore[arg-type] # those of a row are a list
                )
            except BufferError:
                if time.monotonic() >= self._deadline:
                    raise errors.timed_out() from None
                self.client.serve(_POLL_S)
            except KafkaException as exception:
                self._refuse(place, exception)
                return False
            except (TypeError, ValueError, OverflowError, SystemError) as error:
                self._batch.refuse(place, f"it is not a record: {error}")
                return False
            else:
                return True

    def _refuse(self, place: int, exception: KafkaException) -> None:
        """Answer a record that the client did not accept; raise an error that ends the batch."""
        error = errors.cause_of(exception)
        failure = None if error is None else errors.send_failure(error, None)
        if failure is None or not failure.is_refusal:
            raise exception
        self._batch.fail(place, failure)

    def _report(self, place: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures[place] = errors.send_failure(error, message)
            self._failed = self._failed or error
