"""The results of handlers that produce records, and their delays and cancellations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from attrs import frozen

from window_consumer.model import headers as names
from window_consumer.model.durations import Delay, UnitError, seconds_of
from window_consumer.model.record_identity import MAX_ID_BYTES

_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIMESTAMP: Final = 2**63 - 1

_TOPIC: Final = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")

_NOT_RUN = (GeneratorType, AsyncGeneratorType, map, filter, zip, chain)
"""Types that do nothing until they are iterated."""

Bytes = bytes | str | None
Serializer = Callable[[Any], bytes | str | None]
Tags = str | Sequence[str]

TTL: Final = "ttl"
"""The header that ``ttl: {header: ttl, unit: s, format: text}`` reads."""

DELAY_TOPIC: Final = "wc.delay"
"""The topic of the delay service, unless its configuration names another one."""

CANCEL_SUFFIX: Final = ".cancel"
"""Ends the name of the topic of cancellations, which begins with that of the delay service."""

_CANCELLED: Final = b"cancelled"
"""Any value that is not empty; an empty one revokes the cancellation."""

HeaderPairs = Mapping[str, Bytes] | Iterable[tuple[str, Bytes]]


@frozen(init=False)
class Produce:
    """A record for a handler to return, which the framework then produces.

    The handler's record is finished when the brokers have acknowledged this one. ``key``, ``value``
    and the values of ``headers`` are bytes, text (encoded as UTF-8) or None; ``timestamp`` is in
    milliseconds since 1970, by default the time of sending. Without ``partition`` the key decides,
    as in Java's producers. With ``delay`` (``30m``, seconds, a timedelta) or ``deliver_at`` (with a
    time zone) it goes to the delay service, which delivers it to ``topic`` at that time, unless it
    is cancelled by its ``id``, the header ``wc-id``. ``delay_topic`` is its ``delay.topic``.

    The constructor raises TypeError or ValueError for anything else.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp: int | None

    def __init__(  # noqa: PLR0913 - what a record has
        self,
        topic: str,
        key: Bytes = None,
        value: Bytes = None,
        *,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the usual word
        delay_topic: str = DELAY_TOPIC,
    ):
        if not isinstance(topic, str):
            raise TypeError(f"Produce: topic must be a text, not {_kind(topic)}")
        _expect_topic(topic)
        where = f"Produce({topic!r})"
        if delay is not None or deliver_at is not None:
            headers = with_delivery(headers, topic, delay, deliver_at)
            topic = checked_delay_topic(delay_topic)
        if id is not None:
            headers = with_id(headers, id)
        self.__attrs_init__(
            topic,
            _bytes(key, where, "key"),
            _bytes(value, where, "value"),
            _pairs(headers, where) if headers else (),
            _number(partition, where, "partition", _MAX_PARTITION),
            _number(timestamp, where, "timestamp", _MAX_TIMESTAMP),
        )

    def __len__(self) -> int:
        """Return the bytes of its payload: key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name) + len(value or b"") for name, value in self.headers)

    def __bool__(self) -> bool:
        """Return True, because even a tombstone without a key is a record."""
        return True


def checked_delay_topic(delay_topic: str) -> str:
    """Return the topic of a delay service; raise TypeError or ValueError if it cannot be one."""
    if not isinstance(delay_topic, str):
        raise TypeError(f"delay_topic must be a text, not {_kind(delay_topic)}")
    _expect_topic(delay_topic)
    return delay_topic


def with_wishes(headers: HeaderPairs, ttl_s: float | None, tags: Tags) -> HeaderPairs:
    """Return headers with requests to consumers added; a given header takes precedence."""
    if ttl_s is None and not tags:
        return headers
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    given = {name for name, _ in pairs}
    if ttl_s is not None and TTL not in given:
        pairs.append((TTL, f"{ttl_s:.3f}".rstrip("0").rstrip(".")))
    if tags and names.TAGS not in given:
        pairs.append((names.TAGS, tags if isinstance(tags, str) else ",".join(tags)))
    return pairs


def with_id(headers: HeaderPairs, record_id: str) -> HeaderPairs:
    """Return headers with this ``wc-id`` instead of a given one; raises like ``checked_id``."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    return [*(pair for pair in pairs if pair[0] != names.ID), (names.ID, checked_id(record_id))]


def with_delivery(
    headers: HeaderPairs, topic: str, delay: Delay | None, deliver_at: datetime | None
) -> HeaderPairs:
    """Return headers that ask the delay service to deliver a record to ``topic``.

    Raises ValueError for both times, for an invalid delay, and for a time without a time zone.
    """
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    pairs = [pair for pair in pairs if pair[0] not in names.DELIVERY]
    pairs.append((names.DELIVER_TO, topic))
    if deliver_at is not None:
        if delay is not None:
            raise ValueError("delay and deliver_at are mutually exclusive")
        pairs.append((names.DELIVER_AT, str(milliseconds(deliver_at))))
    elif delay is not None:
        try:
            pairs.append((names.DELAY, str(round(seconds_of(delay) * 1000))))
        except UnitError as error:
            raise ValueError(f"delay {delay!r} {error}; write 30m or 1.5s") from None
    return pairs


def milliseconds(deliver_at: datetime) -> int:
    """Return ms since 1970, rounded up, because a delivery must not be early; past times are 0.

    Raises ValueError without a time zone.
    """
    if deliver_at.tzinfo is None:
        raise ValueError("deliver_at needs a time zone")
    return max(0, -((_EPOCH - deliver_at) // timedelta(milliseconds=1)))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def cancellation(
    record_id: str, deliver_at: datetime | None = None, *, topic: str = DELAY_TOPIC
) -> Produce:
    """Return the record that cancels the delayed record with this ``wc-id``.

    ``deliver_at`` is when that one is due, so that the cancellation can be forgotten after it.
    ``topic`` is that of the delay service. Raises ValueError for an id that no record has, and for
    a time without a time zone.
    """
    key = checked_id(record_id)
    headers = {}
    if deliver_at is not None:
        headers[names.DELIVER_AT] = str(milliseconds(deliver_at))
    return Produce(topic + CANCEL_SUFFIX, key, _CANCELLED, headers=headers)


def checked_id(record_id: str) -> bytes:
    """Return an id as in its header; raises ValueError for an empty or too long one."""
    if not isinstance(record_id, str):
        raise TypeError(f"a record's id is a text, not {type(record_id).__name__}")
    found = record_id.encode()
    if not found:
        raise ValueError("the id of a record must not be empty")
    if len(found) > MAX_ID_BYTES:
        raise ValueError(f"the id of a record has at most {MAX_ID_BYTES} bytes, not {len(found)}")
    if b"\x00" in found:
        raise ValueError("the id of a record must not contain a NUL")
    return found


def results_of(returned: object) -> tuple[Produce, ...]:
    """Return the records to produce in a handler's return value: one, or those of a list or tuple.

    Other return values are ignored: ``lambda record: database.insert(record)`` is a handler. Raises
    TypeError for obvious mistakes: a list with a Produce and something else, records in a set, a
    dict or a list of lists, and generators, coroutines and the like, which have not run.
    """
    if isinstance(returned, Produce):
        return (returned,)
    if isinstance(returned, list | tuple):
        others = [each for each in returned if not isinstance(each, Produce)]
        if others and len(others) < len(returned):
            raise TypeError(
                f"the handler returned a {type(returned).__name__} with {_kind(others[0])} beside"
                " records to produce: nothing was produced; return Produce objects alone"
            )
        if others and isinstance(others[0], list | tuple):
            _expect_no_records(others[0], f"a {_kind(others[0])} within a {_kind(returned)}")
        return () if others else tuple(returned)
    if isinstance(returned, dict | set | frozenset):
        within = returned.values() if isinstance(returned, dict) else returned
        _expect_no_records(within, f"a {_kind(returned)}")
    if isinstance(returned, _NOT_RUN):
        raise TypeError(
            f"the handler returned a {_kind(returned)}, which has not run; return list(...) of it"
        )
    if isinstance(returned, CoroutineType):
        returned.close()  # or Python warns that it was never awaited
        raise TypeError(
            "the handler returned a coroutine, which has not run; make the handler an"
            " `async def` that awaits it"
        )
    return ()


def _expect_no_records(within: Iterable[object], what: str) -> None:
    """Raise TypeError if the first item is a record, which would not be produced."""
    if isinstance(next(iter(within), None), Produce):
        raise TypeError(
            f"the handler returned records to produce in {what}: nothing was produced; return one,"
            " or a list of them"
        )


@lru_cache(maxsize=1_000)
def _expect_topic(topic: str) -> None:
    if not topic:
        raise ValueError("Produce: topic is empty")
    if not _TOPIC.fullmatch(topic):
        raise ValueError(
            f"Produce: {topic!r:.300} is not a valid topic name: use 1 to 249 letters, digits, '.',"
            " '_' and '-'"
        )


def _bytes(given: object, where: str, what: str) -> bytes | None:
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(
        f"{where}: {what} must be bytes, text or None, not {_kind(given)}; encode it first, for"
        " example with json.dumps"
    )


def _pairs(given: HeaderPairs, where: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs: Iterable[object] = given.items() if isinstance(given, Mapping) else given
    found: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{where}: headers must be a mapping, or pairs of name and value")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"{where}: a header's name must be a text, not {_kind(name)}")
        found.append((name, _bytes(value, where, f"header {name!r}")))
    return tuple(found)


def _number(given: object, where: str, what: str, most: int) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{where}: {what} must be an integer or None, not {_kind(given)}")
    if given < 0:
        raise ValueError(f"{where}: {what} must not be negative: {given}")
    if given > most:
        raise ValueError(f"{where}: {what} must be at most {most}: {given}")
    return given


def _kind(given: object) -> str:
    # Only its type: the content may be confidential.
    return type(given).__name__
