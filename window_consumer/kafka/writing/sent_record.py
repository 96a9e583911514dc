"""A sent record, its failure and its end, as the rules see them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal, Protocol, TypeVar

from attrs import frozen

SendVerdict = Literal["transient", "missing", "denied", "too_large", "invalid"]
"""The consequence of an error for a record: send it again, wait for its topic, or give it up."""


class OutgoingRecord(Protocol):
    """A record that is kept until the brokers have it."""

    number: int
    """The order in which a user's records were sent."""
    topic: str
    key: bytes | str | None
    value: bytes | str | None

    @property
    def size(self) -> int:
        """Return the bytes of key, value and headers."""


Sent = TypeVar("Sent", bound=OutgoingRecord)


@frozen
class SendFailure:
    """Why a client did not accept or deliver a record."""

    verdict: SendVerdict
    text: str
    partition: int | None
    """None if the client did not accept it; negative if it did not know the topic yet."""
    is_purged: bool = False
    """Whether it was taken back from the client."""
    was_in_flight: bool = False
    """Whether it was taken back on its way to a broker."""
    is_expired: bool = False
    """Whether it was given up because no broker accepted it in time."""
    is_of_another: bool = False
    """Whether it was refused because of another record of its batch."""

    @property
    def is_refusal(self) -> bool:
        """Whether brokers, or the client, refused this record or another one of its batch."""
        return self.is_of_another or self.verdict != "transient"


class Ending(Enum):
    """The end of a record that the brokers did not acknowledge."""

    DENIED = auto()
    INVALID = auto()
    TOO_LARGE = auto()
    NO_TOPIC = auto()
    FAILED = auto()
    """Within a transaction, which is retried as a whole."""
    LOGIN_REFUSED = auto()
    LOGIN_DOUBTFUL = auto()
    """The login is refused, and an earlier attempt may have written the record."""
    NEVER_SENT = auto()
    MAY_HAVE_ARRIVED = auto()


@frozen
class RecordEnd:
    """How a record ended, and the reason in words."""

    ending: Ending
    why: str = ""
    limit: int | None = None
    """The topic's limit for a record that is too large, if known."""
