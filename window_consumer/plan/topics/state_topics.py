"""Topics with the state that the members of a built-in worker's group share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from window_consumer.config import LoadedConfig, WorkerConfig, format_duration
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic, Topic
from window_consumer.model.errors import ConfigError
from window_consumer.plan.ladder_topics import Model
from window_consumer.plan.topics.command_topics import CommandTopics

_BY_BROKER: Final = Model(partitions=1, replication=-1)
"""The settings of a source that is still missing: the broker's default."""


@frozen
class StateTopic:
    """A topic with one partition that keeps the newest record of each key."""

    name: str
    worker: str
    """The built-in worker whose members read and write it."""
    source: str
    """The worker's topic that it belongs to; it gets the same replication."""
    what: str
    """A description of its records."""
    operations: tuple[str, ...] = ("READ", "WRITE")
    """Its use by the members."""
    retention_s: float | None = None
    """How long it must keep them; None: forever."""

    def as_new(self, model: Model) -> NewCopyTopic:
        """Return the topic to create; ``model`` has the settings of its source."""
        return model.state(self.name, self.retention_s)

    def prepare(
        self,
        loaded: LoadedConfig,
        worker: WorkerConfig,
        cluster: Cluster,
        source: Topic | None,
        *,
        dry: bool = False,
    ) -> None:
        """Check the topic, and create it if it is missing and that is permitted.

        ``source`` is the topic that it belongs to, None if a ``dry`` run finds that missing, too. A
        dry run only checks whether the topic could be created. Raises NotPermittedError,
        MissingTopicError with the command that creates it, and ConfigError if Kafka would delete
        records that are still needed.
        """
        topics = CommandTopics(loaded, worker, cluster)
        there, hidden = topics.existing([self.name])
        if not there and not hidden:
            model = _BY_BROKER
            if source is not None:
                model = Model.of(source, cluster.topic_config(source.name))
            there = topics.make([self.as_new(model)], dry=dry)
            if dry:
                return
        needs = [(self.name, operation) for operation in self.operations]
        topics.check_rights(there, hidden, needs)
        self._check_settings(loaded, cluster.topic_config(self.name))

    def _check_settings(self, loaded: LoadedConfig, settings: Mapping[str, str]) -> None:
        policy = settings.get("cleanup.policy", "compact")
        kept_ms = float(settings.get("retention.ms", -1))
        place = f"{loaded.where((self.worker,))}: {self.name}"
        if self.retention_s is None:
            if policy != "compact":
                raise ConfigError(
                    f"{place} has the cleanup.policy {policy}: Kafka would delete {self.what} after"
                    " its retention: set it to compact"
                )
        elif "delete" in policy and 0 <= kept_ms < self.retention_s * 1000:
            raise ConfigError(
                f"{place} keeps {self.what} for {format_duration(kept_ms / 1000)}, but they are"
                f" needed for {format_duration(self.retention_s)}: set its retention.ms to"
                f" {self.retention_s * 1000:.0f}"
            )
