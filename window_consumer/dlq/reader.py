"""Reads dead-letter topics and prepares dead letters for display."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Self

import attrs
from attrs import evolve, field, frozen

from window_consumer.config import MaskRules, WorkerConfig
from window_consumer.dlq.conditions import holds
from window_consumer.dlq.dead_letter import DeadLetter, Position, read_dead_letter
from window_consumer.dlq.redrive_state import Resolved, read_resolved
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.engine.retry.retry_topics import state_topic
from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import OAuthTokens
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.conditions.expressions import Expression
from window_consumer.model.errors import (
    MissingTopicError,
    NotPermittedError,
    RunError,
    UsageError,
    WindowConsumerError,
)
from window_consumer.model.field_mask import FieldMask
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, TopicPartition
from window_consumer.model.record_contents import content_of, header_text
from window_consumer.plan.clients import check_tokens
from window_consumer.plan.feature import DecodedValue, DecodeValue
from window_consumer.plan.start_timeout import LOGGER, StartTimeout

_PLACE = r"([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})/([0-9]{1,18})"
_POSITION = re.compile(_PLACE)
_REFERENCE = re.compile(_PLACE + " sha256:([0-9a-f]{64})")


@frozen(eq=False)
class DeadLetterTopic:
    """A dead-letter topic and the means to read it."""

    name: str
    worker: str | None
    """The worker whose records it holds; None if no worker writes the topic."""
    source: str | None
    """The topic that the records come from."""
    state: str | None
    """The topic with the redrive state; None if the worker's group has none."""
    reader: TopicReader = field(repr=False)
    cluster: Cluster = field(repr=False)
    decode: DecodeValue | None = field(default=None, repr=False)
    """Decodes values of the source for people; None if they are plain."""

    def letters(self, spans: Mapping[TopicPartition, Span] | None = None) -> Iterator[DeadLetter]:
        """Yield its dead letters up to the current end, in order within each partition."""
        wanted = self.reader.spans(self.name) if spans is None else spans
        for records in self.reader.read(wanted):
            yield from map(read_dead_letter, records)

    def resolved(self) -> Resolved:
        """Return its resolved dead letters; empty if no redrive state is kept.

        Raises NotPermittedError if the state topic may not be read.
        """
        if self.state is None:
            return Resolved()
        try:
            spans = self.reader.spans(self.state)
        except MissingTopicError:
            return Resolved()
        topic_id = self.cluster.topics([self.name])[self.name].topic_id
        records = chain.from_iterable(self.reader.read(spans))
        return read_resolved(records, self.name, topic_id)

    def resolved_if_known(self) -> tuple[Resolved, str | None]:
        """Return the same, and the reason if it is empty because the state topic may not be read.

        Permission to read dead letters does not imply permission to read the redrive state.
        """
        try:
            return self.resolved(), None
        except NotPermittedError as error:
            return Resolved(), str(error)


class DeadLetterTopics:
    """The selected topics, with open connections. A context manager. Owner: one thread.

    Entering it connects to the cluster. It raises the errors of a start if the cluster does not
    answer, and MissingTopicError for a missing topic.
    """

    def __init__(self, source: DeadLetterSource, *, timeout_s: float):
        self._source = source
        self._timeout_s = timeout_s
        self._readers: list[TopicReader] = []
        self.topics: list[DeadLetterTopic] = []
        self.others: set[str] = set()
        """Further topics of the clusters, which may hold dead letters of other frameworks."""

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _open(self) -> None:
        source = self._source
        log = ClientLog(LOGGER.getChild("client"), source.mask)
        token = (
            None
            if source.oauth_token is None
            else OAuthTokens(source.oauth_token, log, source.mask)
        )
        start_timeout = StartTimeout(self._timeout_s)
        for place in source.places:
            where = "--bootstrap" if place.worker is None else f"workers.{place.worker.name}"
            check_tokens(place.admin, token, where)
            start_timeout.wait_for_token("dlq", place.admin, token)
            cluster = Cluster(settings.admin_settings(place.admin, "dlq"), log, token)
            cluster.wait_until_there(start_timeout.left_s(), start_timeout.waiting("dlq", cluster))
            reader = TopicReader(place.consumer, log, oauth_token=token)
            self._readers.append(reader)
            there = {(topic.name, topic.cluster.bootstrap) for topic in self.topics}
            names = cluster.topic_names()
            self.others |= source.others_at(names)
            for name, origin in source.topics_at(place, names):
                if (name, cluster.bootstrap) not in there:
                    worker = None if origin is None else place.worker
                    decode = None if worker is None else source.value_decoder(worker)
                    self.topics.append(_topic(name, worker, origin, reader, cluster, decode))
        self._check_all_found()

    def _check_all_found(self) -> None:
        found = {name for topic in self.topics for name in (topic.name, topic.source)}
        missing = [name for name in self._source.topics if name not in found]
        if missing:
            addresses = {place.consumer.get("bootstrap.servers") for place in self._source.places}
            raise MissingTopicError(
                f"--topic {missing[0]}: there is no such topic on"
                f" {', '.join(map(str, addresses))}, and no dead-letter topic for it"
            )

    # ---- dead letters

    def letters(self, where: Expression | None, now_ms: int) -> Iterator[DeadLetter]:
        """Yield all dead letters that fulfil a condition, topic by topic.

        ``now_ms``, in milliseconds since 1970, is the time from which ages count back.
        """
        for topic in self.topics:
            yield from (each for each in topic.letters() if holds(where, each, now_ms))

    def find(self, name: str) -> list[DeadLetter]:
        """Return the dead letters of a name, the latest last.

        A name is ``topic/partition/offset`` of a dead letter, or the id of a record, which may have
        several dead letters. Raises UsageError if there is none.
        """
        found = self._at(name)
        if found is not None:
            return [found]
        letters = [letter for letter in self.letters(None, 0) if letter.id == name]
        if not letters:
            looked = ", ".join(topic.name for topic in self.topics) or "no topic: there is none yet"
            raise UsageError(
                f"there is no dead letter {name}: it is neither the id of a record (wc-id) nor the"
                f" topic/partition/offset of a dead letter; looked into {looked}"
            )
        return sorted(letters, key=lambda letter: letter.failed_at or 0)

    def view(
        self, letter: DeadLetter, rules: MaskRules, most_json: int | None = None
    ) -> dict[str, Any]:
        """Return a dead letter as plain values, with its resolution; see ``view_of``."""
        topic, origin = self._topic_of(letter), self.origin_of(letter)
        mask = rules.of([letter.position.topic, origin])
        decode = topic.decode and partial(topic.decode, origin or topic.name, letter.own_headers)
        resolved, unknown = topic.resolved_if_known()
        done = resolved.of(letter.position)
        return {
            **view_of(letter, mask, most_json, decode),
            "resolved": None if done is None else attrs.asdict(done),
            "resolved_unknown": unknown,
            "pointer_to": str(letter.original) if letter.may_be_pointer else None,
        }

    def origin_of(self, letter: DeadLetter) -> str | None:
        """Return the topic that a record came from, None if unknown."""
        return letter.original_topic or self._topic_of(letter).source

    def whole(self, letter: DeadLetter) -> DeadLetter:
        """Return a dead letter with its value, fetched if the dead letter only references it.

        A share group's dead letter may only hold the record's position; then the whole record is
        fetched. Raises RunError if the record is gone or has been replaced.
        """
        if letter.may_be_pointer and letter.original is not None:
            return self._fetched(letter, letter.original)
        if letter.value_ref is None:
            return letter
        match = _REFERENCE.fullmatch(letter.value_ref)
        reader = self._reader_of(letter)
        if match is not None:
            name = TopicPartition(match[1], int(match[2]))
            message = reader.at(name, int(match[3]))
            value = None if message is None else message.value()
            if value is not None and sha256(value).hexdigest() == match[4]:
                return evolve(letter, value=value)
        raise RunError(
            f"{letter.position}: its value was too large for a copy and is no longer at"
            f" {letter.value_ref}"
        )

    def _fetched(self, letter: DeadLetter, original: Position) -> DeadLetter:
        place = TopicPartition(original.topic, original.partition)
        message = self._reader_of(letter).at(place, original.offset)
        if message is None:
            raise RunError(
                f"{letter.position}: the share group did not copy its record"
                f" (errors.deadletterqueue.copy.record.enable), which is no longer at {original}"
            )
        kind, milliseconds = message.timestamp()
        return evolve(
            letter,
            key=message.key(),
            value=message.value(),
            own_headers=message.headers() or [],
            original_timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds,
        )

    def _reader_of(self, letter: DeadLetter) -> TopicReader:
        return self._topic_of(letter).reader

    def _topic_of(self, letter: DeadLetter) -> DeadLetterTopic:
        return next(topic for topic in self.topics if topic.name == letter.position.topic)

    def _at(self, name: str) -> DeadLetter | None:
        match = _POSITION.fullmatch(name)
        if match is None:
            return None
        position = Position(match[1], int(match[2]), int(match[3]))
        for topic in self.topics:
            if topic.name == position.topic:
                place = TopicPartition(position.topic, position.partition)
                message = topic.reader.at(place, position.offset)
                return None if message is None else read_dead_letter(message)
        return None


def _topic(
    name: str,
    worker: WorkerConfig | None,
    origin: str | None,
    reader: TopicReader,
    cluster: Cluster,
    decode: DecodeValue | None,
) -> DeadLetterTopic:
    whose = None if worker is None else worker.name
    state = None if worker is None else state_topic(worker.group)
    return DeadLetterTopic(name, whose, origin, state, reader, cluster, decode)


_KEPT_APART = ("position", "written_by", "key", "value", "headers", "own_headers")

_MAY_QUOTE = frozenset({"id", "error_message", "error_stack", "header"})
"""Fields that may quote the record. They are omitted if so much is hidden that a search is useless.
"""


def view_of(
    letter: DeadLetter,
    mask: FieldMask,
    most_json: int | None = None,
    decode: Callable[[bytes], DecodedValue] | None = None,
) -> dict[str, Any]:
    """Return a dead letter as plain values.

    ``content_of`` formats key and value. Beside what ``decode`` returned stands ``decoded_from``;
    beside a value that it could not decode, ``undecoded`` says why.
    """
    value = _value_of(letter.value, mask, most_json, decode)
    key = content_of(letter.key, "key", mask, most_json)
    headers = [[name, mask.header(name, header_text(content))] for name, content in letter.headers]
    fields = attrs.asdict(
        letter, recurse=False, filter=lambda field, _: field.name not in _KEPT_APART
    )
    return {
        "dead_letter": str(letter.position),
        "written_by": letter.written_by.value,
        **{name: _without_hidden(name, content, mask) for name, content in fields.items()},
        "key": key,
        "value": value,
        "headers": [[name, _without_hidden("header", content, mask)] for name, content in headers],
    }


def _value_of(
    data: bytes | None,
    mask: FieldMask,
    most_json: int | None,
    decode: Callable[[bytes], DecodedValue] | None,
) -> dict[str, Any] | None:
    raw = content_of(data, "value", mask, most_json)
    if data is None or raw is None or decode is None:
        return raw
    if most_json is not None and len(data) > most_json:
        return raw
    try:
        decoded = decode(data)
    except WindowConsumerError as error:
        return {**raw, "undecoded": str(error)}
    shown = content_of(decoded.json, "value", mask, most_json)
    return {**(shown or {}), "bytes": len(data), "decoded_from": decoded.form}


def _without_hidden(name: str, content: Any, mask: FieldMask) -> Any:
    if not isinstance(content, str) or (mask.is_full and name not in _MAY_QUOTE):
        return content
    return mask.text(content)
