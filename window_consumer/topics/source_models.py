"""The settings of source topics, which their ladder topics follow: the cluster's, or assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import MissingTopicError, NotPermittedError, UsageError
from window_consumer.plan.ladder_topics import Model, own_model
from window_consumer.plan.topics.patterns import matching_topics
from window_consumer.topics.cluster_plan import ClusterPlan

_OFFLINE: Final = "give --partitions and --replication-factor"
_USUAL: Final = (
    "max.message.bytes is 64 KiB above Kafka's default, min.insync.replicas that of the brokers."
)


@frozen
class AssumedSizes:
    """Assumed sizes of the source topics, used instead of asking the cluster."""

    partitions: int
    replication: int


@frozen
class SourceModels:
    """Finds the settings of the source topics of workers."""

    loaded: LoadedConfig
    sizes: AssumedSizes | None
    """None to ask the cluster."""

    @property
    def assumptions(self) -> list[str]:
        """What the reader should know about settings that nobody was asked for."""
        if self.sizes is None:
            return []
        return [f"The cluster was not asked for the settings of the source topics. {_USUAL}"]

    def of(
        self, worker: WorkerConfig, cluster: Cluster | None, plan: ClusterPlan
    ) -> dict[str, Model]:
        """Return the models of a worker's source topics; ``plan`` gets notes about them.

        Raises UsageError for patterns without a cluster, and what a start raises where a topic is
        missing or may not be seen.
        """
        if self.sizes is not None:
            if worker.patterns:
                where = self.loaded.where(("workers", worker.name, "patterns"))
                raise UsageError(
                    f"{where}: workers.{worker.name}.patterns: only the cluster knows which topics"
                    " match: omit --partitions and --replication-factor to query it, or choose"
                    " other workers with --only"
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
                " later also needs all of this."
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
                    f"The cluster reports no settings of {name} (DESCRIBE_CONFIGS). {_USUAL}"
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
