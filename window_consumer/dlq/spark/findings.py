"""What a report on dead letters says, as plain values: for pages, terminals and programs.

Times are milliseconds since 1970. What came from records is as they had it: whoever shows it has
to escape it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import field, frozen

HOUR_MS: Final = 3_600_000

SIDES: Final = (
    *("reason", "handler", "version", "host", "partition", "group", "topic", "dead_letters", "by"),
)
"""From which sides causes are looked at; ``by`` is who wrote the dead letters."""

_ON_AT_LEAST_MS: Final = HOUR_MS
_ON_GAPS: Final = 3
_ONE_KEY: Final = 0.5
_FEW_KEYS: Final = 0.8
_TELLING: Final = 5
"""Fewer dead letters with keys say nothing about keys."""


@frozen(kw_only=True)
class Share:
    """How many of some dead letters have one value in common, and since when."""

    value: str | None
    """None: they do not tell."""
    of: str | None = None
    """Whose value it is: of a version the group's, of a partition the topic's."""
    count: int
    first_ms: int | None
    last_ms: int | None


@frozen(kw_only=True)
class KeySpread:
    """How the keys of some dead letters are spread."""

    distinct: int
    """How many different ones there are."""
    count: int
    """How many dead letters have a key that may be told."""
    without: int
    top: tuple[tuple[str, int], ...]
    """The most frequent ones, and how many dead letters have each."""

    @property
    def spread(self) -> Literal["one", "few", "many", "unknown"]:
        """Tell whether it is one key, or are the few most frequent ones, or whether all have it.

        Few keys repeat: where each of ten dead letters has a key of its own it is not about keys.
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
    """``topic/partition/offset``, which ``dlq show`` takes."""
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
    """The record's own."""
    value: str | None
    """None where values are not kept."""
    value_bytes: int | None


@frozen(kw_only=True)
class FailureGroup:
    """Dead letters of one fingerprint; of those without one, those of a reason and class.

    Of those that tell none of these, those of one writer.
    """

    fingerprint: str | None
    reason: str | None
    """That of most of them."""
    error_class: str | None
    error_message: str | None
    """The latest."""
    count: int
    failed_again: int
    """How many of them had been put back before: each stands for an earlier dead letter of its
    record, of this cause or of another one, that no longer waits."""
    put_back: int | None = None
    """How many of them were put back since; None where that is not known."""
    first_ms: int | None
    last_ms: int | None
    sides: Mapping[str, tuple[Share, ...]]
    """The most frequent values from each of ``SIDES``."""
    keys: KeySpread
    periods: Mapping[int, int]
    """How many of them failed in each period, by its beginning."""
    examples: tuple[Example, ...]

    @property
    def waits(self) -> bool:
        """Tell whether any of them is still to be put back, as far as that is known."""
        return self.put_back is None or self.put_back < self.count

    def is_on(self, now_ms: int) -> bool:
        """Tell whether it is still going on.

        That is, whether the last one is younger than an hour, or than three times what lay
        between them on average: what comes once a day is not over after two hours.
        """
        if self.last_ms is None or self.first_ms is None:
            return False
        gap = (self.last_ms - self.first_ms) / max(1, self.count - 1)
        return now_ms - self.last_ms < max(_ON_AT_LEAST_MS, _ON_GAPS * gap)


@frozen(kw_only=True)
class DeadLetterFindings:
    """All of a report."""

    asked_ms: int
    """When it was made."""
    since_ms: int | None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """What it was restricted to; nothing: all."""
    source: str
    """Where the dead letters were read."""
    count: int
    failed_again: int
    """How many of them had been put back before."""
    put_back: int | None = None
    """How many of them were put back since; None where that is not known."""
    put_back_unknown: str | None = None
    """Why it is not."""
    first_ms: int | None
    last_ms: int | None
    unreadable: int
    """Dead letters that a later version wrote: not among the others."""
    distinct_causes: int
    causes: tuple[FailureGroup, ...]
    """The most frequent ones."""
    period_ms: int
    periods: Mapping[int, int] = field(factory=dict)
    """How many of all failed in each period, by its beginning."""
    sides: Mapping[str, tuple[Share, ...]] = field(factory=dict)
    keys: KeySpread

    @property
    def others(self) -> int:
        """How many dead letters have causes that are not among ``causes``."""
        return self.count - sum(cause.count for cause in self.causes)

    def began_with(self, cause: FailureGroup) -> Share | None:
        """Return the version of the application that a cause seems to have begun with.

        That is the first version that has it, where its group had dead letters of an earlier
        version, and that one had none of this cause. None where that cannot be told.
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
        """Return the first version that has a cause, where no earlier one has any dead letters.

        Whether the cause began with it, dead letters cannot tell: the version before may have been
        without any. None where they can (see ``began_with``), and where nobody tells versions.
        """
        first = _first_version(cause)
        if first is None or self.began_with(cause) is not None:
            return None
        return self._as_a_whole(first)

    def _as_a_whole(self, version: Share) -> Share:
        """Return a version with all of its dead letters."""
        for each in self.sides.get("version", ()):
            if (each.value, each.of) == (version.value, version.of):
                return each
        return version


def _first_version(cause: FailureGroup) -> Share | None:
    having = [each for each in cause.sides.get("version", ()) if each.value is not None]
    return min(having, key=_began, default=None)


def _began(share: Share) -> int:
    return share.first_ms if share.first_ms is not None else 2**63
