"""The list of features, by import path, and those of one application while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from importlib import import_module

from attrs import define, field, frozen

from window_consumer.config import Config, LoadedConfig, WorkerConfig
from window_consumer.config.options import Sections
from window_consumer.config.sections.listening import ListenAddress
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.observer import Observer
from window_consumer.engine.turn import TurnRule
from window_consumer.kafka.log_writer import LogWriter
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.clients import CopyTarget
from window_consumer.plan.feature import (
    AclRule,
    AppStart,
    CheckFindings,
    DecodeValue,
    Feature,
    PageContext,
    Pages,
)
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.event_topics import EventTopic
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.plan.topics.state_topics import StateTopic
from window_consumer.runtime.calls.layer import CallLayer
from window_consumer.runtime.figures.measures import FeatureFigures, MeasuredWorkers
from window_consumer.runtime.figures.metric import Metric
from window_consumer.runtime.partitions.preparation import PartitionPreparation
from window_consumer.runtime.replica import ReplicaIdentity, ReplicaSockets
from window_consumer.runtime.running import Running


@define
class RunningFeatures:
    """The features of an application that starts or runs, in the order of the list."""

    workers: MeasuredWorkers = field(init=False)
    """The workers as metrics see them, with the figures of the features."""
    each: list[RunningFeature] = field(factory=list)

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Enter the parts that begin once the cluster has answered."""
        with ExitStack() as stack:
            for running in self.each:
                stack.enter_context(running.beside(prepared))
            yield

    def observers_of(self, worker: PreparedWorker) -> tuple[Observer, ...]:
        """Return the observers of a worker's records."""
        found = (running.observer_of(worker) for running in self.each)
        return tuple(observer for observer in found if observer is not None)

    def layers_of(self, worker: PreparedWorker) -> list[CallLayer]:
        """Return the layers around a worker's calls, besides those of the application."""
        return [layer for running in self.each for layer in running.layers_of(worker)]

    def turn_rules_of(self, worker: PreparedWorker) -> tuple[TurnRule, ...]:
        """Return the rules that keep records of a worker from being called at their turn."""
        return tuple(rule for running in self.each for rule in running.turn_rules_of(worker))

    def pause_rules_of(self, worker: PreparedWorker) -> tuple[PauseRule, ...]:
        """Return the rules that may pause a worker until a user resumes it."""
        return tuple(rule for running in self.each for rule in running.pause_rules_of(worker))

    def preparations_of(self, worker: PreparedWorker) -> tuple[PartitionPreparation, ...]:
        """Return the preparations that a partition of a worker needs before it starts."""
        return tuple(each for running in self.each for each in running.preparations_of(worker))

    def guarantee_of(self, worker: PreparedWorker) -> MakeGuarantee | None:
        """Return the factory of a worker's delivery guarantee; None for at least once."""
        found = (running.guarantee_of(worker) for running in self.each)
        return next((make for make in found if make is not None), None)

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink of a worker's copies and results."""
        for running in self.each:
            sink = running.sink_of(worker, sink, clock)
        return sink

    def sends_on_time(self, worker: PreparedWorker) -> bool:
        """Return whether a worker needs a connected producer before its first copy."""
        return any(running.sends_on_time(worker) for running in self.each)

    def feature_sink(self, sender: str, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink for records that a feature sends beside a worker, around ``sink``."""
        for running in self.each:
            sink = running.feature_sink(sender, worker, sink, clock)
        return sink

    def attach(self, running: Running) -> None:
        """Show the workers to all features."""
        self.workers.attach(running)
        for each in self.each:
            each.attach(running)

    def figures(self) -> FeatureFigures:
        """Return the figures of the process. Any thread may ask."""
        return _figures(running.figures() for running in self.each)

    def figures_of(self, worker: str) -> FeatureFigures:
        """Return the figures of one worker. Any thread may ask."""
        return _figures(running.figures_of(worker) for running in self.each)

    def failures(self) -> list[str]:
        """Return why features keep the process from being ready. Any thread may ask."""
        found = (running.failure() for running in self.each)
        return [failure for failure in found if failure is not None]


def _figures(found: Iterator[object | None]) -> FeatureFigures:
    return FeatureFigures(tuple(each for each in found if each is not None))


@frozen(slots=False)
class FeatureList:
    """All features, imported on first use."""

    paths: tuple[str, ...] = ()
    """Each feature's ``module:attribute``, the attribute being a subclass of ``Feature``."""

    def plus(self, *paths: str) -> FeatureList:
        """Return the list with further features."""
        return FeatureList((*self.paths, *paths))

    @cached_property
    def each(self) -> tuple[Feature, ...]:
        """The features, in the order of the list."""
        found = (path.partition(":") for path in self.paths)
        return tuple(getattr(import_module(module), name)() for module, _, name in found)

    @property
    def commands(self) -> dict[str, str]:
        """Each command's ``module:attribute``."""
        return {name: path for each in self.each for name, path in each.commands.items()}

    @property
    def sections(self) -> Sections:
        """The sections of the configuration that features declare."""
        of_workers = (each.worker_section for each in self.each)
        return Sections(
            tuple(each.section for each in self.each if each.section is not None),
            tuple(section for section in of_workers if section is not None),
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of the features' figures."""
        return tuple(metric for each in self.each for metric in each.metrics)

    def handlers(self, config: Config) -> dict[str, HandlerSpec]:
        """Return the handlers of the workers that features add or handle."""
        return {name: spec for each in self.each for name, spec in each.handlers(config).items()}

    def handlers_of(
        self, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
    ) -> Mapping[str, HandlerSpec]:
        """Return the handlers of a worker as it calls them; raises InvalidError."""
        found: Mapping[str, HandlerSpec] = {name: handlers[name] for name in worker.handlers}
        for each in self.each:
            found = each.handlers_of(worker, found)
        return found

    def value_decoder(self, worker: WorkerConfig) -> DecodeValue | None:
        """Return what decodes values of a worker's topics for people; None: they are plain."""
        found = (each.value_decoder(worker) for each in self.each)
        return next((decode for decode in found if decode is not None), None)

    def refuse(self, plan: AppPlan) -> None:
        """Raise a UsageError for anything that would prevent a start."""
        for each in self.each:
            each.refuse(plan)

    def refuse_replicas(self, one: AppPlan, other: AppPlan) -> None:
        """Raise a UsageError if two replicas with these plans cannot run beside each other."""
        for each in self.each:
            each.refuse_replicas(one, other)

    def warnings(self, plan: AppPlan) -> tuple[str, ...]:
        """Return the warnings of ``check``."""
        return tuple(warning for each in self.each for warning in each.warnings(plan))

    def bounds(self, plan: AppPlan, rate: float | None) -> dict[str, Sequence[CheckFindings]]:
        """Return the bounds that the configuration implies, by feature."""
        found = ((each.name, each.bounds(plan, rate)) for each in self.each)
        return {name: bounds for name, bounds in found if bounds}

    def outlook(self, config: Config, now_ms: float) -> dict[str, Sequence[CheckFindings]]:
        """Return upcoming events, by feature."""
        found = ((each.name, each.outlook(config, now_ms)) for each in self.each)
        return {name: outlook for name, outlook in found if outlook is not None}

    def event_topics(self, config: Config) -> Iterator[EventTopic]:
        """Yield the topics that a configuration writes events to."""
        for each in self.each:
            yield from each.event_topics(config)

    def state_topics(self, config: Config) -> list[StateTopic]:
        """Return the topics with state that the members of a group share."""
        return [topic for each in self.each for topic in each.state_topics(config)]

    def rights(self, config: Config) -> list[AclRule]:
        """Return the rights that features need on the cluster, except for their event topics."""
        return [right for each in self.each for right in each.rights(config)]

    def readiness_address(self, config: Config) -> ListenAddress | None:
        """Return the address where a process answers ``/readyz``, with a port of its own choice."""
        found = (each.readiness_address(config) for each in self.each)
        return next((address for address in found if address is not None and address.port), None)

    def pages(
        self,
        loaded: LoadedConfig,
        oauth_token: OauthToken | None,
        figures: Callable[[], FeatureFigures] = FeatureFigures,
    ) -> dict[str, Pages]:
        """Return the pages of a configuration, by feature; raises ConfigError."""
        context = PageContext(loaded, self.copy_writer, self.value_decoder, oauth_token, figures)
        found = ((each.name, each.pages(context)) for each in self.each)
        return {name: pages for name, pages in found if pages is not None}

    @contextmanager
    def starting(
        self,
        application: str,
        plan: AppPlan,
        replica: ReplicaIdentity | None,
        oauth_token: OauthToken | None,
    ) -> Iterator[RunningFeatures]:
        """Enter the parts that begin before the first request to the cluster."""
        running = RunningFeatures()
        labels = {} if replica is None else {"process": replica.number}
        running.workers = MeasuredWorkers(labels, running.figures, running.figures_of)
        start = AppStart(
            application=application,
            version=plan.version,
            plan=plan,
            replica=replica,
            workers=running.workers,
            metrics=self.metrics,
            pages=partial(self.pages, plan.loaded, oauth_token, running.figures),
            failures=running.failures,
            feature_sink=running.feature_sink,
            oauth_token=oauth_token,
        )
        with ExitStack() as stack:
            for each in self.each:
                started = stack.enter_context(each.starting(start))
                if started is not None:
                    running.each.append(started)
            yield running

    @contextmanager
    def beside_replicas(
        self, plan: AppPlan, sockets: Mapping[str, ReplicaSockets], oauth_token: OauthToken | None
    ) -> Iterator[Callable[[str], None]]:
        """Enter the parts for a supervisor of replicas; yield the callback for an ended replica."""
        ended: list[Callable[[str], None]] = []
        pages = partial(self.pages, plan.loaded, oauth_token)
        with ExitStack() as stack:
            for each in self.each:
                beside = each.beside_replicas(plan, sockets, pages)
                on_end = stack.enter_context(beside)
                if on_end is not None:
                    ended.append(on_end)

            def on_replica_end(number: str) -> None:
                for on_end in ended:
                    on_end(number)

            yield on_replica_end

    @contextmanager
    def copy_writer(self, target: CopyTarget, writer: LogWriter) -> Iterator[LogWriter]:
        """Yield the writer of a redrive or a replay, around ``writer``."""
        with ExitStack() as stack:
            for each in self.each:
                writer = stack.enter_context(each.copy_writer(target, writer))
            yield writer
