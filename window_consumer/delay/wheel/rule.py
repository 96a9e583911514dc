"""Which records wait in a wheel: those due within two hours whose second is not over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from window_consumer.delay.request import DelayRequest, Targets, delivered_headers, request_of
from window_consumer.delay.wheel.waiting_record import WaitingRecord
from window_consumer.delay.wheel.wheel import HORIZON_MS
from window_consumer.delay.wheel.wheels import Wheels
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import Finish, Release, Turn, TurnRule
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import NotCalled
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition


@frozen
class Admission:
    """Decides from the record alone whether it waits in a wheel, so that later owners agree."""

    targets: Targets
    max_ms: float
    """``delay.max``, in milliseconds."""

    def admit(self, role: RetryTopicLevel, message: Message) -> WaitingRecord | None:
        """Return a topic's record as a waiting record; None if it never waits in a wheel."""
        hop = role.hop_of(message)
        headers = message.headers() or ()
        try:
            request = request_of(dict(headers), hop.timestamp, self.targets)
        except NotCalled:
            return None
        return self._waiting(message, hop, request)

    def admit_again(self, role: RetryTopicLevel, message: Message) -> WaitingRecord | None:
        """Return a record that an earlier owner took in, perhaps with other allowed targets.

        None if it never waited in a wheel.
        """
        hop = role.hop_of(message)
        try:
            request = request_of(dict(message.headers() or ()), hop.timestamp, None)
        except NotCalled:
            return None
        return self._waiting(message, hop, request)

    def _waiting(self, message: Message, hop: Hop, request: DelayRequest) -> WaitingRecord | None:
        since = hop.timestamp if hop.not_before is None else hop.not_before
        if since is not None and request.at_ms - since > min(HORIZON_MS, self.max_ms):
            return None
        kept = delivered_headers(message.headers() or ())
        headers = [*kept, (names.ID, hop.record_id)]
        return WaitingRecord(
            request.at_ms,
            message.offset(),
            Copy(request.target, None, message.key(), message.value(), headers),
            hop.origin.partition,
            hop.offset,
            hop.timestamp,
        )


class WheelRule(TurnRule):
    """Finishes records that from then on wait in a wheel. Owner: poll thread."""

    def __init__(self, admission: Admission, wheels: Wheels):
        self._admission = admission
        self._wheels = wheels
        self._asked: dict[TopicPartition, dict[int, WaitingRecord]] = {}
        """Records that will wait once they are finished, by offset."""

    def begin(self, release: Release) -> None:
        """See TurnRule."""
        del release
        self._asked.clear()
        self._wheels.clear()

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See TurnRule. ``DelayRule`` handles all other records."""
        del now
        wheel = self._wheels[partition.name].wheel
        asked = self._asked.setdefault(partition.name, {})
        found: dict[int, Turn] = {}
        for index, message in enumerate(messages):
            record = self._admission.admit(partition.retry_level, message)
            if record is not None and wheel.takes(record.due_ms, wall_ms):
                asked[record.offset] = record
                found[index] = _WAITS
        return found

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,  # noqa: ARG002 - see Observer
        now: float,  # noqa: ARG002 - see Observer
    ) -> None:
        """See Observer."""
        asked = self._asked.get(partition.name)
        if not asked:
            return
        wheel = self._wheels[partition.name].wheel
        for message in messages:
            record = asked.pop(message.offset(), None)
            if record is not None and outcome is Outcome.DELAYED:
                wheel.add(record)

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - see Observer
        """See Observer."""
        self._asked.pop(partition.name, None)
        self._wheels.end(partition.name)


_WAITS: Final = Finish(Outcome.DELAYED)
