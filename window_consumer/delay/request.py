"""A sender's request: a target and a time, read from a record's headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from window_consumer.config import Config
from window_consumer.config.names import MAX_LENGTH, wrong_name
from window_consumer.delay.config import DelayConfig
from window_consumer.model import headers as names
from window_consumer.model.errors import NotCalled
from window_consumer.model.header_values import count, text
from window_consumer.model.headers import Reason
from window_consumer.model.produce import Produce
from window_consumer.model.record import Record
from window_consumer.plan.ladder_topics import LadderNames

_SHOWN: Final = 60


class DelayUnreadable(NotCalled):
    """A record has no delivery time, or its time is not a number."""

    reason = Reason.DELAY_UNREADABLE


class DelayTooLong(NotCalled):
    """A record's delivery time is later than ``delay.max`` allows."""

    reason = Reason.DELAY_TOO_LONG


class TargetNotAllowed(NotCalled):
    """A record names no target, or one that ``delay.to`` does not list."""

    reason = Reason.TARGET_NOT_ALLOWED


class TargetIsOurs(NotCalled):
    """A record is for a retry, dead-letter or delay topic."""

    reason = Reason.TARGET_IS_OURS


class TargetRefused(NotCalled):
    """The target refused a record until ``delay.max`` had passed since it was due."""

    reason = Reason.TARGET_REFUSED


@frozen
class DelayRequest:
    """Where and when to deliver a record."""

    target: str
    at_ms: int
    """In milliseconds since 1970."""


@frozen
class Targets:
    """The topics that records may be delivered to."""

    allowed: tuple[str, ...]
    """Names; a trailing * matches any ending."""
    ours: LadderNames
    """The topics that must get no delayed records."""
    _known: dict[str, _Wrong] = field(init=False, factory=dict, eq=False)

    @classmethod
    def of(cls, config: Config) -> Targets:
        """Return the targets of a configuration."""
        return cls(config.section(DelayConfig).to, LadderNames.of(config))

    def allows(self, target: str) -> bool:
        """Return whether a topic gets records."""
        return not self._wrong(target)

    def check(self, target: str) -> None:
        """Raise TargetIsOurs or TargetNotAllowed for a topic that gets no records."""
        for kind, why in self._wrong(target):
            raise kind(why)

    def _wrong(self, target: str) -> _Wrong:
        wrong = self._known.get(target)
        if wrong is None:
            wrong = self._judged(target)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if len(target) <= MAX_LENGTH:
                self._known[target] = wrong
        return wrong

    def _judged(self, target: str) -> _Wrong:
        if target in self.ours:
            text = f"{target} is, or is named like, a retry, dead-letter or delay topic"
            return ((TargetIsOurs, text),)
        if not any(_matches(each, target) for each in self.allowed):
            text = f"{target[:MAX_LENGTH]} is not among the topics of delay.to"
            return ((TargetNotAllowed, text),)
        problem = wrong_name(target)
        if problem is None:
            return ()
        return ((TargetNotAllowed, f"{target[:MAX_LENGTH]!r} is not a topic name: it {problem}"),)


_Wrong = tuple[tuple[type[NotCalled], str], ...]
"""Why a target gets no records: at most one error, which is raised again for each record."""

_REMEMBERED: Final = 10_000


def _matches(pattern: str, target: str) -> bool:
    if pattern.endswith("*"):
        return target.startswith(pattern[:-1])
    return target == pattern


def request_of(
    found: Mapping[str, bytes | None], timestamp: int | None, targets: Targets | None
) -> DelayRequest:
    """Return the request in headers; raise the error that makes their record a dead letter.

    ``timestamp`` is the record's own, in milliseconds since 1970. Without ``targets`` any target is
    allowed.
    """
    target = text(found.get(names.DELIVER_TO))
    if target is None:
        raise TargetNotAllowed(f"the record has no header {names.DELIVER_TO}")
    if targets is not None:
        targets.check(target)
    if names.DELIVER_AT in found:
        return DelayRequest(target, _number(names.DELIVER_AT, found[names.DELIVER_AT]))
    if names.DELAY not in found:
        raise DelayUnreadable(f"the record has neither {names.DELIVER_AT} nor {names.DELAY}")
    if timestamp is None:
        raise DelayUnreadable(f"{names.DELAY} counts from the record's timestamp: it has none")
    return DelayRequest(target, timestamp + _number(names.DELAY, found[names.DELAY]))


def _number(name: str, value: bytes | None) -> int:
    number = count(value)
    if number is None:
        shown = (value or b"")[:_SHOWN]
        raise DelayUnreadable(f"{name} is not a whole number of milliseconds: {shown!r}")
    return number


def request_in(record: Record, targets: Targets) -> DelayRequest:
    """Return the request of a delivered record; raises the same as ``request_of``."""
    found = dict(record.headers)
    first = count(found.get(names.ORIGINAL_TIMESTAMP)) if record.is_copy else record.timestamp
    return request_of(found, first, targets)


def delivered(record: Record, targets: Targets) -> Produce:
    """Return the record to deliver: it keeps key, value, the user's headers and the id.

    Raises the error that makes it a dead letter.
    """
    request = request_in(record, targets)
    kept = delivered_headers(record.headers)
    return Produce(request.target, record.key, record.value, headers=[*kept, (names.ID, record.id)])


def delivered_headers(
    headers: Sequence[tuple[str, bytes | None]],
) -> Sequence[tuple[str, bytes | None]]:
    """Return the headers that a delivered record keeps in addition to its id."""
    return names.each_once(_DELIVERED.of(headers))


_DELIVERED: Final = names.KeptHeaders(frozenset({names.TAGS, names.SENT_AT}))
