"""The events that a test saw, which can be written to a file and read back.

Several processes may each write a file; merged by time the files are one history. Times are seconds
of one shared clock (``time.monotonic()`` on one machine). Keys and ids are text: writers decode
bytes in a way that keeps them distinct.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import attrs
from attrs import frozen

Result = Literal["done", "skipped", "dropped", "failed", "spent"]
"""How a call ended: ``failed`` is retried, ``spent`` leaves for the dead-letter topic."""


@frozen
class Produced:
    """A record was written; ``id`` is the producer's name for it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    id: str


@frozen
class Started:
    """A handler call began; the first ``attempt`` is 1.

    A batch handler's call is one event for each of its records, with the same ``batch``.
    """

    member: str
    topic: str
    partition: int
    offset: int
    key: str | None
    time: float
    attempt: int = 1
    batch: str | None = None
    """Identifies a batch handler's call among those of all members."""


@frozen
class Ended:
    """A handler call ended. A call without this event still runs, or ended with its process."""

    member: str
    topic: str
    partition: int
    offset: int
    key: str | None
    time: float
    result: Result
    attempt: int = 1


@frozen
class DeadLettered:
    """A copy of this record was found in a dead-letter topic, or its ack was seen."""

    topic: str
    partition: int
    offset: int


@frozen
class OutlivedLogged:
    """The log reported that a call for this record outlived its partition."""

    topic: str
    partition: int
    offset: int


@frozen
class OffsetCommitted:
    """This committed offset (exclusive), or the ack of its commit, was seen at ``time``."""

    topic: str
    partition: int
    offset: int
    time: float


@frozen
class LogEnd:
    """The log ends here (exclusive) when everything is over."""

    topic: str
    partition: int
    offset: int


@frozen
class Killed:
    """A process was killed: its calls ended with it."""

    member: str
    time: float


Event = (
    Produced | Started | Ended | DeadLettered | OutlivedLogged | OffsetCommitted | LogEnd | Killed
)

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Produced,
        Started,
        Ended,
        DeadLettered,
        OutlivedLogged,
        OffsetCommitted,
        LogEnd,
        Killed,
    )
}


def to_line(event: Event) -> str:
    """Return an event as one line of JSON, without the line's end."""
    return json.dumps({"event": type(event).__name__, **attrs.asdict(event)})


def from_line(line: str) -> Event:
    """Return the event of a line; ``ValueError`` if it is not one."""
    try:
        fields = json.loads(line)
        event: Event = _KINDS[fields.pop("event")](**fields)
    except (AttributeError, KeyError, TypeError) as error:
        msg = f"not an event: {line!r}"
        raise ValueError(msg) from error
    return event


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events by time; those without a time come first, in the order given.

    Of two events at one time an end comes before a start.
    """
    return iter(sorted(events, key=_moment))


def _moment(event: Event) -> tuple[float, int]:
    return getattr(event, "time", float("-inf")), isinstance(event, Started)
