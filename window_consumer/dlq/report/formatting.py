"""Formats the figures of a report, shared by page and terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from window_consumer.dlq.dead_letter import WrittenBy
from window_consumer.dlq.spark.findings import DeadLetterFindings, FailureGroup, KeySpread, Share

UNKNOWN = "unknown"

SIDE_NAMES = {
    "reason": "Reason",
    "handler": "Handler",
    "version": "Application version",
    "host": "Host",
    "partition": "Partition",
    "group": "Consumer group",
    "topic": "Topic of the records",
    "dead_letters": "Dead-letter topic",
    "by": "Written by",
}


def moment(milliseconds: int | None) -> str:
    """Return a time to the minute, in UTC."""
    if milliseconds is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M}"


def percent(part: int, whole: int) -> str:
    """Return a percentage that shows 0 or 100 only if it is exact."""
    share = 100 * part / whole if whole else 0
    if 0 < share < 1:
        return "< 1 %"
    if 99 < share < 100:
        return "> 99 %"
    return f"{share:.0f} %"


def name_of(cause: FailureGroup) -> str:
    """Return the name of a cause."""
    writers = [each.value for each in cause.sides.get("by", ())]
    by = writers[0] if len(writers) == 1 and writers != [WrittenBy.UNKNOWN.value] else None
    return cause.error_class or cause.reason or (f"given up by {by}" if by else "nothing is known")


def share_name(share: Share) -> str:
    """Return a value, with its owner if that matters."""
    value = UNKNOWN if share.value is None else share.value
    return value if share.of is None else f"{value} ({share.of})"


def partition_name(share: Share) -> str:
    """Return a partition in the notation of Kafka's tools."""
    if share.value is None:
        return UNKNOWN
    return f"{share.of or '?'}-{share.value}"


def state_of(cause: FailureGroup, now_ms: int) -> str:
    """Return whether the failures continue."""
    if not cause.waits:
        return "put back"
    if cause.last_ms is None:
        return "unknown when"
    return "going on" if cause.is_on(now_ms) else "over"


def keys_in_words(keys: KeySpread) -> str:
    """Return how the failures spread over keys."""
    if not keys.count:
        return "no keys are known"
    top, count = keys.top[0]
    share = percent(count, keys.count)
    match keys.spread:
        case "one":
            return f"one key has {share} of them: {top}"
        case "few":
            if len(keys.top) == keys.distinct:
                return f"{keys.distinct} keys have all of them, the most frequent has {share}"
            few = percent(sum(each for _, each in keys.top), keys.count)
            return f"{len(keys.top)} of {keys.distinct:,} keys have {few} of them"
        case "many":
            return f"spread over {keys.distinct:,} keys, the most frequent has {share}"
    return "too few keys to compare"


def began_with(cause: FailureGroup, findings: DeadLetterFindings) -> str | None:
    """Return the version that introduced a cause; None if unknown."""
    version = findings.began_with(cause)
    if version is None:
        return None
    since = moment(version.first_ms)
    return f"began with version {share_name(version)}, whose first dead letter is of {since}"


def version_in_words(cause: FailureGroup, findings: DeadLetterFindings) -> str | None:
    """Return the version of a cause, or that it is unknown; None if no version is ever reported."""
    began = began_with(cause, findings)
    if began is not None:
        return began
    oldest = findings.oldest_known(cause)
    if oldest is None:
        return None
    return (
        f"seen since version {share_name(oldest)}: no dead letters of earlier versions are"
        " known, so it may have begun earlier"
    )


def again_in_words(failed_again: int) -> str | None:
    """Return how many failed again after a redrive; None if none did."""
    if not failed_again:
        return None
    return f"{failed_again:,} of them had been put back before and failed again"


def put_back_in_words(put_back: int | None, count: int) -> str | None:
    """Return how many were put back and how many wait; None if none were, or if unknown."""
    if not put_back:
        return None
    waiting = count - put_back
    if not waiting:
        return "all of them were put back: none is waiting"
    are = "is" if waiting == 1 else "are"
    return f"{put_back:,} of them were put back, {waiting:,} {are} waiting"


def waiting(cause: FailureGroup) -> str:
    """Return how many of a cause still wait for a redrive."""
    return UNKNOWN if cause.put_back is None else f"{cause.count - cause.put_back:,}"


def length(milliseconds: int) -> str:
    """Return the length of a period."""
    hours = milliseconds // 3_600_000
    if hours % 24:
        return "hour" if hours == 1 else f"{hours} hours"
    return "day" if hours == 24 else f"{hours // 24} days"
