"""Schedules in the test kit: they tick when the test's clock has reached their times."""

from __future__ import annotations

from typing import Self

from attrs import frozen

from window_consumer.plan.app_plan import AppPlan
from window_consumer.schedules.config import SERVICE, topic_of
from window_consumer.schedules.schedule import Schedule, last_ticks
from window_consumer.schedules.sender import TickSender
from window_consumer.testing.stepped_worker import ResultTopics, SteppedSetting


@frozen
class SteppedSchedules:
    """Sends ticks beside the workers of one process. Owner: one thread."""

    _sender: TickSender
    _sink: ResultTopics
    _setting: SteppedSetting

    @classmethod
    def of(cls, plan: AppPlan, setting: SteppedSetting) -> Self | None:
        """Begin the schedules of a plan with a delay service; return None without any."""
        topic = topic_of(plan.config)
        if topic is None or all(each.name != SERVICE for each in plan.workers):
            return None
        if topic not in setting.broker.topics.by_name:
            setting.broker.create_topic(topic, 1)
        sink = ResultTopics(setting.broker, setting.clock)
        sender = TickSender(Schedule.all_of(plan.config), topic, sink)
        sender.begin(last_ticks(setting.broker.log(topic, 0).messages), setting.clock.wall_ms())
        return cls(sender, sink, setting)

    def step(self) -> bool:
        """Send due ticks; return whether there were any."""
        clock = self._setting.clock
        wrote = self._sender.advance(clock.now(), clock.wall_ms())
        is_answered = self._sink.unanswered > 0
        self._sink.serve()
        return wrote or is_answered

    def next_event_s(self, longest_s: float) -> float:
        """Return the seconds until a schedule ticks, at most ``longest_s``."""
        clock = self._setting.clock
        return self._sender.wait_s(clock.now(), clock.wall_ms(), longest_s)
