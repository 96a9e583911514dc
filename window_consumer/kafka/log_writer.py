"""Writing many copies and waiting for all of their acks at once; in transactions where wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.log_reader import LogReader
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.model.errors import PublishFailedError, RunError, WindowConsumerError
from window_consumer.model.protocols import Copy

_PARTITION_BY_KEY = -1
_FULL_QUEUE_S = 0.05
_ACKS_S = 330.0
"""Beyond librdkafka's delivery.timeout.ms of 300 s, after which it gives a record up itself."""

_TRANSACTION_S = 60.0

Refusals = dict[int, PublishFailedError]
"""By the place of the copy in its batch: why it will never be taken."""


class Writer(Protocol):
    """Writes batches. Owner: one thread."""

    def put(self, copies: Sequence[Copy]) -> Refusals:
        """Write copies and return once all in-sync replicas have them.

        Returns those that are too large for their topic. Raises PublishFailedError for any other
        that was not acked: then nobody knows which of the others were.
        """

    def finish(self, reader: LogReader) -> None:
        """Commit the reader's progress: what was read so far is done."""

    def close(self) -> None:
        """Give up what is not finished."""


class _Client:
    """A producer whose every answer is waited for."""

    def __init__(
        self, conf: Mapping[str, Any], log: ClientLog, oauth_token: OauthToken | None
    ) -> None:
        own = {**conf, "error_cb": lambda _error: None, **token_setting(conf, oauth_token)}
        try:
            self.producer = Producer(own, logger=log)
        except KafkaException as exception:
            raise RunError(f"the producer cannot be made: {exception.args[0]}") from None

    def write(self, copies: Sequence[Copy], places: Sequence[int]) -> dict[int, KafkaError]:
        """Write the copies at these places; return those that were not acked, and why."""
        failed: dict[int, KafkaError] = {}
        acked = 0

        def reporter(place: int) -> Callable[[KafkaError | None, Message], None]:
            def report(error: KafkaError | None, _message: Message) -> None:
                nonlocal acked
                if error is None:
                    acked += 1
                else:
                    failed[place] = error

            return report

        for place in places:
            self._produce(copies[place], reporter(place), failed, place)
        left = self.producer.flush(_ACKS_S)
        if left or acked + len(failed) != len(places):
            raise PublishFailedError(f"{left} copies have no answer after {_ACKS_S:g} s")
        return failed

    def _produce(
        self,
        copy: Copy,
        report: Callable[[KafkaError | None, Message], None],
        failed: dict[int, KafkaError],
        place: int,
    ) -> None:
        deadline = time.monotonic() + _ACKS_S
        while True:
            try:
                self.producer.produce(
                    copy.topic,
                    copy.value,
                    copy.key,
                    _PARTITION_BY_KEY if copy.partition is None else copy.partition,
                    on_delivery=report,
                    headers=list(copy.headers),
                )
            except BufferError:
                if time.monotonic() > deadline:
                    text = f"copy to {copy.topic}: the producer's queue stays full"
                    raise PublishFailedError(text) from None
                self.producer.poll(_FULL_QUEUE_S)
            except KafkaException as exception:
                error = errors.cause_of(exception)
                if error is None:
                    raise
                failed[place] = error
                return
            else:
                return


class PlainWriter:
    """A Writer without transactions: a batch whose progress was not committed is written again."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        name: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        max_batch_bytes: int | None = None,
    ):
        conf = _settings(user_settings, name, max_batch_bytes)
        self._client = _Client(conf, log, oauth_token)

    def put(self, copies: Sequence[Copy]) -> Refusals:
        """See Writer."""
        failed = self._client.write(copies, range(len(copies)))
        _raise_unless_too_large(copies, failed)
        refused: Refusals = {}
        for place in sorted(failed):
            # A broker refuses a whole batch of the protocol, whichever of its records it was.
            again = self._client.write(copies, [place])
            _raise_unless_too_large(copies, again)
            for error in again.values():
                refused[place] = errors.publish_failure(error, copies[place].topic)
        return refused

    def finish(self, reader: LogReader) -> None:
        """See Writer."""
        reader.commit()

    def close(self) -> None:
        """See Writer."""
        self._client.producer.purge()


class TransactionalWriter:
    """A Writer whose batches, their progress included, are there as a whole or not at all.

    For readers that take committed transactions alone nothing repeats. Another one with the same
    ``name`` fences this one off.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        name: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        max_batch_bytes: int | None = None,
    ):
        conf = {**_settings(user_settings, name, max_batch_bytes), "transactional.id": name}
        self._client = _Client(conf, log, oauth_token)
        self._name = name
        self._begun = False
        # Ends what a killed process has left open: its progress could not be read before.
        self._retried(self._client.producer.init_transactions)

    def put(self, copies: Sequence[Copy]) -> Refusals:
        """See Writer. One that is too large is raised, too: it spoils the transaction."""
        self._begin()
        failed = self._client.write(copies, range(len(copies)))
        for place, error in failed.items():
            failure = errors.publish_failure(error, copies[place].topic)
            hint = ": a run without --transactional leaves it and goes on"
            raise PublishFailedError(
                f"{failure}{hint if failure.too_large else ''}", too_large=failure.too_large
            )
        return {}

    def finish(self, reader: LogReader) -> None:
        """See Writer."""
        producer = self._client.producer
        offsets = reader.progress()
        if not self._begun and not offsets:
            return
        self._begin()
        if offsets:
            member = reader.membership()
            self._retried(lambda wait: producer.send_offsets_to_transaction(offsets, member, wait))
        self._retried(producer.commit_transaction)
        self._begun = False
        reader.committed()

    def close(self) -> None:
        """See Writer."""
        producer = self._client.producer
        if self._begun:
            producer.purge()
            try:
                producer.abort_transaction(_TRANSACTION_S)
            except KafkaException:
                # The broker aborts it when its time is over, or when the next one comes.
                return

    def _begin(self) -> None:
        if not self._begun:
            self._client.producer.begin_transaction()
            self._begun = True

    def _retried(self, step: Callable[[float], object]) -> None:
        """Take a step of a transaction, again where the client says that it may be repeated."""
        deadline = time.monotonic() + _TRANSACTION_S
        while True:
            try:
                step(_TRANSACTION_S)
            except KafkaException as exception:
                error = errors.cause_of(exception)
                if error is None or not error.retriable() or time.monotonic() > deadline:
                    raise self._in_words(exception, error) from exception
            else:
                return

    def _in_words(self, exception: KafkaException, error: KafkaError | None) -> WindowConsumerError:
        what = f"transaction of {self._name}"
        if error is None:
            return RunError(f"{what}: {exception}")
        if error.code() in _FENCED:
            return RunError(
                f"{what}: {errors.text_of(error)}: is the same redrive running twice? stop one"
            )
        return errors.translate(error, what)


_FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - local error codes begin with an underscore
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)


def _settings(user: Mapping[str, Any], name: str, max_batch_bytes: int | None) -> dict[str, Any]:
    # Batches of the protocol that exceed what a topic takes are refused as a whole.
    fitting = {} if max_batch_bytes is None else {"batch.size": max_batch_bytes}
    queue = {"queue.buffering.max.messages": 100_000}
    conf = {**fitting, **queue, **settings.producer_settings(user, name)}
    return {**conf, "client.id": f"wc-{name}", "linger.ms": 5}


def _raise_unless_too_large(copies: Sequence[Copy], failed: Mapping[int, KafkaError]) -> None:
    for place, error in failed.items():
        failure = errors.publish_failure(error, copies[place].topic)
        if not failure.too_large:
            raise failure
