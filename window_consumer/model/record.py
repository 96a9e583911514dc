"""The record that a handler receives, and its parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from window_consumer.model.errors import UsageError
from window_consumer.model.membership import MembershipProof
from window_consumer.model.produce import Produce
from window_consumer.model.record_identity import RecordOrigin, given_id, id_text, origin_in


class TopicPartition(NamedTuple):
    """A partition's name; used as a dictionary key everywhere."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Message(Protocol):
    """A record as a Source delivers it: the part of confluent_kafka.Message that we use.

    ``len(message)`` is the size of the value in bytes and cheap. The client's stubs allow None for
    topic, partition and offset; a delivered record has them.
    """

    def __len__(self) -> int: ...

    def topic(self) -> Any:
        """Return the topic's name, a new string each time."""

    def partition(self) -> Any:
        """Return the partition's number."""

    def offset(self) -> Any:
        """Return the record's own offset."""

    def key(self) -> Any:
        """Return the key's bytes or None."""

    def value(self) -> Any:
        """Return the value's bytes; None for a tombstone."""

    def headers(self) -> Any:
        """Return pairs of name and bytes (or None); None if there are no headers."""

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type, see below, and milliseconds since 1970."""


TIMESTAMP_NOT_AVAILABLE = 0
"""The first field of Message.timestamp() for a record without a timestamp."""


class AssignmentEpoch(NamedTuple):
    """An assignment of a partition, as calls know it."""

    epoch: int
    """Grows with each assignment of the worker."""
    topic_hash: int
    """The hash of the id of the topic of the records' first delivery."""
    membership: MembershipProof


NO_ASSIGNMENT = AssignmentEpoch(0, 0, MembershipProof())
"""That of records that no Engine dispatched."""


class Effects(NamedTuple):
    """The transaction of a call with ``once``."""

    session: Any
    """A SQLAlchemy Session, for coroutines an AsyncSession."""
    fence: int | None


OnStored = Callable[[Sequence["Record"], Sequence[Produce]], None]
"""Gets the records of a committed call and its outbox rows, for the test kit."""


class Call:
    """Shared by the records of a slice: attempt, state and cancellation."""

    __slots__ = (
        "assignment",
        "attempt",
        "before",
        "cancelled",
        "effects",
        "handler",
        "on_stored",
        "owes",
        "state",
        "uncalled",
        "whose",
    )

    def __init__(
        self, attempt: int = 1, state: Any = None, before: Callable[[Message], int] | None = None
    ):
        self.attempt = attempt
        self.state = state
        self.handler = ""
        """The last called of several handlers; empty if the worker has only one."""
        self.before = before
        """Returns how often a handler was called for a record in other topics of the ladder."""
        self.whose: Any = None
        """The worker and handler for log lines, see ``runtime.context``."""
        self.cancelled = False
        self.owes = False
        """Whether a handler within middleware has returned records to produce."""
        self.uncalled = 0
        """The number of attempts without a handler's call."""
        self.assignment = NO_ASSIGNMENT
        """The assignment of its records."""
        self.effects: Effects | None = None
        """Set by the layer of ``once`` for the running call."""
        self.on_stored: OnStored | None = None
        """Called after the commit with the outbox rows of a call with ``once``."""

    def number_of(self, message: Message) -> int:
        """Return the number of this call for a record, from 1, including calls in retry topics."""
        attempt = self.attempt - self.uncalled
        return attempt if self.before is None else attempt + self.before(message)


class Record:
    """One Kafka record as its handler sees it.

    It wraps the client's message and copies nothing, so that creating one costs about 50 ns. Two
    records are equal only if they are the same object. A handler may keep a record, pass it to
    other threads and read it after it has returned.
    """

    # The slots' loop creates records and sets both fields itself. A call of __init__ would cost
    # more than everything else that happens to a record there (measured: 117 ns against 55 ns).
    __slots__ = ("_call", "_message")
    _message: Message
    _call: Call

    @classmethod
    def of(cls, message: Message, call: Call) -> Record:
        """Wrap a message; ``call`` gives attempt, state and cancellation."""
        record = cls()
        record._message = message
        record._call = call
        return record

    @property
    def topic(self) -> str:
        """The topic of this delivery; for a copy, the retry topic. See ``origin``."""
        return str(self._message.topic())

    @property
    def partition(self) -> int:
        """The partition of this delivery. See ``origin``."""
        return int(self._message.partition())

    @property
    def offset(self) -> int:
        """The offset of this delivery; for a copy, that in the retry topic. See ``origin``."""
        return int(self._message.offset())

    @property
    def id(self) -> str:
        """The record's id, the same on every delivery: use it as the idempotency key.

        Its ``wc-id`` header (set by its producer, or by the framework on a copy), else
        ``topic/partition/offset`` of its first delivery.
        """
        given = given_id(self._message.headers())
        return str(self.origin) if given is None else id_text(given)

    @property
    def origin(self) -> RecordOrigin:
        """Where the record was first delivered from: ``topic``, ``partition`` and ``offset``.

        On the first delivery these are the record's own. They stay the same in retry topics and
        after a redrive.
        """
        first = origin_in(dict(self._message.headers() or ())) if self.is_copy else None
        return first or RecordOrigin(self.topic, self.partition, self.offset)

    @property
    def key(self) -> bytes | None:
        """The key's bytes; None if the record has no key."""
        return self._message.key()  # type: ignore[no-any-return] # bytes without a deserialiser

    @property
    def value(self) -> bytes | None:
        """The value's bytes; None is a tombstone, which differs from an empty value."""
        return self._message.value()  # type: ignore[no-any-return] # bytes without a deserialiser

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Pairs of name and bytes (or None) in their order, including repeated names."""
        return self._message.headers() or []

    def header(self, name: str) -> bytes | None:
        """Return the last value of a header; None if it is missing or has no value."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970, set by the producer or the broker; None if there is none."""
        kind, milliseconds = self._message.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds

    @property
    def attempt(self) -> int:
        """The number of this handler call for the record, from 1, retry topics included."""
        return self._call.number_of(self._message)

    @property
    def is_copy(self) -> bool:
        """True for a copy in one of the group's own retry topics."""
        return self._call.before is not None

    @property
    def state(self) -> Any:
        """The value that the application's lifespan yielded; None without a lifespan."""
        return self._call.state

    @property
    def session(self) -> Any:
        """The SQLAlchemy session of the call's transaction, in a handler with ``once``.

        The framework commits it when the handler returns. Only this call may use it. Raises
        UsageError elsewhere.
        """
        return self._effects.session

    @property
    def fence(self) -> int:
        """A number that grows with each assignment of the partition, with ``once(fenced=True)``.

        For conditional writes to other systems: refuse a number smaller than the last one seen.
        Raises UsageError in other handlers.
        """
        fence = self._effects.fence
        if fence is None:
            raise UsageError("record.fence needs Once(fenced=True)")
        return fence

    @property
    def _effects(self) -> Effects:
        effects = self._call.effects
        if effects is None:
            raise UsageError(
                "record.session and record.fence exist only while a handler with once= is called:"
                " write @app.handler(..., once=Once(engine))"
            )
        return effects

    @property
    def cancelled(self) -> bool:
        """True once the result of this call will be ignored.

        The partition was lost, the call exceeded its time during a stop or a rebalance, or it was
        abandoned because it had not returned for ``stall.after``. A long handler should check this
        from time to time, and return.
        """
        return self._call.cancelled

    def text(self, encoding: str = "utf-8") -> str:
        """Return the value as text; raise ``ValueError`` for a tombstone or undecodable bytes."""
        value = self.value
        if value is None:
            msg = f"{self!r} is a tombstone: it has no value to read as text"
            raise ValueError(msg)
        return value.decode(encoding)

    def json(self) -> Any:
        """Return the value parsed as JSON; raise ``ValueError`` for a tombstone or invalid JSON."""
        value = self.value
        if value is None:
            msg = f"{self!r} is a tombstone: it has no value to read as JSON"
            raise ValueError(msg)
        return json.loads(value)

    def __repr__(self) -> str:
        return f"<Record {self.topic}[{self.partition}]@{self.offset} attempt {self.attempt}>"
