"""The client that sends: confluent-kafka's, whose fatal errors are noticed; and what it asks for.

``produce`` belongs to any thread, everything else to the one that drives the client.
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
"""For answers that keep coming: then it is not the exact number that matters."""


class SendingClient(Producer):
    """A Producer of confluent_kafka that remembers why it has given up."""

    def __init__(
        self, settings: Mapping[str, Any], log: ClientLog, on_error: Callable[[KafkaError], None]
    ):
        """Create the client; raises KafkaException for settings that librdkafka refuses."""
        super().__init__({**settings, "error_cb": on_error}, logger=_WithoutGaps(log))
        self.fatal: KafkaError | None = None
        """Why it has given up; nothing but a new client can send then."""

    def serve(self, timeout_s: float) -> int:
        """Wait for answers and hand them out; return how many there were."""
        return self._serve(self.poll, timeout_s)

    def hurry(self, timeout_s: float) -> int:
        """As ``serve``, but send at once what lingers, and return how many are unanswered."""
        return self._serve(self.flush, timeout_s)

    def unanswered(self) -> int:
        """Hand out the answers that are there; return how many records have none.

        ``len`` counts log lines and errors as well, until they are handed out.
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
        """Let its messages fail; those without ``in_flight`` that wait for no answer."""
        self.purge(in_queue=True, in_flight=in_flight, blocking=False)

    def begin(self, *, is_first: bool, within_s: float) -> None:
        """Begin a transaction; the first ends that of a dead process with the same id.

        That takes ``within_s`` at most; without an answer, the next call goes on waiting.
        """
        with self._in_our_words("the transaction could not begin", errors.text_of_no_transaction):
            if is_first:
                self.init_transactions(within_s)
            self.begin_transaction()

    def commit(self) -> None:
        """Commit the transaction once its records are written; RunError where it was not."""
        with self._in_our_words("the transaction was not committed"):
            retried(self.commit_transaction)

    def abort(self) -> None:
        """Abort the transaction; where that fails, its time runs out."""
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
        """Let Python never free it: in a fork that would wait for threads that are not there."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def new_client(
    settings: Mapping[str, Any], log: ClientLog, on_error: Callable[[KafkaError], None]
) -> SendingClient:
    """Create a client; raises UsageError for settings that librdkafka refuses."""
    try:
        return SendingClient(settings, log, on_error)
    except KafkaException as exception:
        raise UsageError(f"Producer: {exception.args[0]}") from None


class TransactionFailure(Exception):  # noqa: N818 - the producer raises its own for it
    """A transaction did not begin, or was not committed."""


def retried(act: Callable[[float], object]) -> None:
    """Run a step of a transaction; repeat it while the client says that this is allowed."""
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
    """A log without lines about ``enable.gapless.guarantee``: the producer gets over its errors."""

    def __init__(self, log: ClientLog):
        self._log = log

    def log(self, level: int, message: str, *args: Any, **more: Any) -> None:
        """Pass a line on."""
        text = f"{message}{args}"
        if "gapless" not in text and "Gap-less" not in text:
            pass_on = self._log.log
            pass_on(level, message, *args, **more)


def has_topic(client: SendingClient, topic: str) -> bool:
    """Ask the cluster whether there is a topic now; without an answer there is none."""
    try:
        found = client.list_topics(topic, timeout=_LIMIT_S).topics.get(topic)
    except KafkaException:
        return False
    return found is not None and found.error is None and bool(found.partitions)


def size_limit(settings: Mapping[str, Any], topic: str) -> int | None:
    """Return the topic's ``max.message.bytes``, None where nobody says."""
    try:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = _admin(settings)
        answers = admin.describe_configs([resource], request_timeout=_LIMIT_S)
        return int(answers[resource].result(_LIMIT_S)["max.message.bytes"].value)
    except Exception:
        return None  # no permission to describe, or no answer: it is only for a message


def log_ranges(
    settings: Mapping[str, Any], topics: Iterable[str], timeout_s: float
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end of each partition, as its leader reports them.

    Raises what ``errors.translate`` makes of the first failure.
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
