"""Cancelling in the test kit: the topic of cancellations is read at each delivery."""

from __future__ import annotations

from attrs import define, field

from window_consumer.delay.cancel_layer import CancelCheck, CancelLayer
from window_consumer.delay.cancellations import Cancellations
from window_consumer.delay.config import WORKER, DelayConfig
from window_consumer.delay.request import Targets
from window_consumer.model.protocols import Clock
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.calls.layer import CallLayer
from window_consumer.testing.fakes.broker import FakeBroker


@define
class CancelTopicInMemory:
    """Reads the topic of cancellations. Owner: one thread."""

    topic: str
    cancellations: Cancellations
    broker: FakeBroker
    clock: Clock
    _positions: dict[int, int] = field(init=False, factory=dict)

    def age_s(self) -> float:
        """Read to the end; return 0."""
        now_s = self.clock.wall_ms() / 1000
        for log in self.broker.topics.by_name[self.topic].logs:
            begin = self._positions.get(log.name.partition, 0)
            for message in log.messages:
                if message.offset() >= begin:
                    self.cancellations.take(message, now_s)
            self._positions[log.name.partition] = log.end
        self.cancellations.remove_past(now_s)
        return 0.0


def cancel_layers(plan: AppPlan, worker: str, broker: FakeBroker, clock: Clock) -> list[CallLayer]:
    """Return the object that stops cancelled records, for a worker that delivers records."""
    if worker != WORKER:
        return []
    section = plan.config.section(DelayConfig)
    cancellations = Cancellations(section.max)
    topic = CancelTopicInMemory(section.cancel_topic, cancellations, broker, clock)
    return [CancelLayer(CancelCheck(cancellations, topic.age_s), Targets.of(plan.config))]
