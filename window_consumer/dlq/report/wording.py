"""How a report says things, on the page and in the terminal alike."""

from __future__ import annotations

from datetime import UTC, datetime

from window_consumer.dlq.dead_letter import WrittenBy
from window_consumer.dlq.spark.findings import (
    DeadLetterFindings,
    FailureGroup,
    KeySpread,
    Share,
)

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
    """Return a share; what is little is not nothing, and nearly all is not all."""
    share = 100 * part / whole if whole else 0
    if 0 < share < 1:
        return "< 1 %"
    if 99 < share < 100:
        return "> 99 %"
    return f"{share:.0f} %"


def name_of(cause: FailureGroup) -> str:
    """Return what a cause is called."""
    writers = [each.value for each in cause.sides.get("by", ())]
    by = writers[0] if len(writers) == 1 and writers != [WrittenBy.UNKNOWN.value] else None
    return cause.error_class or cause.reason or (f"given up by {by}" if by else "nothing is known")


def share_name(share: Share) -> str:
    """Return a value, with whose it is where that matters."""
    value = UNKNOWN if share.value is None else share.value
    return value if share.of is None else f"{value} ({share.of})"


def partition_name(share: Share) -> str:
    """Return a partition as Kafka's tools write it."""
    if share.value is None:
        return UNKNOWN
    return f"{share.of or '?'}-{share.value}"


def state_of(cause: FailureGroup, now_ms: int) -> str:
    """Return whether it is going on."""
    if not cause.waits:
        return "put back"
    if cause.last_ms is None:
        return "unknown when"
    return "going on" if cause.is_on(now_ms) else "over"


def keys_in_words(keys: KeySpread) -> str:
    """Return whether it is one customer."""
    if not keys.count:
        return "no keys are told"
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
    return "too few to tell"


def began_with(cause: FailureGroup, findings: DeadLetterFindings) -> str | None:
    """Return which version it came with; None where that cannot be told."""
    version = findings.began_with(cause)
    if version is None:
        return None
    since = moment(version.first_ms)
    return f"began with version {share_name(version)}, whose first dead letter is of {since}"


def version_in_words(cause: FailureGroup, findings: DeadLetterFindings) -> str | None:
    """Return which version it came with, or that nobody knows; None where nobody tells versions."""
    told = began_with(cause, findings)
    if told is not None:
        return told
    oldest = findings.oldest_known(cause)
    if oldest is None:
        return None
    return (
        f"seen since version {share_name(oldest)}: no dead letter of an earlier version is known,"
        " so whether it began with it is not"
    )


def again_in_words(failed_again: int) -> str | None:
    """Return how many came back after somebody put them back; None where none did."""
    if not failed_again:
        return None
    return f"{failed_again:,} of them had been put back before, and failed again"


def put_back_in_words(put_back: int | None, count: int) -> str | None:
    """Return how many were put back, and how many are waiting; None where nothing was, or known."""
    if not put_back:
        return None
    waiting = count - put_back
    if not waiting:
        return "all of them were put back: none is waiting"
    are = "is" if waiting == 1 else "are"
    return f"{put_back:,} of them were put back, {waiting:,} {are} waiting"


def waiting(cause: FailureGroup) -> str:
    """Return how many of a cause are to be put back still."""
    return UNKNOWN if cause.put_back is None else f"{cause.count - cause.put_back:,}"


def length(milliseconds: int) -> str:
    """Return the length of a period."""
    hours = milliseconds // 3_600_000
    if hours % 24:
        return "hour" if hours == 1 else f"{hours} hours"
    return "day" if hours == 24 else f"{hours // 24} days"
