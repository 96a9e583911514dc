"""Reads a topic for a group that nobody joins; the group's commits are the progress.

So no session of a killed process has to time out. Two processes that run at once notice each other
by the commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Self

from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.topic_reader import Scan, Span, TopicReader, in_our_words
from window_consumer.model.errors import RunError
from window_consumer.model.record import Message, TopicPartition

_CHUNK: Final = 1_000
"""Records requested at once, after which their bytes are counted."""

_POLL_S: Final = 0.1
_DEADLINE_S: Final = 60.0
"""A read gives up if no broker answers for this long."""


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
        self._mark = ""
        self._committed: dict[TopicPartition, int] = {}

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
        self._mark = mark
        logs = self._reader.spans(topic)
        standing = self._standing(logs)
        self._committed = {name: found for name, (found, _) in standing.items()}
        spans = {}
        for name, log in logs.items():
            found, ours = standing[name]
            goes_on = not restart and ours and log.first <= found <= log.end
            spans[name] = Span(found if goes_on else log.first, log.end)
        self._scan = self._reader.scan(spans)
        return spans

    def _standing(
        self, names: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, bool]]:
        """Return each partition's commit, and whether it carries our mark."""
        wanted = [ClientPartition(*name) for name in names]
        consumer = self._reader.consumer
        found = {}
        for each in self._asked(lambda: consumer.committed(wanted, timeout=_DEADLINE_S)):
            ours = each.offset >= 0 and (each.metadata or "") == self._mark
            name = TopicPartition(each.topic, each.partition)
            found[name] = (max(each.offset, OFFSET_INVALID), ours)
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
            ClientPartition(*name, offset, self._mark)
            for name, offset in self._scan.positions.items()
            if offset != self._committed.get(name)
        ]

    def check_alone(self) -> None:
        """Raise RunError if another process has moved the group since our last commit."""
        for name, (offset, _) in self._standing(self._committed).items():
            if offset != self._committed[name]:
                raise RunError(
                    f"{self.group}: the progress of {name} was {self._committed[name]}, and"
                    f" somebody else has made it {offset}: is the same redrive running twice? stop"
                    " one of them; its last batch may have been written twice"
                )

    def commit(self) -> None:
        """Commit the progress and wait for the answer."""
        offsets = self.progress()
        if offsets:
            consumer = self._reader.consumer
            self._asked(lambda: consumer.commit(offsets=offsets, asynchronous=False) or [])
            self.committed()

    def committed(self) -> None:
        """Record that ``progress`` was committed, for example with a transaction."""
        self._committed.update(self._scan.positions)

    def membership(self) -> Any:
        """Return what a transaction needs to commit for the group."""
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
