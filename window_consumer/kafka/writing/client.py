"""The sending client: confluent-kafka's with its fatal errors recorded, and related queries.

Any thread may call ``produce``; everything else belongs to the thread that drives the client.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.settings import PRODUCER_ONLY
from window_consumer.model.errors import MissingTopicError, UsageError
from window_consumer.model.record import TopicPartition

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # the client's stubs
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # as above
_LIMIT_S: Final = 3.0
_RETRY_S: Final = 0.2
_TRANSACTION_S: Final = 60.0
_ROUNDS: Final = 10
"""A limit in case answers keep arriving, when the exact number does not matter."""


class SendingClient(Producer):
    """A Producer of confluent_kafka that remembers why it has given up."""

    def __init__(
        self, settings: Mapping[str, Any], log: ClientLog, on_error: Callable[[KafkaError], None]
    ):
        """Create the client; raises KafkaException for settings that librdkafka refuses."""
        super().__init__({**settings, "error_cb": on_error}, logger=_WithoutGaps(log))
        self.fatal: KafkaError | None = None
        """Why it has given up; then only a new client can send."""

    def serve(self, timeout_s: float) -> int:
        """Wait for answers and deliver them; return their number."""
        return self._serve(self.poll, timeout_s)

    def hurry(self, timeout_s: float) -> int:
        """Like ``serve``, but send lingering records at once; return how many are unanswered."""
        return self._serve(self.flush, timeout_s)

    def unanswered(self) -> int:
        """Deliver the available answers; return how many records have none.

        ``len`` also counts log lines and errors that are not delivered yet.
        """
        for _ in range(_ROUNDS):
            count = len(self)
            if not self.serve(0):
                return count
        return len(self)

    def _serve(self, wait: Callable[[float], int], timeout_s: float) -> int:
        try:
            return wait(timeout_s)
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None or not errors.is_fatal(error):
                raise
            self.fatal = error
            return 0

    def give_up(self, *, in_flight: bool) -> None:
        """Let its messages fail; without ``in_flight`` only those that are not on their way."""
        self.purge(in_queue=True, in_flight=in_flight, blocking=False)

    def begin(self, *, is_first: bool, within_s: float) -> None:
        """Begin a transaction; the first ends that of a dead process with the same id.

        That takes ``within_s`` at most; without an answer, the next call continues to wait.
        """
        with self._in_our_words("the transaction could not begin", errors.text_of_no_transaction):
            if is_first:
                self.init_transactions(within_s)
            self.begin_transaction()

    def commit(self) -> None:
        """Commit the transaction once its records are written; raises RunError if that fails."""
        with self._in_our_words("the transaction was not committed"):
            retried(self.commit_transaction)

    def abort(self) -> None:
        """Abort the transaction; if that fails, it times out."""
        with suppress(KafkaException):
            retried(self.abort_transaction)

    @contextmanager
    def _in_our_words(
        self, what: str, text_of: Callable[[KafkaError], str] = errors.text_of
    ) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None:
                raise
            if errors.is_fatal(error):
                self.fatal = error
            elif error.txn_requires_abort():
                self.abort()
            raise TransactionFailure(f"{what}: {text_of(error)}") from None

    def keep_for_ever(self) -> None:
        """Keep Python from freeing it: in a fork that would wait for missing threads."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def new_client(
    settings: Mapping[str, Any], log: ClientLog, on_error: Callable[[KafkaError], None]
) -> SendingClient:
    """Create a client; raises UsageError for settings that librdkafka refuses."""
    try:
        return SendingClient(settings, log, on_error)
    except KafkaException as exception:
        raise UsageError(f"Producer: {exception.args[0]}") from None


class TransactionFailure(Exception):  # noqa: N818 - internal; the producer raises its own error
    """A transaction did not begin, or was not committed."""


def retried(act: Callable[[float], object]) -> None:
    """Run a step of a transaction; repeat it while the client allows retries."""
    deadline = time.monotonic() + _TRANSACTION_S
    while True:
        try:
            act(max(0.1, deadline - time.monotonic()))
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None or not error.retriable() or time.monotonic() > deadline:
                raise
        else:
            return


class _WithoutGaps:
    """A log without lines about ``enable.gapless.guarantee``: the producer recovers from them."""

    def __init__(self, log: ClientLog):
        self._log = log

    def log(self, level: int, message: str, *args: Any, **more: Any) -> None:
        """Pass a line on."""
        text = f"{message}{args}"
        if "gapless" not in text and "Gap-less" not in text:
            pass_on = self._log.log
            pass_on(level, message, *args, **more)


def has_topic(client: SendingClient, topic: str) -> bool:
    """Ask the cluster whether a topic exists now; without an answer it does not."""
    try:
        found = client.list_topics(topic, timeout=_LIMIT_S).topics.get(topic)
    except KafkaException:
        return False
    return found is not None and found.error is None and bool(found.partitions)


def size_limit(settings: Mapping[str, Any], topic: str) -> int | None:
    """Return the topic's ``max.message.bytes``, None if unknown."""
    try:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = _admin(settings)
        answers = admin.describe_configs([resource], request_timeout=_LIMIT_S)
        return int(answers[resource].result(_LIMIT_S)["max.message.bytes"].value)
    except Exception:
        return None  # no permission to describe, or no answer: the limit is only for a message


def log_ranges(
    settings: Mapping[str, Any], topics: Iterable[str], timeout_s: float
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end of each partition, as its leader reports them.

    Raises the first failure, converted by ``errors.translate``.
    """
    deadline = time.monotonic() + timeout_s
    admin = _admin(settings)
    try:
        places = [
            ClientPartition(topic, partition)
            for topic in topics
            for partition in _partitions(admin, topic, deadline)
        ]
        left_s = max(0.1, deadline - time.monotonic())
        requests = [
            admin.list_offsets(dict.fromkeys(places, spec), request_timeout=left_s)
            for spec in (_EARLIEST, _LATEST)
        ]
        found = {}
        for place in places:
            first, end = (answers[place].result(left_s + 1).offset for answers in requests)
            found[TopicPartition(place.topic, place.partition)] = (first, end)
    except KafkaException as exception:
        error = errors.cause_of(exception)
        if error is None:
            raise
        raise errors.translate(error, "verify") from None
    return found


def _partitions(admin: AdminClient, topic: str, deadline: float) -> list[int]:
    while True:
        left_s = deadline - time.monotonic()
        found = admin.list_topics(topic, timeout=max(0.1, left_s)).topics[topic]
        if found.error is None:
            return list(found.partitions)
        if errors.send_verdict(found.error) != "transient" or left_s <= _RETRY_S:
            if errors.send_verdict(found.error) == "missing":
                raise MissingTopicError(f"verify: there is no topic {topic}")
            raise KafkaException(found.error)
        time.sleep(_RETRY_S)


def _admin(settings: Mapping[str, Any]) -> AdminClient:
    plain = {key: value for key, value in settings.items() if key not in PRODUCER_ONLY}
    return AdminClient({**plain, "log_level": 0})
