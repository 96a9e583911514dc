"""What the floors need of each other: where records come from, where copies go, what time it is.

One conformance suite runs against every implementation of Source and Sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from attrs import define, field, frozen

from window_consumer.model.errors import (
    CommitFailedError,
    PublishFailedError,
    WindowConsumerError,
)
from window_consumer.model.record import (
    Message,
    TopicPartition,
)

Headers = Sequence[tuple[str, bytes | None]]


@define
class Batch:
    """Records of one partition, in offset order, as a Source delivers them."""

    name: TopicPartition
    messages: list[Message]
    size: int
    """Bytes of payload: those of the values."""
    unreadable: list[int] = field(factory=list)
    """Offsets of records whose headers are ``LostHeaders``."""

    @classmethod
    def of(cls, name: TopicPartition, messages: list[Message]) -> Batch:
        """Return a batch of these records."""
        return cls(name, messages, sum(map(len, messages)))

    def add(self, messages: list[Message]) -> None:
        """Add records that follow."""
        self.messages += messages
        self.size += sum(map(len, messages))


@frozen
class Commit:
    """What to commit of a partition; ``next_offset`` is exclusive, metadata at most 4,095 bytes."""

    name: TopicPartition
    next_offset: int
    metadata: str


@frozen
class CommittedOffset:
    """What is committed of a partition; ``next_offset`` is None where nothing is."""

    next_offset: int | None
    metadata: str


@frozen
class TopicFacts:
    """What matters of a topic while it is read."""

    partitions: int
    topic_id: str | None
    """None where the cluster does not tell ids."""


class Copy(NamedTuple):
    """A record to be written: the broker's ack decides about the record that it is a copy of.

    A tuple because it is made for each record that climbs or goes back, in a third of the time.
    """

    topic: str
    partition: int | None
    """None lets the key decide, the way that Java's producers do it."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None
    """Milliseconds since 1970; None is the time of sending."""


CommitResults = Mapping[TopicPartition, CommitFailedError | None]


class SourceListener(Protocol):
    """What a Source tells its owner, always on the owner's thread and inside of ``poll``.

    An implementation of a Source makes sure that an exception of the listener does not pass
    through the client library (which would lose the batch that it is about to return): it is
    raised again by ``poll`` after the client has returned.

    A partition that the listener sends elsewhere (``start``, ``seek``) has nothing of its old place
    in what that poll returns.
    """

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        """These are ours now; answer with one ``Source.start`` for all before returning."""

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        """These will be given up when this returns."""

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        """These have another owner already; nothing may be committed."""

    def on_committed(self, results: CommitResults) -> None:
        """What became of the last ``Source.commit`` of each partition.

        A commit that is told to have failed may have been taken all the same.
        """

    def on_out_of_range(self, name: TopicPartition) -> None:
        """The position lies outside of the log: reading stands until ``Source.seek``.

        All that was read before it has been returned by earlier polls.
        """

    def on_error(self, error: WindowConsumerError) -> None:
        """The client has trouble that it goes on trying to get over by itself."""


class Source(Protocol):
    """Where records come from: one member of one consumer group. Owner: poll thread."""

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics, or change what the group reads."""

    def poll(self, max_records: int, timeout_s: float) -> Sequence[Batch]:
        """Return records, a batch for each partition, and serve the listener.

        Returns at once with what is there, waits up to ``timeout_s`` for the first record
        otherwise. ``max_records`` of 0 serves the listener: the client may bring one record.
        """

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Begin to read assigned partitions at these offsets; those with None stay paused."""

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Go on reading a partition at this offset, also where it was paused.

        Raises RunError where it is not assigned.
        """

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions; what was prefetched is thrown away."""

    def commit(self, commits: Sequence[Commit]) -> None:
        """Send commits; the listener hears of them in a later ``poll``."""

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Send commits and wait for the answers; no answer in time is a failure.

        No record is lost meanwhile; rebalances may be told. GivenUpError, which is not retriable,
        stands for a partition that was given up meanwhile, unless its commit was taken before.
        """

    def committed(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Read what is committed; raises a WindowConsumerError in trouble."""

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how far each partition was read (exclusive), markers without records included.

        Those that were not read since they last began, by ``start`` or ``seek``, are left out.
        """

    def log_ends(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends (exclusive) of the logs, as far as they were heard of; asks nobody."""

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return a log's first offset and its end (exclusive).

        Raises a WindowConsumerError in trouble, and where there is no such partition.
        """

    def log_ranges(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, tuple[int, int] | WindowConsumerError]:
        """Return first offset and end (exclusive) of each log, or why they are not known.

        Waits until each has been asked for ``timeout_s``. What is not answered by then is asked
        on: a later call returns it, without waiting for it again.
        """

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:
        """Return what the cluster says of topics; those that do not exist are left out.

        Any thread may ask. Raises a WindowConsumerError in trouble.
        """

    def close(self, timeout_s: float) -> bool:
        """Leave the group; False when that did not end in time."""


Delivery = Callable[[PublishFailedError | None], None]


class Sink(Protocol):
    """Where copies go. ``write`` may be called on one thread while another is in ``serve``."""

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy. ``on_delivery`` is called once, in ``serve``, or here if it cannot be sent.

        None means: acked by all in-sync replicas.
        """

    def serve(self, timeout_s: float) -> None:
        """Wait for answers and hand them out."""

    def close(self, timeout_s: float) -> int:
        """Wait for the answers that are missing; return how many are still missing then."""


class Clock(Protocol):
    """Time, as far as the runtime needs it."""

    def now(self) -> float:
        """Seconds that never go back, from any origin."""

    def sleep(self, seconds: float) -> None:
        """Let time pass; other threads go on."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
