"""Schedules as a feature: their section, their topic, and the thread beside the delay worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from window_consumer.config import Config
from window_consumer.engine.observer import Observer
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.record import TopicPartition
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.built_in_workers import DELAY
from window_consumer.plan.feature import AclRule, AppStart, Feature, RunningFeature
from window_consumer.plan.preflight import Prepared, PreparedWorker
from window_consumer.plan.topics.state_topics import StateTopic
from window_consumer.runtime.worker import SystemClock
from window_consumer.schedules.config import NAME, SECTION, ScheduleConfig
from window_consumer.schedules.metrics import METRICS
from window_consumer.schedules.ownership import ScheduleOwner
from window_consumer.schedules.schedule import LastTick, Schedule, last_ticks
from window_consumer.schedules.sender import ScheduleFigures, TickSender


class RunningSchedules(RunningFeature):
    """The schedules of an application whose delay service runs."""

    def __init__(self, plan: AppPlan, topic: StateTopic):
        self._plan = plan
        self._topic = topic
        self._sender: TickSender | None = None
        self._owner: ScheduleOwner | None = None

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Run the thread that sends. Raises what ``StateTopic.prepare`` raises."""
        (worker,) = (each for each in prepared.workers if each.plan.name == DELAY)
        source = worker.described[self._topic.source]
        self._topic.prepare(self._plan.loaded, worker.plan.config, worker.cluster, source)
        topic = self._topic.name

        def read() -> Mapping[str, LastTick]:
            properties, token = worker.plan.consumer, prepared.oauth_token
            with TopicReader(properties, worker.log, oauth_token=token) as reader:
                return last_ticks(reader.read_all(topic))

        sink = KafkaSink(worker.plan.producer, NAME, worker.log, prepared.oauth_token)
        sender = self._sender = TickSender(Schedule.all_of(self._plan.config), topic, sink)
        first = TopicPartition(self._topic.source, 0)
        owner = self._owner = ScheduleOwner(first, sender, sink, read, SystemClock())
        owner.start()
        try:
            yield
        finally:
            owner.stop()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return what learns whether this process has the schedules."""
        return self._owner if worker.plan.name == DELAY else None

    def figures(self) -> ScheduleFigures | None:
        """Return the counts."""
        return None if self._sender is None else self._sender.figures()


class SchedulesFeature(Feature):
    """Records at the times of cron expressions."""

    name = NAME
    section = SECTION
    metrics = METRICS

    def state_topics(self, config: Config) -> Iterator[StateTopic]:
        """Yield the topic of the last ticks."""
        service = config.workers.get(DELAY)
        if service is not None and config.named(ScheduleConfig):
            (source,) = service.topics
            what = "the last ticks of schedules"
            yield StateTopic(f"{source}.{NAME}", DELAY, source, what)

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the targets; those on the topic follow from the delay service's."""
        for name, schedule in config.named(ScheduleConfig).items():
            why = f"the schedule {name} sends to it"
            yield AclRule("topic", schedule.to, ("WRITE", "DESCRIBE"), why)

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Run the schedules where the delay service runs."""
        runs = any(each.name == DELAY for each in start.plan.workers)
        topics = list(self.state_topics(start.plan.config)) if runs else []
        return nullcontext(RunningSchedules(start.plan, topics[0]) if topics else None)
