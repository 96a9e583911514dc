"""Words of the audit's report: how far a bucket is, and what was found in it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """How far the counting of a bucket is."""

    OPEN = "open"
    """Its time has not ended. Records without a timestamp are in one that never does."""
    CLOSING = "closing"
    """It may still be counted for: its end, or its last count, is no longer ago than the grace
    period."""
    REOPENED = "re-opened"
    """As closing, by a count that came when the bucket was final: after more than the grace period
    without one."""
    FINAL = "final"


class Finding(StrEnum):
    """What was found in a bucket, for one group."""

    BALANCED = "balanced"
    IN_PROGRESS = "in progress"
    """Records of it are on their way, or their counts are. Where it is final the group has not got
    to them yet."""
    LOST = "lost"
    """Records were written, the group has read beyond them, and nobody knows what became of
    them."""
    EXCHANGED = "exchanged"
    """As many, but others: a loss and a duplicate that cancel out."""
    DUPLICATED = "duplicated"
    """More has left the topic than was sent: a record was written twice."""
    UNCOUNTED = "uncounted"
    """Records may be missing, or their counts: who had the partition then did not tell all that it
    counted."""
    WITHIN_UNKNOWN = "within unknown"
    """The difference is explained by sends of which nobody knows whether they were written."""
    WITHIN_GONE = "within gone"
    """The difference is explained by what retention, compaction or truncation took."""
    BEFORE = "before"
    """The group began to count within it, or after it."""
    NOT_CONSUMED = "not consumed"
    """No group that counts reads the topic."""
    UNAUDITED = "unaudited"
    """Not all who write to the topic count: nothing can be said."""


ALARMING: Final = frozenset({Finding.LOST, Finding.EXCHANGED})
"""What is found missing. Only buckets that are final are found to be so."""
