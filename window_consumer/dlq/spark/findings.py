"""The findings of a report on dead letters, as plain values for pages, terminals and programs.

Times are milliseconds since 1970. Text from records is unescaped: the output code must escape it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import field, frozen

HOUR_MS: Final = 3_600_000

SIDES: Final = (
    *("reason", "handler", "version", "host", "partition", "group", "topic", "dead_letters", "by"),
)
"""The dimensions of causes; ``by`` is the writer of the dead letters."""

_ON_AT_LEAST_MS: Final = HOUR_MS
_ON_GAPS: Final = 3
_ONE_KEY: Final = 0.5
_FEW_KEYS: Final = 0.8
_TELLING: Final = 5
"""With fewer keyed dead letters the spread of keys is unknown."""


@frozen(kw_only=True)
class Share:
    """How many dead letters share one value, and since when."""

    value: str | None
    """None if they lack the value."""
    of: str | None = None
    """The owner of the value: for a version its group, for a partition its topic."""
    count: int
    first_ms: int | None
    last_ms: int | None


@frozen(kw_only=True)
class KeySpread:
    """How the keys of some dead letters are spread."""

    distinct: int
    """The number of distinct keys."""
    count: int
    """The number of dead letters whose key may be shown."""
    without: int
    top: tuple[tuple[str, int], ...]
    """The most frequent keys, with their counts."""

    @property
    def spread(self) -> Literal["one", "few", "many", "unknown"]:
        """Return whether one key, a few keys or many keys have the dead letters.

        A few keys must repeat: if ten dead letters have ten keys, keys are not the cause.
        """
        if self.count < _TELLING or not self.top:
            return "unknown"
        if self.top[0][1] >= _ONE_KEY * self.count:
            return "one"
        few = sum(count for _, count in self.top)
        return "few" if few >= _FEW_KEYS * self.count and self.distinct < self.count else "many"


@frozen(kw_only=True)
class Example:
    """One dead letter of a cause."""

    dead_letter: str
    """``topic/partition/offset``, as ``dlq show`` accepts it."""
    id: str | None
    failed_ms: int | None
    handler: str | None
    version: str | None
    host: str | None
    attempts: int | None
    redrives: int | None
    key: str | None
    error_message: str | None
    error_stack: str | None
    headers: tuple[tuple[str, str | None], ...]
    """The record's own headers."""
    value: str | None
    """None if values are not kept."""
    value_bytes: int | None


@frozen(kw_only=True)
class FailureGroup:
    """Dead letters of one fingerprint, or without one, of one reason and class.

    Those with neither are grouped by writer.
    """

    fingerprint: str | None
    reason: str | None
    """The reason of most of them."""
    error_class: str | None
    error_message: str | None
    """The latest message."""
    count: int
    failed_again: int
    """How many of them had been put back before. Each replaces an earlier dead letter of its
    record, of this cause or another, which no longer waits."""
    put_back: int | None = None
    """How many of them were put back since; None if unknown."""
    first_ms: int | None
    last_ms: int | None
    sides: Mapping[str, tuple[Share, ...]]
    """The most frequent values of each of ``SIDES``."""
    keys: KeySpread
    periods: Mapping[int, int]
    """The number of failures in each period, by the start of the period."""
    examples: tuple[Example, ...]

    @property
    def waits(self) -> bool:
        """Return whether some of them are known to wait for a redrive."""
        return self.put_back is None or self.put_back < self.count

    def is_on(self, now_ms: int) -> bool:
        """Return whether the failures continue.

        They do if the latest one is younger than an hour, or than three times the average interval:
        a daily failure is not over after two hours.
        """
        if self.last_ms is None or self.first_ms is None:
            return False
        gap = (self.last_ms - self.first_ms) / max(1, self.count - 1)
        return now_ms - self.last_ms < max(_ON_AT_LEAST_MS, _ON_GAPS * gap)


@frozen(kw_only=True)
class DeadLetterFindings:
    """A complete report."""

    asked_ms: int
    """The time of the report."""
    since_ms: int | None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """The groups that it is restricted to; empty for all."""
    source: str
    """Where the dead letters were read."""
    count: int
    failed_again: int
    """How many of them had been put back before."""
    put_back: int | None = None
    """How many of them were put back since; None if unknown."""
    put_back_unknown: str | None = None
    """Why it is unknown."""
    first_ms: int | None
    last_ms: int | None
    unreadable: int
    """Dead letters that a later version wrote; they are not included elsewhere."""
    distinct_causes: int
    causes: tuple[FailureGroup, ...]
    """The most frequent causes."""
    period_ms: int
    periods: Mapping[int, int] = field(factory=dict)
    """The number of all failures in each period, by the start of the period."""
    sides: Mapping[str, tuple[Share, ...]] = field(factory=dict)
    keys: KeySpread

    @property
    def others(self) -> int:
        """Return how many dead letters have causes that are not among ``causes``."""
        return self.count - sum(cause.count for cause in self.causes)

    def began_with(self, cause: FailureGroup) -> Share | None:
        """Return the application version that seems to have introduced a cause.

        It is the first version with the cause, if its group had dead letters of an earlier version
        and none of those had this cause. None if that is unknown.
        """
        first = _first_version(cause)
        if first is None:
            return None
        everyone = [each for each in self.sides.get("version", ()) if each.of == first.of]
        earlier = [
            each
            for each in everyone
            if each.value is not None and _began(each) < _began(self._as_a_whole(first))
        ]
        return self._as_a_whole(first) if earlier else None

    def oldest_known(self, cause: FailureGroup) -> Share | None:
        """Return the first version with a cause if no earlier version has any dead letters.

        Then dead letters cannot prove that the version introduced the cause: an earlier version may
        simply have had none. None if they can (see ``began_with``), or if no version is reported.
        """
        first = _first_version(cause)
        if first is None or self.began_with(cause) is not None:
            return None
        return self._as_a_whole(first)

    def _as_a_whole(self, version: Share) -> Share:
        """Return a version's share of all dead letters."""
        for each in self.sides.get("version", ()):
            if (each.value, each.of) == (version.value, version.of):
                return each
        return version


def _first_version(cause: FailureGroup) -> Share | None:
    having = [each for each in cause.sides.get("version", ()) if each.value is not None]
    return min(having, key=_began, default=None)


def _began(share: Share) -> int:
    return share.first_ms if share.first_ms is not None else 2**63
