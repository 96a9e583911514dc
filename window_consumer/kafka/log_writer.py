"""Writes many copies and waits for all their acks at once; optionally in transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.group_progress import GroupProgress
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.writing.client import SendingClient, retried
from window_consumer.model import headers as names
from window_consumer.model.errors import BrokerUnavailableError, PublishFailedError, RunError
from window_consumer.model.protocols import Copy

_PARTITION_BY_KEY = -1
_FULL_QUEUE_S = 0.05
_ACKS_S = 330.0
"""Longer than librdkafka's delivery.timeout.ms of 300 s, after which it gives up a record itself.
"""

_TRANSACTION_S = 60.0

Refusals = dict[int, PublishFailedError]
"""The reasons for copies that will never be accepted, by their position among the sent copies."""


MakeClient = Callable[..., SendingClient]

Failed = dict[int, tuple[Copy, KafkaError]]
"""The reasons for copies that were not acked, by the same positions."""


class WriterFencedError(RunError):
    """Another writer with the same name has taken over."""

    code = "WC122"


class LogWriter(Protocol):
    """Writes batches. Owner: one thread."""

    def send(self, copies: Sequence[Copy]) -> None:
        """Send copies; may be called several times for a batch.

        Raises PublishFailedError if the client accepts no more.
        """

    def acks(self) -> Refusals:
        """Wait until all in-sync replicas have everything sent since the last call.

        Returns copies that are too large for their topic. Raises PublishFailedError for any other
        copy that was not acked; then it is unknown which of the others were.
        """

    def finish(self, reader: GroupProgress) -> None:
        """Commit the reader's progress: everything read so far is done."""

    def close(self) -> None:
        """Give up unfinished work."""


class _Client:
    """A client that waits for all answers."""

    def __init__(
        self,
        conf: Mapping[str, Any],
        log: ClientLog,
        oauth_token: OauthToken | None,
        make_client: MakeClient = SendingClient,
    ) -> None:
        try:
            conf = {**conf, **token_setting(conf, oauth_token)}
            self.producer = make_client(conf, log, lambda _: None)
        except KafkaException as exception:
            raise RunError(f"the producer cannot be created: {exception.args[0]}") from None
        self._sent = 0
        self._acked = 0
        self._failed: Failed = {}

    @contextmanager
    def in_our_words(self, name: str, *, is_first: bool = False) -> Iterator[None]:
        """Translate exceptions of the client; any call may report that the producer was fenced.

        The first call may find that the cluster cannot begin transactions.
        """
        try:
            yield
        except (KafkaException, SystemError) as exception:
            # A call that failed while it served callbacks may have lost its own exception.
            error = errors.cause_of(exception) or self._given_up_for()
            if error is None:
                raise RunError(f"{name}: {exception}") from exception
            if errors.is_fenced(error):
                raise _fenced(name, error) from exception
            if is_first and errors.is_absence(error):
                text = f"{name}: {errors.text_of_no_transaction(error)}"
                raise BrokerUnavailableError(text) from exception
            raise errors.translate(error, name) from exception

    def _given_up_for(self) -> KafkaError | None:
        """Find out why the client has given up: an attempt to begin a transaction fails with it."""
        try:
            self.producer.begin_transaction()
        except KafkaException as exception:
            error = errors.cause_of(exception)
            return error if error is not None and errors.is_fatal(error) else None
        return None

    def send(self, copies: Sequence[Copy]) -> None:
        """Send copies, and deliver the answers that have arrived."""
        for copy in copies:
            place = self._sent
            self._sent += 1
            try:
                self._insist(place, copy)
            except KafkaException as exception:
                error = errors.cause_of(exception)
                if error is None:
                    raise
                self._failed[place] = (copy, error)
        self._serve(self.producer.serve, 0)

    def _insist(self, place: int, copy: Copy) -> None:
        """Send a copy once the client's queue has room."""
        topic, partition, key, value, headers, _ = copy
        report = partial(self._report, place, copy)
        number = _PARTITION_BY_KEY if partition is None else partition
        deadline: float | None = None
        while True:
            try:
                self.producer.produce(topic, value, key, number, report, None, 0, headers)  # type: ignore[arg-type] # a list, or empty
            except BufferError:
                now = time.monotonic()
                deadline = now + _ACKS_S if deadline is None else deadline
                if now >= deadline:
                    text = f"copy to {topic}: the producer's queue stays full"
                    raise PublishFailedError(text) from None
                self._serve(self.producer.serve, _FULL_QUEUE_S)
            else:
                return

    def _report(self, place: int, copy: Copy, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acked += 1
        else:
            self._failed[place] = (copy, error)

    def _serve(self, serve: Callable[[float], int], timeout_s: float) -> int:
        """Wait for answers; raises KafkaException if the client has given up."""
        left = serve(timeout_s)
        if self.producer.fatal is not None:
            raise KafkaException(self.producer.fatal)
        return left

    def take(self) -> Failed:
        """Wait for all answers since the last call; return the failed copies by position."""
        left = self._serve(self.producer.hurry, _ACKS_S)
        sent, failed, acked = self._sent, self._failed, self._acked
        self._failed, self._sent, self._acked = {}, 0, 0
        if left or acked + len(failed) != sent:
            raise PublishFailedError(f"{left} copies have no answer after {_ACKS_S:g} s")
        return failed


class PlainWriter:
    """A LogWriter without transactions: it repeats a batch whose progress was not committed."""

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
        self._name = name

    def send(self, copies: Sequence[Copy]) -> None:
        """See LogWriter."""
        with self._client.in_our_words(self._name):
            self._client.send(copies)

    def acks(self) -> Refusals:
        """See LogWriter."""
        with self._client.in_our_words(self._name):
            return self._refused(self._client.take())

    def _refused(self, failed: Failed) -> Refusals:
        _raise_unless_too_large(failed)
        refused: Refusals = {}
        for number, (copy, _) in sorted(failed.items()):
            # A broker refuses a whole batch of the protocol, whichever record caused it.
            self._client.send([copy])
            still = self._client.take()
            _raise_unless_too_large(still)
            for _, error in still.values():
                refused[number] = errors.publish_failure(error, copy.topic)
        return refused

    def finish(self, reader: GroupProgress) -> None:
        """See LogWriter."""
        reader.commit()

    def close(self) -> None:
        """See LogWriter."""
        self._client.producer.purge()


_TOO_LARGE = "raise the topic's max.message.bytes; a run without --transactional leaves it there"


def _named(copy: Copy) -> str:
    """Name the record by its id, which a redrive keeps, or by its key."""
    known = dict(copy.headers).get(names.ID)
    return f"record {(known or copy.key or b'?').decode('utf-8', 'replace')}"


class TransactionalWriter:
    """A LogWriter whose batches appear as a whole with their progress, or not at all.

    Readers of committed transactions see no duplicates. A second writer with the same ``name``
    fences off the first.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        name: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        max_batch_bytes: int | None = None,
        make_client: MakeClient = SendingClient,
    ):
        conf = {**_settings(user_settings, name, max_batch_bytes), "transactional.id": name}
        self._client = _Client(conf, log, oauth_token, make_client)
        self._name = name
        self._begun = False
        # Ends a transaction that a killed process left open; until then its progress cannot be
        # read.
        with self._client.in_our_words(name, is_first=True):
            retried(self._client.producer.init_transactions)

    def send(self, copies: Sequence[Copy]) -> None:
        """See LogWriter."""
        with self._client.in_our_words(self._name):
            self._begin()
            self._client.send(copies)

    def acks(self) -> Refusals:
        """See LogWriter. A copy that is too large also raises: it spoils the transaction."""
        with self._client.in_our_words(self._name):
            failed = self._client.take()
        for _, error in failed.values():
            if errors.is_fenced(error):
                raise _fenced(self._name, error)
        _raise_unless_too_large(failed)
        if failed:
            # A broker refuses a whole batch of the protocol because of one record.
            copy, error = max(failed.values(), key=lambda each: len(each[0].value or b""))
            failure = errors.publish_failure(error, copy.topic)
            raise PublishFailedError(f"{_named(copy)}: {failure}; {_TOO_LARGE}", too_large=True)
        return {}

    def finish(self, reader: GroupProgress) -> None:
        """See LogWriter."""
        producer = self._client.producer
        offsets = reader.progress()
        if not self._begun and not offsets:
            return
        with self._client.in_our_words(self._name):
            self._begin()
            if offsets:
                member = reader.membership()
                retried(lambda wait: producer.send_offsets_to_transaction(offsets, member, wait))
            retried(producer.commit_transaction)
        self._begun = False
        reader.committed()

    def close(self) -> None:
        """See LogWriter."""
        producer = self._client.producer
        if self._begun:
            producer.purge()
            try:
                producer.abort_transaction(_TRANSACTION_S)
            except KafkaException:
                # The broker aborts the transaction when it times out or the next one begins.
                return

    def _begin(self) -> None:
        if not self._begun:
            self._client.producer.begin_transaction()
            self._begun = True


def _fenced(name: str, error: KafkaError) -> WriterFencedError:
    return WriterFencedError(
        f"{name}: {errors.text_of(error)}: is the same redrive running twice? stop one"
    )


def _settings(user: Mapping[str, Any], name: str, max_batch_bytes: int | None) -> dict[str, Any]:
    # The broker refuses whole batches of the protocol that exceed the topic's limit.
    fitting = {} if max_batch_bytes is None else {"batch.size": max_batch_bytes}
    queue = {"queue.buffering.max.messages": 100_000}
    conf = {**fitting, **queue, **settings.producer_settings(user, name)}
    return {**conf, "client.id": f"wc-{name}", "linger.ms": 5}


def _raise_unless_too_large(failed: Failed) -> None:
    for copy, error in failed.values():
        failure = errors.publish_failure(error, copy.topic)
        if not failure.too_large:
            raise failure
