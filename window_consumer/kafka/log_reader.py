"""Reading a topic on in the name of a group that nobody joins: what it commits is its progress.

Partitions are assigned by hand. So a process that was killed leaves no member behind whose session
somebody would have to wait for; two that run at once are found out by what is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from window_consumer.kafka import errors
from window_consumer.kafka.batches import has_errors, read_headers
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import (
    OauthToken,
    token_setting,
)
from window_consumer.kafka.topic_reader import (
    log_range,
    reader_settings,
)
from window_consumer.model.errors import (
    BrokerUnavailableError,
    RunError,
    WindowConsumerError,
)

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - local error codes begin with an underscore
_CHUNK = 1_000
"""Records that are asked for at once, and their bytes counted."""

_POLL_S = 0.1
_PATIENCE_S = 60.0
"""So long no broker may answer before a read gives up."""


class LogReader:
    """Reads one topic from where its group stands to the end that it had at the beginning.

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
        self._said: list[KafkaError] = []
        conf = reader_settings(user_settings, group)
        conf["error_cb"] = self._said.append
        conf.update(token_setting(conf, oauth_token))
        try:
            self._consumer = Consumer(conf, logger=log)
        except KafkaException as exception:
            raise RunError(f"{group}: the consumer cannot be made: {exception.args[0]}") from None
        self._topic = ""
        self._mark = ""
        self._ends: dict[int, int] = {}
        self._open: set[int] = set()
        self._passed: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def begin(self, topic: str, mark: str, *, restart: bool = False) -> dict[int, tuple[int, int]]:
        """Go to where the group stands; return each partition's next offset and its end now.

        Without progress that is the log's beginning, and likewise with ``restart``, where the
        progress was committed with another ``mark``, or where it lies outside of the log: then the
        topic was made anew, or its log was cut.
        """
        self._topic, self._mark = topic, mark
        try:
            logs = {each: self._log_range(each) for each in self._partitions(topic)}
            stands = self._standing(logs)
        except KafkaException as exception:
            raise self._in_words(exception, topic) from exception
        self._committed = {each: found for each, (found, _) in stands.items()}
        starts = {
            each: low if restart or not ours or not low <= found <= high else found
            for each, (low, high) in logs.items()
            for found, ours in [stands[each]]
        }
        self._ends = {each: high for each, (_, high) in logs.items()}
        self._open = {each for each, start in starts.items() if start < self._ends[each]}
        self._passed = {}
        self._consumer.assign([TopicPartition(topic, each, starts[each]) for each in self._open])
        return {each: (start, self._ends[each]) for each, start in starts.items()}

    def _partitions(self, topic: str) -> Sequence[int]:
        metadata = self._consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return sorted(metadata.partitions)

    def _log_range(self, partition: int) -> tuple[int, int]:
        name = TopicPartition(self._topic, partition)
        return log_range(self._consumer, name, _PATIENCE_S)

    def _standing(self, partitions: Mapping[int, Any]) -> dict[int, tuple[int, bool]]:
        """Return what is committed of each partition, and whether it has our mark."""
        wanted = [TopicPartition(self._topic, each) for each in partitions]
        found = {}
        for each in _patiently(lambda: self._consumer.committed(wanted, timeout=_PATIENCE_S)):
            if each.error is not None:
                raise KafkaException(each.error)
            ours = each.offset >= 0 and (each.metadata or "") == self._mark
            found[each.partition] = (max(each.offset, OFFSET_INVALID), ours)
        return found

    # ---- reading

    def read(self, max_records: int) -> list[Message]:
        """Return the next records, at most so many and about ``max_bytes``; none at the end.

        Raises BrokerUnavailableError where nothing comes for a minute although there is more.
        """
        found: list[Message] = []
        size = 0
        deadline = time.monotonic() + _PATIENCE_S
        while self._open and len(found) < max_records and size < self._max_bytes:
            wanted = min(_CHUNK, max_records - len(found))
            chunk = self._consumer.consume(wanted, 0) or self._consumer.consume(1, _POLL_S)
            if chunk:
                deadline = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > deadline:
                raise self._absent()
            positions = self._positions()
            # Each question to a record costs; nearly all chunks are plain, and need none.
            beyond = any(offset > self._ends[each] for each, offset in positions.items())
            records = self._records(chunk) if beyond or has_errors(chunk) else chunk
            for partition, offset in positions.items():
                if partition in self._open:
                    self._pass(partition, offset)
            read_headers(records)
            found += records
            size += sum(map(len, records))
        return found

    def _records(self, chunk: Sequence[Message]) -> list[Message]:
        """Return the records that are to be read, and heed what stands between them."""
        records = []
        for message in chunk:
            error = message.error()
            partition: int = message.partition()  # type: ignore[assignment] # all have one here
            if partition not in self._open:
                continue
            if error is not None:
                self._heed(error, partition, message.offset() or 0)
            elif message.offset() < self._ends[partition]:  # type: ignore[operator] # as above
                records.append(message)
        return records

    def _positions(self) -> dict[int, int]:
        """Return how far each open partition is read."""
        wanted = [TopicPartition(self._topic, each) for each in self._open]
        found = self._consumer.position(wanted)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def _pass(self, partition: int, offset: int) -> None:
        """Take note of how far a partition is read; behind its end it is read no further."""
        end = self._ends[partition]
        self._passed[partition] = min(offset, end)
        if offset >= end:
            self._close(partition)

    def _heed(self, error: KafkaError, partition: int, offset: int) -> None:
        if error.code() == _EOF:
            # Markers of transactions may stand behind the last record; behind them may be what is
            # not committed yet, which is not there for us.
            self._pass(partition, offset)
            self._close(partition)
        elif not errors.is_absence(error):
            raise errors.translate(error, f"{self._topic}[{partition}]")

    def _close(self, partition: int) -> None:
        self._open.discard(partition)
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def _absent(self) -> BrokerUnavailableError:
        why = errors.text_of(self._said[-1]) if self._said else "no error was told"
        return BrokerUnavailableError(
            f"{self._topic}: nothing came for {_PATIENCE_S:g} s, and its end is not reached ({why})"
        )

    # ---- progress

    def progress(self) -> list[TopicPartition]:
        """Return what is to be committed: all that was returned so far counts as finished."""
        return [
            TopicPartition(self._topic, each, offset, self._mark)
            for each, offset in self._passed.items()
            if offset != self._committed.get(each)
        ]

    def check_alone(self) -> None:
        """Raise RunError where somebody else has moved the group since our last commit."""
        try:
            found = self._standing(self._ends)
        except KafkaException as exception:
            raise self._in_words(exception, f"progress of {self.group}") from exception
        for partition, (offset, _) in found.items():
            if offset != self._committed[partition]:
                raise RunError(
                    f"{self.group}: the progress of {self._topic}[{partition}] was"
                    f" {self._committed[partition]}, and somebody else has made it {offset}: is the"
                    " same redrive running twice? stop one of them; its last batch may have been"
                    " written twice"
                )

    def commit(self) -> None:
        """Commit the progress and wait for the answer."""
        offsets = self.progress()
        if not offsets:
            return
        try:
            answers = _patiently(
                lambda: self._consumer.commit(offsets=offsets, asynchronous=False) or []
            )
        except KafkaException as exception:
            raise self._in_words(exception, f"progress of {self.group}") from exception
        for each in answers:
            if each.error is not None:
                raise errors.translate(each.error, f"progress of {self.group}")
        self.committed()

    def committed(self) -> None:
        """Take note that ``progress`` was committed, with a transaction for example."""
        self._committed.update(self._passed)

    def membership(self) -> Any:
        """Return what a transaction needs in order to commit for the group."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()

    @staticmethod
    def _in_words(exception: KafkaException, what: str) -> WindowConsumerError:
        error = errors.cause_of(exception)
        return RunError(f"{what}: {exception}") if error is None else errors.translate(error, what)


def _patiently(question: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Ask, again for a minute where the group's coordinator is not ready, and return the answer."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return question()
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None or not errors.is_absence(error) or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
