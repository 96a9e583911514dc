"""Watches copies: when they are written, what they contain, when they are acknowledged."""

from __future__ import annotations

from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy, Delivery, Headers
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.log_history import KnownRecord, Member, Tenure
from window_consumer.simulator.watches.calls import CallWatch
from window_consumer.testing.events import DeadLettered
from window_consumer.testing.fakes.log import FakeLog, FakeMessage

MAX_OURS_BYTES = 8 * 1024
"""The maximum size of all our headers, names and values, over any number of hops."""

_PRODUCERS = names.KEPT_ON_FOREIGN_TOPICS - {names.ID, names.REDRIVES}
"""Our headers that producers set, at any length."""


def differences(
    first: FakeMessage, key: bytes | None, value: bytes | None, headers: Headers
) -> list[str]:
    """Return how a copy differs from its record of the source topic, over any number of hops.

    Empty if it is correct.
    """
    found = []
    ours = [name for name, _ in headers if name.startswith(names.PREFIX)]
    by_name = dict(headers)
    if key != first.key():
        found.append(f"key {key!r}")
    if value != first.value() and names.VALUE_REF not in by_name:
        found.append(f"value {value!r}")
    if _users(headers) != _users(first.headers() or ()):
        found.append(f"headers {headers}")
    if len(ours) != len(set(ours)):
        found.append(f"headers of ours that were appended: {ours}")
    size = sum(len(name) + len(value or b"") for name, value in headers if _is_written_by_us(name))
    if size > MAX_OURS_BYTES:
        found.append(f"{size} bytes of headers of ours")
    if len(by_name.get(names.ERROR_STACK) or b"") > names.MAX_ERROR_STACK_BYTES:
        found.append("an error stack that is too long")
    if len(by_name.get(names.ERROR_MESSAGE) or b"") > names.MAX_ERROR_MESSAGE_BYTES:
        found.append("an error message that is too long")
    kept = dict(first.headers() or ())
    found.extend(
        f"header {name} was not kept"
        for name in sorted(_PRODUCERS)
        if by_name.get(name) != kept.get(name)
    )
    return found


def _is_written_by_us(name: str) -> bool:
    return name.startswith(names.PREFIX) and name not in _PRODUCERS


def _users(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if not name.startswith(names.PREFIX)]


class CopyWatch:
    """Checks every copy that a member writes. Owner: one thread."""

    def __init__(self, calls: CallWatch):
        self._call_watch = calls
        self._history = calls.history
        self._acked: list[tuple[KnownRecord, Copy]] = []
        self.dead_letters: dict[FakeLog, dict[int, KnownRecord]] = {}
        """The record of each dead letter, by log and offset."""
        self.order: dict[tuple[TopicPartition, int], int] = {}
        """How many copies were written before each copy."""
        self._made: dict[int, tuple[Copy, TopicPartition, int]] = {}
        """Each copy's source by the copy's id, with the copy itself, which keeps the id valid."""
        self._record_of: dict[int, tuple[Tenure, KnownRecord]] = {}

    def made(self, copy: Copy, name: TopicPartition, message: Message) -> None:
        """Record that a member made a copy of this message."""
        self._made[id(copy)] = (copy, name, message.offset())

    def writing(self, member: Member, copy: Copy, on_delivery: Delivery) -> Delivery:
        """Check a copy that a member writes; return the callback for the broker's answer."""
        history = self._history
        _, name, offset = self._made[id(copy)]
        if history.trace is not None:
            history.record(f"{member} copies {name}@{offset} to {copy.topic}")
        tenure = history.tenure(member, name)
        record = tenure.delivered.get(offset) if tenure is not None else None
        if tenure is None or record is None:
            history.violate(f"{member} copies {name}@{offset}, which it was not given")
            return on_delivery
        if copy.topic == name.topic:
            self._record_of[id(copy)] = tenure, record
            self._check_unchanged(tenure, record, copy)
            return self._until_answered(tenure, record, copy, on_delivery)
        self._check_reason(tenure, record, copy)
        if dict(copy.headers).get(names.REASON) == b"RETRIES_EXHAUSTED":
            self._call_watch.outages.left(tenure, offset)
            self._call_watch.poison.left(tenure, offset)
        self._record_of[id(copy)] = tenure, record
        first = record.first.message
        found = differences(first, copy.key, copy.value, copy.headers)
        found += _replaced(record.message, copy)
        found += _forgotten(tenure, record, copy)
        found += self._misplaced(record, copy)
        for text in found:
            history.violate(f"the copy of {name}@{offset} is another record: {text}")
        return self._until_answered(tenure, record, copy, on_delivery)

    def _check_reason(self, tenure: Tenure, record: KnownRecord, copy: Copy) -> None:
        """Check whether a record may leave now."""
        history, name, offset = self._history, tenure.name, record.message.offset()
        reason = dict(copy.headers).get(names.REASON)
        if reason == b"CRASHED":
            if not (history.has_crashed(record) or _has_killed(tenure, offset)):
                history.violate(
                    f"{name}@{offset} leaves as crashed although the process ended on it only"
                    f" {record.named_ends} times, and that of its slot {tenure.deaths.get(offset)}"
                )
        elif reason == b"PARKED":
            if name.topic in history.retry_levels:
                history.violate(f"{name}@{offset} is parked although no rule asked for it")
        elif reason == b"FOLLOWS":
            if not self._call_watch.parking.may_follow(record, dict(copy.headers)):
                history.violate(f"{name}@{offset} follows a head that is not dead")
        elif offset not in tenure.leaving:
            history.violate(f"{name}@{offset} is copied although it may still be tried")

    def _check_unchanged(self, tenure: Tenure, record: KnownRecord, copy: Copy) -> None:
        """Check a copy that moves within its topic: of a stray, or of a rotated record."""
        history, message = self._history, record.message
        place = f"{tenure.name}@{message.offset()}"
        is_stray = history.is_stray(tenure.name, record)
        if history.plan.parks and not is_stray:
            self._call_watch.parking.rotated(tenure, record)
        elif not is_stray:
            history.violate(f"{place} moves within its topic although it lies where it belongs")
        if tenure.attempts.get(message.offset()):
            history.violate(f"{place} was called where it does not belong")
        moved = (copy.partition, copy.key, copy.value, tuple(copy.headers))
        number, headers = record.hop.origin.partition, tuple(message.headers() or ())
        if moved != (number, message.key(), message.value(), headers):
            history.violate(f"{place} moves within its topic as another record, or elsewhere")

    def written(self, name: TopicPartition, copy: Copy, message: FakeMessage) -> None:
        """Record a copy in its topic; in a level it is a record like any other."""
        history = self._history
        self.order[name, message.offset()] = len(self.order)
        if id(copy) not in self._record_of:
            return  # writing it broke a promise, which was recorded then
        _, record = self._record_of[id(copy)]
        if self._history.plan.is_transactional:
            self._acked.append((record, copy))
            if dict(copy.headers).get(names.REASON) == b"PARKED":
                self._call_watch.parking.parked(record)
        log = history.broker.log(*name)
        if name.topic in history.retry_levels:
            history.produced(log, message, poison=record.poison, copy_of=record)
        else:
            self.dead_letters.setdefault(log, {})[message.offset()] = record

    def record_of(self, copy: Copy) -> tuple[Tenure, int]:
        """Return the record of a copy that was written."""
        tenure, record = self._record_of[id(copy)]
        return tenure, record.message.offset()

    def _misplaced(self, record: KnownRecord, copy: Copy) -> list[str]:
        """Return an error if a copy does not keep its source's partition number."""
        number = record.hop.origin.partition
        exists = number < self._history.broker.topics.partitions(copy.topic)
        if not exists or copy.partition == number or self._history.plan.strays:
            return []
        return [f"it goes to partition {copy.partition} instead of {number}"]

    def _until_answered(
        self, tenure: Tenure, record: KnownRecord, copy: Copy, on_delivery: Delivery
    ) -> Delivery:
        history = self._history

        def answer(error: PublishFailedError | None) -> None:
            offset = record.message.offset()
            if history.trace is not None:
                history.record(f"copy of {tenure.name}@{offset}: {error or 'acked'}")
            if error is None:
                if not history.plan.is_transactional:
                    self._acked.append((record, copy))
                reason = dict(copy.headers).get(names.REASON)
                is_written = not history.plan.is_transactional  # else with its transaction
                if reason == b"PARKED" and tenure.current and is_written:
                    self._call_watch.parking.parked(record)
                if copy.topic not in history.retry_levels:
                    self._call_watch.parking.ended(record, is_dead=reason != b"EXPIRED")
                if tenure.current:
                    history.finished(tenure, offset)
            on_delivery(error)

        return answer

    def check_dead_letters(self) -> None:
        """Check that every acked copy is in its topic."""
        written: set[tuple[object, ...]] = set()
        for topic in sorted({copy.topic for _, copy in self._acked}):
            for log in self._history.broker.topics.by_name[topic].logs:
                for message in log.messages:
                    written.add(_print(message.key(), message.value(), message.headers() or ()))
        self._check_logs()
        for record, copy in self._acked:
            offset = record.message.offset()
            if _print(copy.key, copy.value, copy.headers) not in written:
                self._history.violate(f"the acked copy of {offset} is not in {copy.topic}")
            topic = self._history.topic_of(record.ledger)
            partition = record.ledger.log.name.partition
            self._history.events.append(DeadLettered(topic, partition, offset))

    def _check_logs(self) -> None:
        """Check that every copy in the ladder's topics is a record's."""
        history = self._history
        for log, letters in self.dead_letters.items():
            for message in log.messages:
                self._check(message, letters.get(message.offset()))
        for ledger in history.ledgers.values():
            if ledger.log.name.topic in history.retry_levels:
                for message in ledger.log.messages:
                    self._check(message, ledger.records.get(message.offset()))

    def _check(self, message: FakeMessage, record: KnownRecord | None) -> None:
        if record is None:
            self._history.violate(f"{message} is a copy of nothing")
            return
        first = record.first.message
        for text in differences(first, message.key(), message.value(), message.headers() or ()):
            self._history.violate(f"{message} is another record than {first}: {text}")


def _has_killed(tenure: Tenure, offset: int) -> bool:
    """Return whether a slot's process has died on a record as often as it may."""
    return tenure.deaths.get(offset, 0) >= tenure.member.rules.retry.crash_attempts


def _replaced(before: FakeMessage, copy: Copy) -> list[str]:
    """Return the headers of an earlier hop that were not replaced."""
    said = dict(before.headers() or ())
    by_name = dict(copy.headers)
    # A copy's copy may have equal values; we did not write a record that imitates one.
    ours = () if names.FORMAT in said else (names.ATTEMPTS, names.REASON)
    found = [
        f"header {name} was not replaced"
        for name in ours
        if name in said and by_name.get(name) == said[name]
    ]
    found.extend(
        f"header {name} was not kept"
        for name in (names.REDRIVES, names.REPLAY)
        if by_name.get(name) != said.get(name)
    )
    return found


def _forgotten(tenure: Tenure, record: KnownRecord, copy: Copy) -> list[str]:
    """Return the part of its record's history that a copy lacks."""
    found = []
    by_name = dict(copy.headers)
    offset = record.message.offset()
    calls = record.hop.attempts + tenure.attempts.get(offset, 0)
    if by_name.get(names.REASON) == b"CRASHED" and not _has_killed(tenure, offset):
        # Calls that ended the process; other calls in those processes are unknown.
        calls = int(by_name.get(names.ATTEMPTS) or 0)
        if not 0 < calls - record.hop.attempts <= record.named_ends:
            found.append(f"{calls} attempts, but {record.named_ends} ends of the process")
    if by_name.get(names.ATTEMPTS) != b"%d" % calls:
        found.append(f"{by_name.get(names.ATTEMPTS)!r} attempts instead of {calls}")
    if _origin(copy.headers) != (record.hop.origin, record.hop.offset):
        found.append(f"its origin is {_origin(copy.headers)}")
    before = record.hop.first_failure
    if before is not None and by_name.get(names.FIRST_FAILURE) != b"%d" % before:
        found.append("its first failure differs")
    return found


def _print(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[object, ...]:
    return key, value, tuple(headers)


def _origin(headers: Headers) -> tuple[TopicPartition, int]:
    by_name = {name: (value or b"").decode() for name, value in headers}
    partition = TopicPartition(
        by_name[names.ORIGINAL_TOPIC], int(by_name[names.ORIGINAL_PARTITION])
    )
    return partition, int(by_name[names.ORIGINAL_OFFSET])
