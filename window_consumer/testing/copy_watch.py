"""Watches dead-letter copies: when they are written, what they hold, when they are acked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy, Delivery, Headers
from window_consumer.model.record import TopicPartition
from window_consumer.testing.events import DeadLettered
from window_consumer.testing.fake_log import FakeMessage
from window_consumer.testing.history import History
from window_consumer.testing.ledger import KnownRecord, Tenure

if TYPE_CHECKING:
    from window_consumer.testing.member import SimulatedMember


class CopyWatch:
    """Checks every copy that a member writes. Owner: one thread."""

    def __init__(self, history: History):
        self._history = history
        self._acked: list[tuple[KnownRecord, Copy]] = []

    def writing(self, member: SimulatedMember, copy: Copy, on_delivery: Delivery) -> Delivery:
        """A member writes a copy; returns whom to tell of its fate."""
        history = self._history
        name, offset = _origin(copy.headers)
        if history.trace is not None:
            history.say(f"{member} copies {name}@{offset} to {copy.topic}")
        tenure = history.tenure(member, name)
        record = tenure.delivered.get(offset) if tenure is not None else None
        if tenure is None or record is None:
            history.violate(f"{member} copies {name}@{offset}, which it was not given")
            return on_delivery
        if offset not in tenure.leaving:
            history.violate(f"{name}@{offset} is copied although it may still be tried")
        for text in differences(record.message, copy):
            history.violate(f"the copy of {name}@{offset} is another record: {text}")
        return self._until_answered(tenure, record, copy, on_delivery)

    def _until_answered(
        self, tenure: Tenure, record: KnownRecord, copy: Copy, on_delivery: Delivery
    ) -> Delivery:
        history = self._history

        def answer(error: PublishFailedError | None) -> None:
            offset = record.message.offset()
            if history.trace is not None:
                history.say(f"copy of {tenure.name}@{offset}: {error or 'acked'}")
            if error is None:
                self._acked.append((record, copy))
                if tenure.current:
                    history.finished(tenure, offset)
            on_delivery(error)

        return answer

    def check_dead_letters(self) -> None:
        """Every copy that was acked is in its topic."""
        written: set[tuple[object, ...]] = set()
        for topic in sorted({copy.topic for _, copy in self._acked}):
            for log in self._history.broker.topics.by_name[topic].logs:
                for message in log.messages:
                    written.add(_print(message.key(), message.value(), message.headers() or ()))
        for record, copy in self._acked:
            offset = record.message.offset()
            if _print(copy.key, copy.value, copy.headers) not in written:
                self._history.violate(f"the acked copy of {offset} is not in {copy.topic}")
            topic = self._history.topic_of(record.ledger)
            partition = record.ledger.log.name.partition
            self._history.events.append(DeadLettered(topic, partition, offset))


def differences(message: FakeMessage, copy: Copy) -> list[str]:
    """Say where a copy differs from its record; empty where it is as it should be."""
    found = []
    ours = [name for name, _ in copy.headers if name.startswith(names.PREFIX)]
    by_name = dict(copy.headers)
    if copy.key != message.key():
        found.append(f"key {copy.key!r}")
    if copy.value != message.value() and names.VALUE_REF not in by_name:
        found.append(f"value {copy.value!r}")
    if _users(copy.headers) != _users(message.headers() or ()):
        found.append(f"headers {copy.headers}")
    if len(ours) != len(set(ours)):
        found.append(f"headers of ours that were appended: {ours}")
    before = dict(message.headers() or ())
    found.extend(
        f"header {name} was not replaced"
        for name in (names.ATTEMPTS, names.REASON)
        if name in before and by_name.get(name) == before[name]
    )
    found.extend(
        f"header {name} was not kept"
        for name in (names.TAGS, names.SENT_AT)
        if by_name.get(name) != before.get(name)
    )
    if len(by_name.get(names.ERROR_STACK) or b"") > names.MAX_ERROR_STACK_BYTES:
        found.append("an error stack that is too long")
    return found


def _users(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if not name.startswith(names.PREFIX)]


def _print(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[object, ...]:
    return key, value, tuple(headers)


def _origin(headers: Headers) -> tuple[TopicPartition, int]:
    by_name = {name: (value or b"").decode() for name, value in headers}
    partition = TopicPartition(
        by_name[names.ORIGINAL_TOPIC], int(by_name[names.ORIGINAL_PARTITION])
    )
    return partition, int(by_name[names.ORIGINAL_OFFSET])
