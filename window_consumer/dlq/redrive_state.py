"""Which dead letters are resolved: the compacted topic ``<group>.dlq.state``.

Resolving a dead letter does not change or delete it. Instead it writes a record to this topic: the
key is the dead letter's position, ``topic/partition/offset``, and the value is JSON.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from attrs import define, field, frozen

from window_consumer.dlq.dead_letter import Position
from window_consumer.engine.retry.retry_topics import state_topic
from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message

REDRIVEN = "redriven"


@frozen
class Resolution:
    """How dead letters were resolved."""

    what: str
    """``redriven``; a later version may write other values."""
    at_ms: int
    """When, in milliseconds since 1970."""
    by: str
    """The consumer group that holds the progress of the redrive."""
    to: str
    """The topic that received the records."""
    topic_id: str | None
    """The id of the dead-letter topic, None if the cluster has no topic ids."""

    def as_bytes(self) -> bytes:
        """Return the value of the state topic's record."""
        named = {
            "what": self.what,
            "at": self.at_ms,
            "by": self.by,
            "to": self.to,
            "topic_id": self.topic_id,
        }
        return json.dumps(named, separators=(",", ":")).encode()

    def records(self, topic: str, resolved: Iterable[Position]) -> list[Copy]:
        """Return the records for the state topic that resolve these dead letters."""
        value = self.as_bytes()
        return [Copy(topic, None, run.key, value, []) for run in _runs(resolved)]


@frozen
class _Run:
    """Dead letters with consecutive offsets."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def key(self) -> bytes:
        offsets = self.first if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.topic}/{self.partition}/{offsets}".encode()


def _runs(positions: Iterable[Position]) -> Iterator[_Run]:
    """Join adjacent positions into runs."""
    first = following = None
    for position in sorted(positions):
        if position != following:
            if first is not None and following is not None:
                yield _Run(*first, following[2] - 1)
            first = position
        topic, partition, offset = position
        following = (topic, partition, offset + 1)
    if first is not None and following is not None:
        yield _Run(*first, following[2] - 1)


@define
class _Spans:
    """The resolutions of one partition: disjoint spans, in which the latest record wins."""

    _firsts: list[int] = field(factory=list)
    _lasts: list[int] = field(factory=list)
    _done: list[Resolution] = field(factory=list)

    def put(self, first: int, last: int, resolution: Resolution) -> None:
        """Set the resolution of these offsets, replacing earlier ones."""
        begin, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        spans = [(first, last, resolution)]
        if begin < end:
            before, after = self._firsts[begin], self._lasts[end - 1]
            if before < first:
                spans.insert(0, (before, first - 1, self._done[begin]))
            if last < after:
                spans.append((last + 1, after, self._done[end - 1]))
        self._firsts[begin:end] = [each for each, _, _ in spans]
        self._lasts[begin:end] = [each for _, each, _ in spans]
        self._done[begin:end] = [each for _, _, each in spans]

    def of(self, offset: int) -> Resolution | None:
        place = bisect_right(self._firsts, offset) - 1
        return self._done[place] if place >= 0 and offset <= self._lasts[place] else None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)


_NOTHING = _Spans()


@frozen
class Resolved:
    """The resolved dead letters of one dead-letter topic."""

    _by_partition: dict[int, _Spans] = field(factory=dict)

    def __contains__(self, position: Position | Message) -> bool:
        return self.of(position) is not None

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield partition, first and last offset of resolved runs; no offset occurs twice."""
        for partition, spans in self._by_partition.items():
            for first, last in spans:
                yield partition, first, last

    def of(self, letter: Position | Message) -> Resolution | None:
        """Return how a dead letter was resolved, None while it is open."""
        if isinstance(letter, Position):
            partition, offset = letter.partition, letter.offset
        else:
            partition, offset = letter.partition(), letter.offset()
        return self._by_partition.get(partition, _NOTHING).of(offset)


def read_resolved(messages: Iterable[Message], topic: str, topic_id: str | None) -> Resolved:
    """Return the resolved dead letters of one topic; ``messages`` are the state topic's records.

    ``topic_id`` is the current id of the dead-letter topic. Records about an earlier topic of the
    same name do not count, because its offsets started over. Unreadable records are skipped: then
    the dead letter counts as open.
    """
    said: dict[bytes, bytes] = {}  # ordered by the last record of each key
    prefix = f"{topic}/".encode()
    for message in messages:
        key, value = message.key(), message.value()
        if key is None or not key.startswith(prefix):
            continue
        said.pop(key, None)
        if value is not None:
            said[key] = value
    found: dict[int, _Spans] = {}
    known: dict[bytes, Resolution | None] = {}  # records of one batch have the same value
    for key, value in said.items():
        place = _place(key.removeprefix(prefix))
        if value not in known:
            known[value] = _resolution(value)
        resolution = known[value]
        if place is not None and resolution is not None and resolution.topic_id == topic_id:
            partition, first, last = place
            found.setdefault(partition, _Spans()).put(first, last, resolution)
    return Resolved(found)


def topics_of(messages: Iterable[Message]) -> set[str]:
    """Return the dead-letter topics that a state topic's records refer to."""
    keys = (message.key() or b"" for message in messages)
    return {key.split(b"/", 1)[0].decode("ascii", "replace") for key in keys if b"/" in key}


def _place(text: bytes) -> tuple[int, int, int] | None:
    """Return partition, first and last offset; None if the text is invalid."""
    partition, _, offsets = text.partition(b"/")
    first, dash, last = offsets.partition(b"-")
    last = last if dash else first
    if not (partition.isdigit() and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        return None
    return int(partition), int(first), int(last)


def _resolution(value: bytes) -> Resolution | None:
    try:
        said: Any = json.loads(value)
        topic_id = said["topic_id"]
        return Resolution(
            what=str(said["what"]),
            at_ms=int(said["at"]),
            by=str(said["by"]),
            to=str(said["to"]),
            topic_id=None if topic_id is None else str(topic_id),
        )
    except (ValueError, TypeError, KeyError):
        return None


ANSWER_S: Final = 5.0
"""A report omits the redrive state if Kafka is silent for this long."""

_SUFFIX: Final = state_topic("")

Run = tuple[str, int, int, int]
"""A dead-letter topic, a partition, the first offset and the last one."""


@frozen
class PutBack:
    """The known runs that were put back."""

    runs: tuple[Run, ...] = ()
    unknown: str | None = None
    """Why they are unknown; then ``runs`` is empty."""


def put_back(
    client: Mapping[str, Any], log: ClientLog, groups: Sequence[str], answer_s: float = ANSWER_S
) -> PutBack:
    """Read the redrive state of these groups, or of all if there are none.

    ``client`` are the user's Kafka properties. Raises nothing: a report works without the state.
    """
    try:
        cluster = Cluster(settings.admin_settings(client, "dlq"), log)
        cluster.wait_until_there(answer_s, lambda _reason, _waited_s: None)
        there = cluster.topic_names(answer_s)
        wanted = {state_topic(group) for group in groups}
        states = [
            name for name in there if name.endswith(_SUFFIX) and (not groups or name in wanted)
        ]
        if not states:
            return PutBack()
        with TopicReader(client, log, deadline_s=answer_s) as reader:
            return PutBack(
                tuple(chain.from_iterable(_put_back_runs(cluster, reader, each) for each in states))
            )
    except WindowConsumerError as error:
        return PutBack(unknown=str(error))


def _put_back_runs(cluster: Cluster, reader: TopicReader, state: str) -> Iterator[Run]:
    said = list(chain.from_iterable(reader.read(reader.spans(state))))
    found = cluster.topics(sorted(topics_of(said)))
    for name, topic in found.items():
        for partition, first, last in read_resolved(said, name, topic.topic_id).runs():
            yield name, partition, first, last
