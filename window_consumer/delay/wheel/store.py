"""The wheels of a running delay service, as parts of its worker."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from window_consumer.delay.cancel_layer import CancelCheck
from window_consumer.delay.config import DelayConfig
from window_consumer.delay.copies import LevelCopies
from window_consumer.delay.request import Targets
from window_consumer.delay.waiting import Levels
from window_consumer.delay.wheel.guarantee import WheelGuarantee
from window_consumer.delay.wheel.preparation import GroupWheelReader, WheelPreparation
from window_consumer.delay.wheel.rule import Admission, WheelRule
from window_consumer.delay.wheel.waiting_record import WaitingRecord
from window_consumer.delay.wheel.wheels import DueSending, Wheels
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.protocols import Clock, Copy, Sink
from window_consumer.model.record import TopicPartition
from window_consumer.plan.topics.prepared_worker import PreparedWorker


class WheelStore:
    """The parts of a worker whose records wait in wheels."""

    def __init__(
        self,
        section: DelayConfig,
        targets: Targets,
        worker: PreparedWorker,
        directory: Path,
        check: CancelCheck,
        oauth_token: OauthToken | None,
    ):
        self._targets = targets
        self._check = check
        self._source = section.topic
        self._copies = LevelCopies(
            section.topic,
            section.worker.group,
            lambda source, level: worker.ladders[source].target(level),
        )
        self._shortest = Levels.of(section).each[0]
        self._wheels = Wheels()
        admission = Admission(targets, section.max * 1000)
        self.rule = WheelRule(admission, self._wheels)
        self.preparation = WheelPreparation(
            GroupWheelReader(worker, oauth_token),
            directory,
            self._wheels,
            admission,
            lambda topic: worker.retry_levels.get(topic) or RetryTopicLevel(topic),
        )

    @property
    def guarantee(self) -> MakeGuarantee:
        """Makes the guarantee of the worker's Engine."""
        return partial(WheelGuarantee, wheels=self._wheels, open_empty=self.preparation.open_empty)

    def send_through(self, sink: Sink, clock: Clock) -> None:
        """Send due records through this sink."""
        self._wheels.sending = DueSending(
            sink, clock, self._detour, self._targets.allows, self._check
        )

    def _detour(self, record: WaitingRecord, wall_ms: float) -> Copy:
        """Return a copy for the shortest level, from where the worker delivers as usual.

        So the worker handles targets that refuse records or are no longer allowed.
        """
        copy = record.copy
        headers = [*copy.headers, (names.DELIVER_TO, copy.topic.encode())]
        origin = TopicPartition(self._source, record.first_partition)
        hop = Hop(record.record_id, origin, record.first_offset, record.timestamp)
        contents = copy.key, copy.value, headers
        return self._copies.copy(contents, hop, record.due_ms, self._shortest, wall_ms)
