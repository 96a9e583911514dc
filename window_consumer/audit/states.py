"""Words of the audit's report: the state of a bucket, and its finding."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from window_consumer.audit.count import LEAVING, CountTier


class State(StrEnum):
    """The progress of counting a bucket."""

    OPEN = "open"
    """Its time has not ended. Records without a timestamp are in a bucket that never ends."""
    CLOSING = "closing"
    """Its end, or its last count, is within the grace period: more counts may come."""
    REOPENED = "re-opened"
    """Closing again: a count arrived when the bucket was final, after more than the grace period
    without one.
    """
    FINAL = "final"


class Finding(StrEnum):
    """The finding in a bucket, for one group."""

    BALANCED = "balanced"
    IN_PROGRESS = "in progress"
    """Records are on their way, or their counts are. In a final bucket, the group has not reached
    them.
    """
    LOST = "lost"
    """Records were written, the group has read beyond them, and their outcome is unknown."""
    EXCHANGED = "exchanged"
    """The numbers match but the records differ: a loss and a duplicate cancel out."""
    DUPLICATED = "duplicated"
    """More left the topic than was sent: a record was written twice."""
    UNCOUNTED = "uncounted"
    """Records or their counts may be missing: an owner of the partition did not report all its
    counts.
    """
    WITHIN_UNKNOWN = "within unknown"
    """Sends with an unknown result explain the difference."""
    WITHIN_GONE = "within gone"
    """Retention, compaction or truncation explains the difference."""
    BEFORE = "before"
    """The group began to count within the bucket, or after it."""
    NOT_CONSUMED = "not consumed"
    """No counting group reads the topic."""
    UNAUDITED = "unaudited"
    """Some writers do not count, so no finding is possible."""


ALARMING: Final = frozenset({Finding.LOST, Finding.EXCHANGED})
"""Findings about missing records. Only final buckets have them."""

UNREMARKABLE: Final = frozenset(
    {Finding.BALANCED, Finding.IN_PROGRESS, Finding.NOT_CONSUMED, Finding.UNAUDITED, Finding.BEFORE}
)
"""Findings that need no attention, which summaries omit."""

TERMS: Final = {
    term: term.replace("_", "-")
    for term in (
        CountTier.PRODUCED,
        CountTier.REDRIVEN,
        CountTier.REPLAYED,
        *LEAVING,
        CountTier.GONE,
        CountTier.UNKNOWN,
    )
} | {"uncounted": "uncounted", "in_flight": "in flight", "lost": "lost", "duplicated": "duplicated"}
"""The report's columns, and their headings in tables."""
