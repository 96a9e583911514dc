"""Reads a topic for a group that nobody joins; the group's commits are the progress.

So no session of a killed process must time out. Concurrent processes detect each other by the
commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Self

from attrs import frozen
from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.topic_reader import Scan, TopicReader, in_our_words
from window_consumer.model.errors import RunError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition

_CHUNK: Final = 1_000
"""Records requested at once, after which their bytes are counted."""

_POLL_S: Final = 0.1
_DEADLINE_S: Final = 60.0
"""A read gives up if no broker answers for this long."""


@frozen
class CommittedMark:
    """The group's commit for one partition."""

    offset: int
    """Negative without a commit."""
    mark: str | None
    """Its metadata; None without a commit."""

    def __str__(self) -> str:
        return "none" if self.mark is None else str(self.offset)


class GroupProgress:
    """Reads one topic from the group's committed offsets to the end that it had at the beginning.

    Only committed transactions count. Owner: one thread. All errors are WindowConsumerErrors.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        group: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        max_bytes: int = 16 * 1024**2,
    ):
        self.group = group
        self._max_bytes = max_bytes
        self._reader = TopicReader(
            user_settings, log, group=group, oauth_token=oauth_token, deadline_s=_DEADLINE_S
        )
        self._scan: Scan
        self._marks: Mapping[TopicPartition, str] = {}
        self._committed: dict[TopicPartition, CommittedMark] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def begin(self, topic: str, mark: str, *, restart: bool = False) -> dict[TopicPartition, Span]:
        """Go to the group's progress; return what remains to be read of each partition.

        A partition starts at its log's beginning without progress, with ``restart``, if the
        progress was committed with another ``mark``, and if it lies outside the log: the topic was
        recreated, or its log was cut.
        """
        logs = self._reader.spans(topic)
        standing = self.standing(logs)
        spans = {}
        for name, log in logs.items():
            found = standing[name]
            goes_on = not restart and found.mark == mark and log.first <= found.offset <= log.end
            spans[name] = Span(found.offset if goes_on else log.first, log.end)
        self.start(spans, dict.fromkeys(spans, mark))
        return spans

    def standing(self, names: Collection[TopicPartition]) -> dict[TopicPartition, CommittedMark]:
        """Return the group's commits, which ``check_alone`` compares with later ones."""
        self._committed = self._standing(names)
        return dict(self._committed)

    def expect(self, committed: Mapping[TopicPartition, CommittedMark]) -> None:
        """Let ``check_alone`` compare with these commits, which another reader found."""
        self._committed = dict(committed)

    def start(
        self,
        spans: Mapping[TopicPartition, Span],
        marks: Mapping[TopicPartition, str],
        *,
        awaits_transactions: bool = False,
    ) -> None:
        """Read these spans from now on, see ``TopicReader.scan``; commits carry their marks."""
        self._marks = marks
        self._scan = self._reader.scan(spans, awaits_transactions=awaits_transactions)

    def claim(
        self, spans: Mapping[TopicPartition, Span], marks: Mapping[TopicPartition, str]
    ) -> None:
        """Commit the beginnings of the spans, with their marks, before anything is read.

        Raises RunError if another process has moved the group, see ``expect`` and ``standing``.
        """
        self.check_alone()
        self._commit(
            [ClientPartition(*name, span.first, marks[name]) for name, span in spans.items()]
        )
        for name, span in spans.items():
            self._committed[name] = CommittedMark(span.first, marks[name])

    def _standing(self, names: Collection[TopicPartition]) -> dict[TopicPartition, CommittedMark]:
        wanted = [ClientPartition(*name) for name in names]
        consumer = self._reader.consumer
        found = {}
        for each in self._asked(lambda: consumer.committed(wanted, timeout=_DEADLINE_S)):
            name = TopicPartition(each.topic, each.partition)
            mark = (each.metadata or "") if each.offset >= 0 else None
            found[name] = CommittedMark(max(each.offset, OFFSET_INVALID), mark)
        return found

    def read(self, max_records: int) -> list[Message]:
        """Return the next records, bounded by ``max_records`` and ``max_bytes``; none at the end.

        The bound on bytes is approximate. Raises BrokerUnavailableError if nothing arrives for a
        minute although more records exist.
        """
        found: list[Message] = []
        size = 0
        while len(found) < max_records and size < self._max_bytes:
            records = self._scan.batch(min(_CHUNK, max_records - len(found)))
            if not records:
                break
            found += records
            size += sum(map(len, records))
        return found

    def progress(self) -> list[ClientPartition]:
        """Return the offsets to commit: everything returned so far counts as finished."""
        return [
            ClientPartition(*name, offset, self._marks[name])
            for name, offset in self._scan.positions.items()
            if self._is_new(name, offset)
        ]

    def _is_new(self, name: TopicPartition, offset: int) -> bool:
        committed = self._committed.get(name)
        return committed is None or committed.offset != offset

    def check_alone(self) -> None:
        """Raise RunError if another process has moved the group since our last commit.

        This includes a process whose own run has returned the group to the same offset.
        """
        for name, found in self._standing(self._committed).items():
            if found != self._committed[name]:
                raise RunError(
                    f"{self.group}: the progress of {name} was {self._committed[name]}, but"
                    f" somebody else changed it to {found}: is the same command running twice?"
                    " stop one of them; its last batch may have been written twice"
                )

    def commit(self) -> None:
        """Commit the progress and wait for the answer."""
        offsets = self.progress()
        if offsets:
            self._commit(offsets)
            self.committed()

    def _commit(self, offsets: list[ClientPartition]) -> None:
        consumer = self._reader.consumer
        self._asked(lambda: consumer.commit(offsets=offsets, asynchronous=False) or [])

    def committed(self) -> None:
        """Record that ``progress`` was committed, for example with a transaction."""
        for name, offset in self._scan.positions.items():
            if self._is_new(name, offset):
                self._committed[name] = CommittedMark(offset, self._marks[name])

    def membership(self) -> Any:
        """Return the group's data for commits in a transaction."""
        return self._reader.consumer.consumer_group_metadata()

    def _asked(self, question: Callable[[], list[ClientPartition]]) -> list[ClientPartition]:
        """Ask the group's coordinator; retry for a minute while it is not ready."""
        deadline = time.monotonic() + _DEADLINE_S
        with in_our_words(f"progress of {self.group}"):
            while True:
                try:
                    answers = question()
                except KafkaException as exception:
                    error = errors.cause_of(exception)
                    passing = error is not None and errors.is_absence(error)
                    if not passing or time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_S)
                else:
                    for each in answers:
                        if each.error is not None:
                            raise KafkaException(each.error)
                    return answers
