"""The interfaces between the layers: the source of records, the sink of copies, and the clock.

One conformance suite runs against every implementation of Source and Sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from attrs import define, field, frozen

from window_consumer.model.errors import CommitFailedError, PublishFailedError, WindowConsumerError
from window_consumer.model.record import Message, TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


@define
class Batch:
    """Records of one partition, in offset order, as a Source delivers them."""

    name: TopicPartition
    messages: list[Message]
    size: int
    """Payload bytes of the values."""
    unreadable: list[int] = field(factory=list)
    """Offsets of records whose headers are ``LostHeaders``."""

    @classmethod
    def of(cls, name: TopicPartition, messages: list[Message]) -> Batch:
        """Return a batch of these records."""
        return cls(name, messages, sum(map(len, messages)))

    def add(self, messages: list[Message]) -> None:
        """Add the following records."""
        self.messages += messages
        self.size += sum(map(len, messages))


@frozen
class Commit:
    """A commit of a partition; ``next_offset`` is exclusive, metadata has at most 4,095 bytes."""

    name: TopicPartition
    next_offset: int
    metadata: str


@frozen
class CommittedOffset:
    """The commit of a partition; ``next_offset`` is None if nothing is committed."""

    next_offset: int | None
    metadata: str


@frozen
class TopicFacts:
    """The facts about a topic that its reader needs."""

    partitions: int
    topic_id: str | None
    """None if the cluster reports no ids."""


class Copy(NamedTuple):
    """A record to write; the broker's ack finishes the original record.

    A tuple, which takes a third of the time to create, once for each copied record.
    """

    topic: str
    partition: int | None
    """None lets the key decide, as in Java's producers."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None
    """Milliseconds since 1970; None is the time of sending."""


CommitResults = Mapping[TopicPartition, CommitFailedError | None]


class SourceListener(Protocol):
    """Receives a Source's reports, always on the owner's thread and inside ``poll``.

    A Source ensures that a listener's exception does not pass through the client library, which
    would lose the batch it is about to return: ``poll`` raises it after the client has returned.

    If the listener moves a partition (``start``, ``seek``), that poll returns nothing from its old
    position.
    """

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        """Accept these new partitions with one ``Source.start`` for all before returning."""

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        """Give these partitions up: they are revoked when this returns."""

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        """Give these partitions up: they already have another owner, so commit nothing."""

    def on_committed(self, results: CommitResults) -> None:
        """Process the result of the last ``Source.commit`` of each partition.

        A commit reported as failed may have succeeded nevertheless.
        """

    def on_out_of_range(self, name: TopicPartition) -> None:
        """Handle a position outside the log: reading stops until ``Source.seek``.

        Earlier polls have returned all records read before.
        """

    def on_error(self, error: WindowConsumerError) -> None:
        """Handle an error from which the client recovers by itself."""


class Source(Protocol):
    """A source of records. Owner: poll thread.

    It is a member of a consumer group, or reads all partitions of its topics without one. The
    latter commits nothing and never loses partitions to others.
    """

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics, or change the subscription."""

    def widen(self, counts: Mapping[str, int]) -> None:
        """Learn how many partitions the topics have now.

        Without a group, a later ``poll`` gives the listener the new ones and removes deleted ones.
        A member of a group ignores it: the group assigns partitions.
        """

    def poll(self, max_records: int, timeout_s: float) -> Sequence[Batch]:
        """Return records, a batch for each partition, and call the listener.

        Return at once with what is available, otherwise wait up to ``timeout_s`` for the first
        record. With ``max_records`` of 0, call the listener; the client may still return one
        record.
        """

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Begin to read assigned partitions at these offsets; those with None stay paused."""

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Continue reading a partition at this offset, even if it was paused.

        Raise RunError if it is not assigned.
        """

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions; their prefetched records are discarded."""

    def commit(self, commits: Sequence[Commit]) -> None:
        """Send commits; the listener gets the results in a later ``poll``."""

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Send commits and wait for the results; a missing answer is a failure.

        No record is lost meanwhile; rebalances may be reported. The result is GivenUpError, which
        is not retriable, for a partition released meanwhile whose commit had not succeeded before.
        """

    def member(self) -> object:
        """Return the current data of this member for a transaction."""

    def committed(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Read the commits; raise a WindowConsumerError on failure."""

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how far each partition was read (exclusive), including markers without records.

        Partitions not read since their last ``start`` or ``seek`` are omitted.
        """

    def log_ends(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the known ends (exclusive) of the logs without a request."""

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return a log's first offset and its end (exclusive).

        Raise a WindowConsumerError on failure, and if the partition does not exist.
        """

    def log_ranges(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, tuple[int, int] | WindowConsumerError]:
        """Return first offset and end (exclusive) of each log, or the error.

        Wait up to ``timeout_s`` for each answer. Unanswered requests stay in progress: a later call
        returns their results without another wait.
        """

    def offsets_at(
        self, logs: Mapping[TopicPartition, tuple[int, int]], time_ms: int, timeout_s: float
    ) -> Mapping[TopicPartition, int]:
        """Return each log's first offset whose record is at least this recent, else its end.

        ``logs`` has the range of each log, and ``time_ms`` counts from 1970. Raise a
        WindowConsumerError on failure.
        """

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:
        """Return the cluster's facts about topics; those that do not exist are omitted.

        Owner: any thread. Raise a WindowConsumerError on failure.
        """

    def close(self, timeout_s: float) -> bool:
        """Leave the group; return False if that did not end in time."""


Delivery = Callable[[PublishFailedError | None], None]


class Sink(Protocol):
    """Where copies go. ``write`` may be called on one thread while another is in ``serve``."""

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy. ``on_delivery`` is called once, in ``serve``, or here if it cannot be sent.

        None means: acked by all in-sync replicas.
        """

    def serve(self, timeout_s: float) -> None:
        """Wait for answers and pass them on."""

    def close(self, timeout_s: float) -> int:
        """Wait for outstanding answers; return how many are still missing."""


class TransactionControl(Protocol):
    """The transactions of one producer. Owner: one thread, which waits for the brokers.

    Its Sink writes into the open transaction, on any thread, from ``begin`` to ``commit``.
    """

    def begin(self) -> None:
        """Begin; the first transaction ends that of a dead process with the same id.

        Raise BrokerUnavailableError if a retry can help, WorkerStoppedError otherwise.
        """

    def commit(
        self, commits: Sequence[Commit], member: object, is_cancelled: Callable[[], bool]
    ) -> None:
        """Make everything written, and these commits, visible together.

        Raise NotCommittedError if that is uncertain: the transaction is then aborted, or will be
        before the next one begins. ``is_cancelled`` is called before commits are sent. Raise
        WorkerStoppedError if another process uses the same id.
        """

    def abort(self) -> None:
        """Abort: nothing of it becomes visible."""


class Clock(Protocol):
    """The time functions that the runtime needs."""

    def now(self) -> float:
        """Return seconds that never go back, from any origin."""

    def sleep(self, seconds: float) -> None:
        """Wait; other threads continue."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; may jump."""
