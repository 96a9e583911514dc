"""A group's retry topics as a test sees them from outside: their records and their origins."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from tests import reading
from tests.integration.shop import Call, Shop
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.model import headers as names
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.model.record import Message
from window_consumer.testing.events import (
    DeadLettered,
    Ended,
    Event,
    LogEnd,
    OffsetCommitted,
    OutlivedLogged,
    Started,
    in_order,
)
from window_consumer.testing.guarantees import CommittedReachesEnd, Guarantee, NothingLost, check

CALM: Mapping[str, Any] = {"enabled": False}
"""No circuit breaker: in these tests most calls fail."""

Place = tuple[str, int, int]


@frozen
class RetryTopics:
    """The retry topics of one source topic, and its dead letters."""

    client: Mapping[str, Any]
    group: str
    topic: str
    delays: tuple[str, ...]

    @classmethod
    def of(cls, shop: Shop, *delays: str) -> RetryTopics:
        return cls(shop.plain, shop.group, shop.topic, delays)

    def name(self, delay: str) -> str:
        return f"{self.group}.{self.topic}.retry.{delay}"

    @property
    def names(self) -> list[str]:
        return [self.name(delay) for delay in self.delays]

    def copies(self, delay: str) -> list[Message]:
        return reading.read_all(self.client, self.name(delay))

    def dead_letters(self) -> list[Message]:
        return reading.read_all(self.client, f"{self.group}.{self.topic}.dlq")

    def ends(self, name: str) -> dict[int, int]:
        return {each: span.end for each, span in reading.spans(self.client, name).items()}

    def are_drained(self) -> bool:
        """Return whether source and levels are committed to their ends; False without a broker."""
        try:
            return all(
                committed_offsets(self.client, self.group, name) == self.ends(name)
                for name in (self.topic, *self.names)
            )
        except BrokerUnavailableError:
            return False

    # ---- judging

    def origins(self) -> dict[Place, Place]:
        """Return where the record of each copy was delivered from first."""
        return {
            (str(copy.topic()), int(copy.partition()), int(copy.offset())): origin
            for delay in self.delays
            for copy in self.copies(delay)
            if (origin := origin_of(copy)) is not None
        }

    def by_record(self, events: Iterable[Event]) -> list[Event]:
        """Return a history in which calls for copies are calls for their records.

        So a lane is partition and key of the first delivery, whichever topic a call was made from,
        and a record that was done in a level is done.
        """
        origins = self.origins()
        found: list[Event] = []
        for event in events:
            if isinstance(event, Started | Ended | OutlivedLogged):
                place = (event.topic, event.partition, event.offset)
                topic, partition, offset = origins.get(place, place)
                found.append(attrs.evolve(event, topic=topic, partition=partition, offset=offset))
            else:
                found.append(event)
        dead = (origin_of(copy) for copy in self.dead_letters())
        found.extend(DeadLettered(*origin) for origin in dead if origin is not None)
        return list(in_order([*found, *self._commits()]))

    def _commits(self) -> Iterator[Event]:
        now = time.monotonic()
        for name in self.names:
            for partition, offset in committed_offsets(self.client, self.group, name).items():
                yield OffsetCommitted(name, partition, offset, now)
            for partition, end in self.ends(name).items():
                if end:
                    yield LogEnd(name, partition, end)

    def violations(self, shop: Shop, *more: Guarantee) -> list[str]:
        """Check everything that must hold at the end, and ``more``."""
        return check(self.by_record(shop.history()), NothingLost(), CommittedReachesEnd(), *more)


def origin_of(copy: Message) -> Place | None:
    """Return a record's first delivery from a copy's headers."""
    fields = dict(copy.headers() or ())
    topic, partition, offset = (
        (fields.get(name) or b"").decode()
        for name in (names.ORIGINAL_TOPIC, names.ORIGINAL_PARTITION, names.ORIGINAL_OFFSET)
    )
    return (topic, int(partition), int(offset)) if topic else None


def header(headers: Sequence[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the one header of this name; None if there is none."""
    found = [value for each, value in headers if each == name]
    assert len(found) <= 1, f"{name} stands there {len(found)} times"
    return found[0] if found else None


def lateness_ms(call: Call) -> float:
    """Return how long after its due time a copy was called."""
    return call.wall_ms - int(header(call.headers, names.NOT_BEFORE) or b"")
