"""The header names of retry and dead-letter copies: part of the wire contract.

A copy's ``wc-*`` headers are replaced at each hop, never appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import compress
from operator import itemgetter

PREFIX = "wc-"

ID = "wc-id"
ORIGINAL_TOPIC = "wc-orig-topic"
ORIGINAL_PARTITION = "wc-orig-partition"
ORIGINAL_OFFSET = "wc-orig-offset"
ORIGINAL_TIMESTAMP = "wc-orig-timestamp"
ORIGINAL_TOPIC_ID = "wc-orig-topic-id"
FORMAT = "wc-format"
GROUP = "wc-group"
HANDLER = "wc-handler"
APP_VERSION = "wc-app-version"
HOST = "wc-host"
REASON = "wc-reason"
ERROR_CLASS = "wc-error-class"
ERROR_MESSAGE = "wc-error-message"
ERROR_STACK = "wc-error-stack"
ERROR_FINGERPRINT = "wc-error-fingerprint"
ATTEMPTS = "wc-attempts"
FIRST_FAILURE = "wc-first-failure"
LAST_FAILURE = "wc-last-failure"
LEVEL = "wc-level"
NOT_BEFORE = "wc-not-before"
REDRIVES = "wc-redrives"
REPLAY = "wc-replay"
"""The run of ``window-consumer replay`` that copied the record into the ladder."""
FOLLOWS = "wc-follows"
"""The dead head of a record that follows it to the dead letters, as topic/partition/offset of its
first delivery."""
VALUE_REF = "wc-value-ref"
TAGS = "wc-tags"
SENT_AT = "wc-sent-at"
HEADERS_LOST = "wc-headers-lost"
DELIVER_TO = "wc-deliver-to"
"""The topic that the delay service delivers a record to."""
DELIVER_AT = "wc-deliver-at"
"""When the delay service delivers it, in milliseconds since 1970."""
DELAY = "wc-delay"
"""The same, in milliseconds after the record's timestamp."""

DELIVERY = frozenset({DELIVER_TO, DELIVER_AT, DELAY})
"""Senders' requests to the delay service; they stay in all copies."""

FORMAT_VERSION = b"1"

KEPT_ON_FOREIGN_TOPICS = frozenset({ID, TAGS, SENT_AT, REDRIVES})
"""The only ``wc-*`` headers that count on a record outside this group's own ladder."""

MAX_SKEW_S = 5.0
"""How far the clocks of writers and readers may disagree."""

MAX_ERROR_MESSAGE_BYTES = 1024
MAX_ERROR_STACK_BYTES = 4096


class Reason(StrEnum):
    """Why a record left its topic for a retry topic or for the dead letters."""

    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    FATAL = "FATAL"
    DECODE = "DECODE"
    """Its value could not be converted to the handler's type."""
    EXPIRED = "EXPIRED"
    """It was older than its time to live."""
    STALLED = "STALLED"
    """Its handler did not return in time."""
    CRASHED = "CRASHED"
    """The process ended on it repeatedly."""
    UNROUTABLE = "UNROUTABLE"
    """No handler's condition held."""
    PARKED = "PARKED"
    """It waits in the park topic behind an earlier record of its key."""
    FOLLOWS = "FOLLOWS"
    """It waited behind a record of its key that became a dead letter."""
    DELAYED = "DELAYED"
    """It is not due: it waits in a level of the delay service."""
    DELAY_UNREADABLE = "DELAY_UNREADABLE"
    """The headers with its delivery time are not numbers."""
    DELAY_TOO_LONG = "DELAY_TOO_LONG"
    """Its delivery time is later than the delay service allows."""
    TARGET_NOT_ALLOWED = "TARGET_NOT_ALLOWED"
    """The delay service may not deliver to its topic."""
    TARGET_IS_OURS = "TARGET_IS_OURS"
    """Its target is a retry, dead-letter or delay topic."""
    TARGET_REFUSED = "TARGET_REFUSED"
    """Its target was missing or refused it until the delay service gave up."""
    MANUAL = "MANUAL"
    """A user moved it."""


class LostHeaders(list[tuple[str, bytes | None]]):
    """A placeholder for headers that cannot be read, which copies carry as a mark.

    A header's name is UTF-8. If a producer wrote another encoding, the client returns none of the
    record's headers. No handler is called for such a record.
    """

    @classmethod
    def new(cls) -> LostHeaders:
        """Return the placeholder for one record."""
        return cls([(HEADERS_LOST, b"1")])


class KeptHeaders(dict[str, bool]):
    """Which headers a copy keeps: the user's own, and the named ones of ours.

    Look-ups by name are cached, because records of a topic have the same names.
    """

    def __init__(self, ours: frozenset[str]):
        super().__init__()
        self._ours = ours

    def __missing__(self, name: str) -> bool:
        keep = not name.startswith(PREFIX) or name in self._ours
        if len(self) < _NAMES_REMEMBERED:
            self[name] = keep
        return keep

    def of(self, pairs: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
        """Return the kept headers in their order, without a Python loop."""
        return list(compress(pairs, map(self.__getitem__, map(_NAME, pairs))))


_NAMES_REMEMBERED = 10_000
_NAME = itemgetter(0)


def each_once(pairs: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
    """Return headers without earlier duplicates of our own: the last one counts.

    All of the user's headers stay, in their order.
    """
    if len(dict(pairs)) == len(pairs):
        return pairs
    last = {name: index for index, (name, _) in enumerate(pairs)}
    return [
        pair
        for index, pair in enumerate(pairs)
        if not pair[0].startswith(PREFIX) or last[pair[0]] == index
    ]
