"""All ladder topics that a configuration needs, and the permissions, for ``topics plan``.

The topics' settings derive from those of their source topics. These come from the cluster, or the
user gives the numbers of partitions and replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from window_consumer.config import LoadedConfig, Mask, WorkerConfig, effective_kafka, load
from window_consumer.kafka import settings
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import ConfigError, UsageError
from window_consumer.plan.clients import Clients
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.feature import AclRule
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.ladder_topics import (
    LEVEL_RETENTION_S,
    Model,
    copy_topics,
    new_copy_topic,
    new_entry,
    new_state,
    writes_dead_letters,
)
from window_consumer.plan.topics.event_topics import event_properties
from window_consumer.topics.acls import merged, rights_of, rights_of_events
from window_consumer.topics.cluster_plan import TELEMETRY, ClusterPlan, PlannedTopic, compared
from window_consumer.topics.source_models import AssumedSizes, SourceModels


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
        """Return the needs of each cluster of the workers, in the order of the configuration.

        If the cluster must be queried, raises like a start when it does not answer, or when a
        source topic is missing or hidden. Raises UsageError for patterns without a cluster.
        """
        found: dict[str, ClusterPlan] = {}
        models: dict[str, dict[str, list[Model]]] = {}
        clusters: dict[str, Cluster] = {}
        replication: dict[str, int] = {}
        source_models = SourceModels(self.loaded, self.sizes)
        for name in self.workers:
            worker = self.loaded.config.workers[name]
            bootstrap = self._bootstrap(worker)
            plan = found.setdefault(bootstrap, ClusterPlan(bootstrap))
            cluster = None if self.sizes is not None else self._connect(worker)
            sources = source_models.of(worker, cluster, plan)
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
            plan.topics += topics if cluster is None else compared(topics, cluster)
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
            plan.notes = list(dict.fromkeys([*source_models.assumptions, *plan.notes]))
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
        plan = found.setdefault(bootstrap, ClusterPlan(bootstrap, workers=[TELEMETRY]))
        new = [
            PlannedTopic(each.as_new(replication.get(bootstrap, 1)), each.what) for each in topics
        ]
        cluster = clusters.get(bootstrap)
        plan.topics += new if cluster is None else compared(new, cluster)
        plan.rights += rights_of_events(topics, create=self.loaded.config.topics.create)

    def _add_rights_of_features(self, found: dict[str, ClusterPlan]) -> None:
        """Add the needs of features to the plan of the file's cluster, or to the first."""
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


def _may_write(worker: WorkerConfig) -> bool:
    """Return whether a worker may write dead letters, according to the configuration."""
    is_conditional = all(handler in worker.routes for handler in worker.handlers)
    return writes_dead_letters(worker, may_be_unroutable=is_conditional)


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
    "(if an application's decorators supply it, name the application:"
    " window-consumer topics plan MODULE:APP)"
)
