"""The endpoint's view of a queue: the records of a worker with `pull`, and their leases.

The endpoint knows the protocol, a queue knows the worker. Only these classes connect them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from window_consumer.model.errors import WindowConsumerError


@frozen(kw_only=True)
class QueuedMessage:
    """A record that a client has leased.

    `message_id` is the record's `wc-id`, or topic, partition and offset joined by hyphens.
    `headers` are the user's, without ours. `timestamp_ms` and `first_received_ms` are milliseconds
    since 1970. `attempt` counts from 1.
    """

    message_id: str
    receipt_handle: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    first_received_ms: int
    attempt: int


@frozen(kw_only=True)
class SentMessage:
    """A sent record, written by all in-sync replicas."""

    message_id: str
    topic: str
    partition: int
    offset: int


@frozen(kw_only=True)
class QueueFigures:
    """How many records wait in the topics (the lag), are leased, and are delayed."""

    waiting: int
    in_flight: int
    delayed: int


class InvalidReceiptError(WindowConsumerError):
    """A receipt handle of another process, or of an earlier assignment of its partition.

    The message names the owner's address if it is known.
    """


class MessageRefusedError(WindowConsumerError):
    """A message that can never be sent: its topic refuses it, or there is no delay service."""


class NotInFlightError(WindowConsumerError):
    """The lease of a receipt handle has ended: it cannot be renewed or given back."""


class Queue(Protocol):
    """The queue of one worker with `pull`. Its methods run on the event loop of the endpoint."""

    @property
    def name(self) -> str:
        """The worker's name, with `.fifo` after it if the worker is ordered by key."""

    @property
    def fifo(self) -> bool:
        """Whether records of a key are leased one at a time, in the order of their offsets."""

    @property
    def visibility_timeout_s(self) -> float:
        """How long a lease lasts unless the client says otherwise, in seconds."""

    @property
    def leases_until_dead(self) -> int | None:
        """How many failed leases make a record a dead letter; None if it never becomes one."""

    async def receive(
        self, most: int, wait_s: float, visibility_s: float | None
    ) -> Sequence[QueuedMessage]:
        """Lease up to `most` records, and wait up to `wait_s` seconds for the first of them.

        `visibility_s` is how long the leases last; None is the queue's own timeout. A call that is
        cancelled has leased nothing.
        """

    async def delete(self, receipt_handle: str) -> None:
        """Finish the record of a lease. Once the lease has ended, this changes nothing.

        Raises InvalidReceiptError.
        """

    async def change_visibility(self, receipt_handle: str, seconds: float) -> None:
        """Let the lease end `seconds` from now. With 0 the record is given back at once.

        Raises InvalidReceiptError, and NotInFlightError once the lease has ended.
        """

    async def give_back(self, receipt_handle: str) -> None:
        """Give back a record whose client never learnt of its lease; that is not an attempt.

        Once the lease has ended, this changes nothing.
        """

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        delay_s: float = 0,
        message_id: str | None = None,
    ) -> SentMessage:
        """Write a record to the queue's topic; returns once all in-sync replicas have it.

        Calls that begin one after another are written in that order. Raises MessageRefusedError if
        sending it again cannot help, otherwise another WindowConsumerError.
        """

    async def figures(self) -> QueueFigures:
        """Return how many records wait, are leased and are delayed."""
