"""All ladder topics that a configuration needs, and the permissions, for ``topics plan``.

The topics' settings follow from their source topics. These come from the cluster, or the user gives
the numbers of partitions and replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, evolve, field, frozen

from window_consumer.config import LoadedConfig, Mask, WorkerConfig, effective_kafka, load
from window_consumer.kafka import settings
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic, Topic
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import (
    ConfigError,
    MissingTopicError,
    NotPermittedError,
    UsageError,
)
from window_consumer.plan.clients import Clients
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.event_topics import event_properties
from window_consumer.plan.feature import AclRule
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.ladder_topics import (
    LEVEL_RETENTION_S,
    Model,
    copy_topics,
    new_copy_topic,
    new_entry,
    new_state,
    own_model,
    writes_dead_letters,
)
from window_consumer.plan.topics.patterns import matching_topics
from window_consumer.topics.acls import merged, rights_of, rights_of_events

_TELEMETRY: Final = "telemetry"
"""Takes the place of workers on a cluster that only gets the trace and the audit."""


@frozen
class AssumedSizes:
    """Assumed sizes of the source topics, used instead of asking the cluster."""

    partitions: int
    replication: int


@frozen
class PlannedTopic:
    """A topic for copies, and its purpose."""

    new: NewCopyTopic
    what: str
    is_read: bool = False
    """Whether the worker reads it together with its source, whose partition count it then needs."""
    partitions_now: int | None = None
    """None if it does not exist or was not asked for."""

    @property
    def is_too_narrow(self) -> bool:
        """Whether it is a retry topic with fewer partitions than its source."""
        now = self.partitions_now
        return self.is_read and now is not None and now < self.new.partitions


@define
class ClusterPlan:
    """What one cluster needs."""

    bootstrap: str
    """Empty if the configuration does not give it."""
    workers: list[str] = field(factory=list)
    groups: list[str] = field(factory=list)
    topics: list[PlannedTopic] = field(factory=list)
    rights: list[AclRule] = field(factory=list)
    notes: list[str] = field(factory=list)
    """What the reader should know about it, a sentence each."""

    @property
    def is_for_telemetry(self) -> bool:
        """Whether no worker reads there: only events and counts are written to it."""
        return self.workers == [_TELEMETRY]


@frozen
class Planner:
    """Computes the topics and permissions of workers."""

    loaded: LoadedConfig
    workers: Mapping[str, bool]
    """By name: whether the worker writes dead letters."""
    sizes: AssumedSizes | None
    """None to ask the cluster."""
    features: FeatureList
    oauth_token: OauthToken | None = None
    timeout_s: float = 10.0

    @classmethod
    def of_application(
        cls,
        app: AppDefinition,
        file: Path,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        sizes: AssumedSizes | None = None,
        timeout_s: float = 10.0,
    ) -> Planner:
        """Return the planner for the workers that ``run`` would run; raises ConfigError."""
        plan = app.plan(file, only=only, overrides=overrides)
        workers = {each.name: each.writes_dead_letters for each in plan.workers}
        return cls(plan.loaded, workers, sizes, app.features, app.token_function, timeout_s)

    @classmethod
    def of_config(
        cls,
        file: Path,
        features: FeatureList,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        sizes: AssumedSizes | None = None,
        timeout_s: float = 10.0,
    ) -> Planner:
        """Return the planner for a configuration that needs no application; raises UsageErrors."""
        try:
            loaded = load(file, {}, overrides, without_handlers=True, sections=features.sections)
        except ConfigError as error:
            raise ConfigError(f"{error}\n{_NAME_IT}") from error
        known = loaded.config.workers
        for name in only:
            if name not in known:
                raise UsageError(
                    f"--only {name}: there is no such worker; there are {', '.join(sorted(known))}"
                )
        chosen = [each for name, each in known.items() if (name in only if only else each.enabled)]
        for worker in chosen:
            if not worker.topics and not worker.patterns:
                where = loaded.where(("workers", worker.name))
                raise ConfigError(f"{where}: workers.{worker.name}.topics: is missing\n{_NAME_IT}")
        workers = {each.name: _may_write(each) for each in chosen}
        return cls(loaded, workers, sizes, features, None, timeout_s)

    def plans(self) -> list[ClusterPlan]:
        """Return what each cluster of the workers needs, in the order of the configuration.

        If the cluster must be asked, raises what a start raises when it does not answer or when a
        source topic is missing or may not be seen. Raises UsageError for patterns without a
        cluster.
        """
        found: dict[str, ClusterPlan] = {}
        models: dict[str, dict[str, list[Model]]] = {}
        clusters: dict[str, Cluster] = {}
        replication: dict[str, int] = {}
        for name in self.workers:
            worker = self.loaded.config.workers[name]
            bootstrap = self._bootstrap(worker)
            plan = found.setdefault(bootstrap, ClusterPlan(bootstrap))
            cluster = None if self.sizes is not None else self._connect(worker)
            sources = self._sources(worker, cluster, plan)
            if cluster is not None:
                clusters[bootstrap] = cluster
            safest = max((model.replication for model in sources.values()), default=1)
            replication[bootstrap] = max(safest, replication.get(bootstrap, 1))
            plan.workers.append(name)
            if worker.group and worker.group not in plan.groups:
                plan.groups.append(worker.group)
            topics = [
                topic
                for source, model in sources.items()
                for topic in self._of_source(worker, source, model)
            ]
            plan.topics += topics if cluster is None else _compared(topics, cluster)
            plan.rights += self._rights(worker, sources)
            if worker.group:
                plan.notes += _covered(worker, sources)
            if self.workers[name]:
                groups = models.setdefault(bootstrap, {})
                groups.setdefault(worker.group, []).extend(sources.values())
        self._add_telemetry(found, clusters, replication)
        self._add_rights_of_features(found)
        for bootstrap, plan in found.items():
            plan.topics += _states(models.get(bootstrap, {}))
            plan.rights = merged(plan.rights)
            plan.notes = list(dict.fromkeys([*self._assumed(), *plan.notes]))
        return list(found.values())

    def _add_telemetry(
        self,
        found: dict[str, ClusterPlan],
        clusters: Mapping[str, Cluster],
        replication: Mapping[str, int],
    ) -> None:
        """Add the topics of trace and audit to the plan of their cluster."""
        topics = list(self.features.event_topics(self.loaded.config))
        if not topics:
            return
        first = self.loaded.config.workers[next(iter(self.workers))]
        bootstrap = self._shown(event_properties(self.loaded.config, first, "admin"))
        plan = found.setdefault(bootstrap, ClusterPlan(bootstrap, workers=[_TELEMETRY]))
        new = [
            PlannedTopic(each.as_new(replication.get(bootstrap, 1)), each.what) for each in topics
        ]
        cluster = clusters.get(bootstrap)
        plan.topics += new if cluster is None else _compared(new, cluster)
        plan.rights += rights_of_events(topics, create=self.loaded.config.topics.create)

    def _add_rights_of_features(self, found: dict[str, ClusterPlan]) -> None:
        """Add what features need to the plan of the file's cluster, or to the first."""
        rights = self.features.rights(self.loaded.config)
        if rights:
            own = self._bootstrap(WorkerConfig(group=""))
            plan = found.get(own) or next(iter(found.values()))
            plan.rights += rights

    def _bootstrap(self, worker: WorkerConfig) -> str:
        properties = effective_kafka(
            self.loaded.config,
            worker,
            "admin",
            consumer_only=settings.CONSUMER_ONLY,
            producer_only=settings.PRODUCER_ONLY,
        )
        return self._shown(properties)

    def _shown(self, properties: Mapping[str, Any]) -> str:
        address = str(properties.get("bootstrap.servers", ""))
        is_secret = Mask(self.loaded.secrets)(address) != address
        return "" if is_secret else address

    def _connect(self, worker: WorkerConfig) -> Cluster:
        return Clients.connect(self.loaded, worker, self.oauth_token, self.timeout_s).cluster

    # ---- the source topics

    def _sources(
        self, worker: WorkerConfig, cluster: Cluster | None, plan: ClusterPlan
    ) -> dict[str, Model]:
        if self.sizes is not None:
            if worker.patterns:
                where = self.loaded.where(("workers", worker.name, "patterns"))
                raise UsageError(
                    f"{where}: workers.{worker.name}.patterns: only the cluster knows which topics"
                    " match: leave out --partitions and --replication-factor so that it is asked,"
                    " or choose other workers with --only"
                )
            own = worker.own_topics
            partitions = self.sizes.partitions if own is None else own.partitions
            model = Model(partitions, self.sizes.replication)
            return dict.fromkeys(worker.topics, model)
        assert cluster is not None  # without sizes it is asked
        return self._asked(worker, cluster, plan)

    def _asked(self, worker: WorkerConfig, cluster: Cluster, plan: ClusterPlan) -> dict[str, Model]:
        names = worker.topics
        if worker.patterns:
            names = tuple(matching_topics(self.loaded.config, worker, cluster.topic_names()))
            matched = ", ".join(names) or "no topic yet"
            plan.notes.append(
                f"{worker.name} reads by patterns, which match {matched}. A topic that appears"
                " later needs all of this, too."
            )
        there = self._described(worker, names, cluster)
        models = {}
        for name in names:
            if name not in there and worker.own_topics is not None:
                models[name] = own_model(worker.own_topics)
                continue
            theirs = cluster.topic_config(name)
            models[name] = Model.of(there[name], theirs)
            if not theirs:
                plan.notes.append(
                    f"The cluster does not tell the settings of {name} (DESCRIBE_CONFIGS). {_USUAL}"
                )
        return models

    def _described(
        self, worker: WorkerConfig, names: Sequence[str], cluster: Cluster
    ) -> dict[str, Topic]:
        where = self.loaded.where(("workers", worker.name, "topics"))
        try:
            there = cluster.topics(names)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{where}: workers.{worker.name}: not authorised: needs DESCRIBE on topics"
                f" {', '.join(names)} ({error}): ask with other rights, or {_OFFLINE}"
            ) from error
        missing = [name for name in names if name not in there]
        if missing and worker.own_topics is None:
            raise MissingTopicError(
                f"{where}: workers.{worker.name}: the cluster at {cluster.bootstrap} has no topic"
                f" {', '.join(missing)}: create it, correct the name, or {_OFFLINE}"
            )
        return there

    # ---- what they need

    def _of_source(self, worker: WorkerConfig, source: str, model: Model) -> Iterator[PlannedTopic]:
        topics = self.loaded.config.topics
        dead_letters = self.workers[worker.name]
        if worker.own_topics is not None:
            yield PlannedTopic(model.copies(source, LEVEL_RETENTION_S), f"read by {worker.name}")
        for state in self.features.state_topics(self.loaded.config):
            if (state.worker, state.source) == (worker.name, source):
                yield PlannedTopic(state.as_new(model), state.what)
        for each in copy_topics(worker, topics, source, dead_letters=dead_letters):
            what = "parked records" if each.is_park else "dead letters"
            if each.level is not None:
                what = f"retry level {each.level.name}"
            new = new_copy_topic(each, model, topics)
            yield PlannedTopic(new, f"{what} of {source} ({worker.name})", each.is_read)
        if dead_letters:
            what = f"where dead letters of {source} are put back ({worker.name})"
            yield PlannedTopic(new_entry(worker, source, model, topics), what, is_read=True)

    def _rights(self, worker: WorkerConfig, sources: Mapping[str, Model]) -> Iterator[AclRule]:
        create = self.loaded.config.topics.create
        dead_letters = self.workers[worker.name]
        yield from rights_of(worker, list(sources), create=create, dead_letters=dead_letters)

    def _assumed(self) -> list[str]:
        if self.sizes is None:
            return []
        return [f"The cluster was not asked for the settings of the source topics. {_USUAL}"]


def _may_write(worker: WorkerConfig) -> bool:
    """Return whether a worker may write dead letters, according to the configuration."""
    is_conditional = all(handler in worker.routes for handler in worker.handlers)
    return writes_dead_letters(worker, may_be_unroutable=is_conditional)


def _compared(topics: Sequence[PlannedTopic], cluster: Cluster) -> list[PlannedTopic]:
    """Fill in each topic's present partitions; a topic that we may not see counts as missing."""
    names = set(cluster.topic_names())
    there = cluster.topics([each.new.name for each in topics if each.new.name in names])
    return [
        evolve(each, partitions_now=there[each.new.name].partitions)
        if each.new.name in there
        else each
        for each in topics
    ]


def _states(models: Mapping[str, Sequence[Model]]) -> Iterator[PlannedTopic]:
    """Yield each group's topic of resolved dead letters, as safe as its safest source."""
    for group, theirs in models.items():
        if theirs:
            model = max(theirs, key=lambda each: each.replication)
            what = f"which dead letters of the group {group} are resolved"
            yield PlannedTopic(new_state(group, model), what)


def _covered(worker: WorkerConfig, sources: Mapping[str, Model]) -> Iterator[str]:
    prefix = f"{worker.group}."
    for name in sources:
        if name.startswith(prefix):
            yield f"The permissions on the prefix {prefix} cover the source topic {name}, too."


_NAME_IT = (
    "(where decorators of an application give what is missing, name it:"
    " window-consumer topics plan MODULE:APP)"
)
_OFFLINE = "say --partitions and --replication-factor"
_USUAL = (
    "max.message.bytes is 64 KiB above Kafka's default, min.insync.replicas that of the brokers."
)
