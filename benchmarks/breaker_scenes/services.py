"""The services that handlers call: how long a call takes, and whether it succeeds.

Times are seconds since the start of a scene. A service decides at the start of a call, one call at
a time, and may keep state, so each worker has its own.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple, Protocol

from attrs import define, frozen


class ServiceCall(NamedTuple):
    """A call for one record."""

    number: int
    """The record's position in the traffic."""
    key: int
    attempt: int
    now_s: float
    running: int
    """How many calls run at this moment, this one included."""


class Answer(NamedTuple):
    """How a call ends."""

    lasts_s: float
    ok: bool


class Service(Protocol):
    """What handlers need."""

    def call(self, call: ServiceCall) -> Answer:
        """Decide how a call ends."""

    def is_bad(self, number: int, key: int) -> bool:
        """Return whether the record itself is to blame: its calls fail at any time."""


@frozen
class Poison:
    """Some records always fail."""

    ok_s: float
    bad_s: float
    bad: Container[int]
    """Their numbers."""

    def call(self, call: ServiceCall) -> Answer:
        """Fail for bad records."""
        ok = call.number not in self.bad
        return Answer(self.ok_s if ok else self.bad_s, ok)

    def is_bad(self, number: int, key: int) -> bool:  # noqa: ARG002 - as declared
        """Return whether the record is one of them."""
        return number in self.bad


@frozen
class Outage:
    """Every call fails for a while; before and afterwards only those of ``bad`` do."""

    ok_s: float
    bad_s: float
    down_s: float
    up_s: float
    bad: Container[int] = ()

    def call(self, call: ServiceCall) -> Answer:
        """Fail during the outage, or for bad records."""
        ok = not self.down_s <= call.now_s < self.up_s and call.number not in self.bad
        return Answer(self.ok_s if ok else self.bad_s, ok)

    def is_bad(self, number: int, key: int) -> bool:  # noqa: ARG002 - as declared
        """Return whether the record is one of the bad ones."""
        return number in self.bad


@define
class Flap:
    """An outage in which one call succeeds every ``every_s`` seconds, ``times`` times."""

    ok_s: float
    bad_s: float
    down_s: float
    every_s: float
    times: int
    succeeded: int = 0

    @property
    def up_s(self) -> float:
        """When the outage ends."""
        return self.down_s + self.every_s * (self.times + 1)

    def call(self, call: ServiceCall) -> Answer:
        """Fail during the outage, except for the first call after each interval."""
        if not self.down_s <= call.now_s < self.up_s:
            return Answer(self.ok_s, ok=True)
        if self.succeeded < min(self.times, int((call.now_s - self.down_s) / self.every_s)):
            self.succeeded += 1
            return Answer(self.ok_s, ok=True)
        return Answer(self.bad_s, ok=False)

    def is_bad(self, number: int, key: int) -> bool:  # noqa: ARG002 - as declared
        """Return False."""
        return False


@frozen
class Overloaded:
    """Calls that begin while more than ``most`` run fail."""

    ok_s: float
    bad_s: float
    most: int

    def call(self, call: ServiceCall) -> Answer:
        """Fail above the limit."""
        ok = call.running <= self.most
        return Answer(self.ok_s if ok else self.bad_s, ok)

    def is_bad(self, number: int, key: int) -> bool:  # noqa: ARG002 - as declared
        """Return False."""
        return False


@frozen
class SlowRetries:
    """One record in ``every`` fails at once, and again after a long call; a third one succeeds."""

    ok_s: float
    retry_s: float
    every: int

    def call(self, call: ServiceCall) -> Answer:
        """Fail for one record in ``every``, twice."""
        if call.number % self.every:
            return Answer(self.ok_s, ok=True)
        return Answer(self.ok_s if call.attempt == 1 else self.retry_s, call.attempt > 2)

    def is_bad(self, number: int, key: int) -> bool:  # noqa: ARG002 - as declared
        """Return whether the record is one of these."""
        return not number % self.every


@frozen
class ShardDown:
    """The calls for odd keys fail for a while."""

    ok_s: float
    bad_s: float
    down_s: float
    up_s: float

    def call(self, call: ServiceCall) -> Answer:
        """Fail for odd keys."""
        ok = not (self.down_s <= call.now_s < self.up_s and call.key % 2)
        return Answer(self.ok_s if ok else self.bad_s, ok)

    def is_bad(self, number: int, key: int) -> bool:  # noqa: ARG002 - as declared
        """Return whether the record belongs to the shard that is down."""
        return bool(key % 2)
