"""Schedules as a feature: their section, their topic, and the thread beside the delay worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Self

from attrs import frozen

from window_consumer.config import Config
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.observer import Observer
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.record import TopicPartition
from window_consumer.plan.feature import AclRule, AppStart, CheckFindings, Feature
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.plan.topics.state_topics import StateTopic
from window_consumer.runtime.clock import SystemClock
from window_consumer.schedules.config import NAME, SECTION, SERVICE, ScheduleConfig, topic_of
from window_consumer.schedules.metrics import METRICS
from window_consumer.schedules.ownership import ScheduleOwner
from window_consumer.schedules.pause_rule import UnsentTicksRule
from window_consumer.schedules.schedule import LastTick, Schedule, last_ticks, moment_of, text_of
from window_consumer.schedules.sender import ScheduleFigures, TickSender

_COMING: Final = 3
"""How many ticks are shown: enough to see the interval, and a weekday."""


class RunningSchedules(RunningFeature):
    """The schedules of an application whose delay service runs."""

    def __init__(self, start: AppStart, topic: StateTopic):
        self._plan = start.plan
        self._feature_sink = start.feature_sink
        self._topic = topic
        self._sender: TickSender | None = None
        self._owner: ScheduleOwner | None = None

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Run the sending thread. Raises like ``StateTopic.prepare``."""
        (worker,) = (each for each in prepared.workers if each.plan.name == SERVICE)
        source = worker.described[self._topic.source]
        self._topic.prepare(self._plan.loaded, worker.plan.config, worker.cluster, source)
        topic = self._topic.name

        def read() -> Mapping[str, LastTick]:
            properties, token = worker.plan.consumer, prepared.oauth_token
            with TopicReader(properties, worker.log, oauth_token=token) as reader:
                return last_ticks(reader.read_all(topic))

        sink = KafkaSink(worker.plan.producer, NAME, worker.log, prepared.oauth_token)
        clock = SystemClock()
        ticks = self._feature_sink(NAME, worker, sink, clock)
        schedules = Schedule.all_of(self._plan.config)
        sender = self._sender = TickSender(schedules, topic, sink, ticks)
        first = TopicPartition(self._topic.source, 0)
        owner = self._owner = ScheduleOwner(first, sender, sink, read, clock)
        owner.start()
        try:
            yield
        finally:
            owner.stop()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return the observer that tracks whether this process owns the schedules."""
        return self._owner if worker.plan.name == SERVICE else None

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return the rule that reports unsent ticks; it pauses nothing."""
        sender = self._sender
        if sender is None or worker.plan.name != SERVICE:
            return []
        return [UnsentTicksRule(sender.unsent)]

    def figures(self) -> ScheduleFigures | None:
        """Return the counts."""
        return None if self._sender is None else self._sender.figures()


@frozen
class ComingTicks:
    """The next ticks of a schedule, for ``check`` and ``delay status``."""

    name: str
    cron: str
    timezone: str
    to: str
    next: tuple[str, ...]
    """In UTC, ascending."""

    @classmethod
    def of(cls, schedule: Schedule, now_ms: float) -> Self:
        """Return those of a schedule."""
        config = schedule.config
        ticks = map(text_of, schedule.coming(moment_of(now_ms), _COMING))
        return cls(schedule.name, config.cron, config.timezone, config.to, tuple(ticks))

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        yield f"schedule {self.name} ({self.cron}, {self.timezone}), to {self.to}"
        yield f"  next ticks at {', '.join(self.next)}"


class SchedulesFeature(Feature):
    """Records at the times of cron expressions."""

    name = NAME
    section = SECTION
    metrics = METRICS

    def state_topics(self, config: Config) -> Iterator[StateTopic]:
        """Yield the topic of the last ticks."""
        name = topic_of(config)
        if name is not None:
            (source,) = config.workers[SERVICE].topics
            yield StateTopic(name, SERVICE, source, "the last ticks of schedules")

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the targets; the delay service has the other rights."""
        for name, schedule in config.named(ScheduleConfig).items():
            why = f"the schedule {name} sends to it"
            yield AclRule("topic", schedule.to, ("WRITE", "DESCRIBE"), why)

    def outlook(self, config: Config, now_ms: float) -> Sequence[CheckFindings]:
        """Return the next ticks of each schedule."""
        return [ComingTicks.of(each, now_ms) for each in Schedule.all_of(config)]

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Run the schedules beside the delay service."""
        runs = any(each.name == SERVICE for each in start.plan.workers)
        topics = list(self.state_topics(start.plan.config)) if runs else []
        return nullcontext(RunningSchedules(start, topics[0]) if topics else None)
