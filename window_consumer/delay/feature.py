"""The delay service as a feature: its section, its worker, and its needs on the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from attrs import evolve

from window_consumer.config import Config, format_duration
from window_consumer.config.options import Section
from window_consumer.delay.cancel_layer import CancelCheck, CancelLayer
from window_consumer.delay.cancel_topic import CancelTopic, UnreadCancellations
from window_consumer.delay.cancellations import KEPT_ON_S, CancellationFigures, Cancellations
from window_consumer.delay.config import HANDLER, WORKER, DelayConfig, conflicts, workers
from window_consumer.delay.copies import LevelCopies
from window_consumer.delay.metrics import METRICS
from window_consumer.delay.refusing_targets import RefusingTargets
from window_consumer.delay.request import Targets, delivered
from window_consumer.delay.waiting import LONG_LEVELS, MANY_HOPS, DelayRule, Levels
from window_consumer.delay.wheel.store import WheelStore
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.turn import TurnRule
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, AppStart, Feature
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.plan.topics.state_topics import StateTopic
from window_consumer.runtime.calls.layer import CallLayer
from window_consumer.runtime.partitions.preparation import PartitionPreparation

_ANSWER_S: Final = 5.0
"""The timeout of a query about the topic of cancellations."""


class RunningDelay(RunningFeature):
    """The delay service of a running application."""

    def __init__(self, plan: AppPlan, topic: StateTopic):
        self._plan = plan
        self._topic = topic
        self._cancellations = Cancellations(plan.config.section(DelayConfig).max)
        self._reading: CancelTopic | None = None
        self._store: WheelStore | None = None

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Make the wheels and read the cancellations. Raises what ``StateTopic.prepare`` raises."""
        (worker,) = (each for each in prepared.workers if each.plan.name == WORKER)
        self._topic.prepare(
            self._plan.loaded,
            worker.plan.config,
            worker.cluster,
            worker.described[self._topic.source],
        )

        def open_reader() -> TopicReader:
            token = prepared.oauth_token
            return TopicReader(
                worker.plan.consumer, worker.log, oauth_token=token, deadline_s=_ANSWER_S
            )

        log_ends = partial(worker.cluster.log_ends, committed=True)
        self._reading = CancelTopic(self._topic.name, self._cancellations, open_reader, log_ends)
        section = self._plan.config.section(DelayConfig)
        if section.store == "wheel":
            check = CancelCheck(self._cancellations, self._reading.age_s)
            directory = Path(self._plan.file).absolute().parent / str(section.directory)
            self._store = WheelStore(
                section,
                Targets.of(self._plan.config),
                worker,
                directory,
                check,
                prepared.oauth_token,
            )
        self._reading.start()
        try:
            yield
        finally:
            self._reading.stop()

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        """Return the layer that keeps cancelled records from delivery."""
        reading = self._reading_for(worker)
        if reading is None:
            return ()
        targets = Targets.of(self._plan.config)
        check = CancelCheck(self._cancellations, reading.age_s)
        return [CancelLayer(check, targets)]

    def turn_rules_of(self, worker: PreparedWorker) -> Sequence[TurnRule]:
        """Return the rule that lets records wait in a wheel."""
        store = self._store_of(worker)
        return [] if store is None else [store.rule]

    def preparations_of(self, worker: PreparedWorker) -> Sequence[PartitionPreparation]:
        """Return the preparation of the wheels."""
        store = self._store_of(worker)
        return [] if store is None else [store.preparation]

    def guarantee_of(self, worker: PreparedWorker) -> MakeGuarantee | None:
        """Return the guarantee that commits nothing beyond records that wait in a wheel."""
        store = self._store_of(worker)
        return None if store is None else store.guarantee

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Let the wheels use the worker's sink."""
        store = self._store_of(worker)
        if store is not None:
            store.send_through(sink, clock)
        return sink

    def sends_on_time(self, worker: PreparedWorker) -> bool:
        """Return whether records wait in wheels: the first may be due when the worker starts."""
        return self._store_of(worker) is not None

    def _store_of(self, worker: PreparedWorker) -> WheelStore | None:
        return self._store if worker.plan.name == WORKER else None

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return the rules that report why records wait; they pause nothing."""
        reading = self._reading_for(worker)
        if reading is None:
            return ()
        return [UnreadCancellations(self._topic.name, lambda: reading.trouble)]

    def figures_of(self, worker: str) -> CancellationFigures | None:
        """Return the figures about cancellations."""
        return self._cancellations.figures() if worker == WORKER else None

    def _reading_for(self, worker: PreparedWorker) -> CancelTopic | None:
        return self._reading if worker.plan.name == WORKER else None


class DelayFeature(Feature):
    """The delay service."""

    name = "delay"
    section = Section(
        "delay",
        DelayConfig,
        "The delay service: it delivers records to their topics at given times.",
        conflicts,
        workers=workers,
    )
    metrics = METRICS
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"delay": "window_consumer.delay.cli:delay_group"}
    )

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return the handler that delivers records and the rule that lets them wait."""
        section = config.section(DelayConfig)
        if not section.to:
            return {}
        targets = Targets.of(config)
        spec = HandlerSpec(
            HANDLER,
            lambda record: delivered(record, targets),
            {},
            rule_of=lambda target_of: DelayRule(
                section,
                targets,
                LevelCopies(section.topic, section.worker.group, target_of),
                RefusingTargets(_log_refuses, _log_takes),
            ),
        )
        return {HANDLER: spec}

    def warnings(self, plan: AppPlan) -> Iterator[str]:
        """Yield how many levels the longest delay passes, if longer levels would save many."""
        section = plan.config.section(DelayConfig)
        hops = Levels.of(section).hops(section.max)
        if not section.to or hops <= MANY_HOPS:
            return
        more = [each for each in LONG_LEVELS if section.levels[-1] < each <= section.max]
        better = Levels.of(evolve(section, levels=(*section.levels, *more))).hops(section.max)
        if better < hops:
            names = ", ".join(map(format_duration, more))
            yield (
                f"delay.max: {format_duration(section.max)} takes {hops} hops through"
                f" delay.levels; with {names} added it takes {better}"
            )

    def state_topics(self, config: Config) -> Iterator[StateTopic]:
        """Yield the topic of cancellations."""
        section = config.section(DelayConfig)
        if section.to:
            yield StateTopic(
                section.cancel_topic,
                WORKER,
                section.topic,
                "cancellations",
                operations=("READ",),
                retention_s=section.max + KEPT_ON_S,
            )

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the targets, and its levels if its group has another name."""
        section = config.section(DelayConfig)
        for target in section.to:
            name, is_prefix = target.removesuffix("*"), target.endswith("*")
            why = f"{WORKER} delivers to it"
            yield AclRule("topic", name, ("WRITE", "DESCRIBE"), why, is_prefix)
        if section.to and section.group not in {None, section.topic}:
            create = ("CREATE", "ALTER") if config.topics.create else ()
            operations = ("READ", "WRITE", "DESCRIBE", *create)
            why = f"copies of the records of {WORKER}"
            yield AclRule("topic", f"{section.topic}.", operations, why, is_prefix=True)

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Follow the cancellations if the worker runs."""
        runs = any(each.name == WORKER for each in start.plan.workers)
        topics = list(self.state_topics(start.plan.config)) if runs else []
        return nullcontext(RunningDelay(start.plan, topics[0]) if topics else None)


def _log_refuses(target: str, why: str) -> None:
    LOGGER.warning(
        "%s: %s refuses records (%s); they wait in levels until it accepts them",
        WORKER,
        target,
        why,
        extra={"event": LogEvent.DELAY_TARGET_REFUSES, "worker": WORKER, "topic": target},
    )


def _log_takes(target: str) -> None:
    LOGGER.info(
        "%s: %s accepts records again",
        WORKER,
        target,
        extra={"event": LogEvent.DELAY_TARGET_TAKES, "worker": WORKER, "topic": target},
    )
