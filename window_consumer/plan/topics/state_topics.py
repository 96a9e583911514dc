"""Topics in which features keep what the members of a built-in worker's group share."""

from __future__ import annotations

from attrs import frozen

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import ConfigError
from window_consumer.plan.ladder_topics import Model
from window_consumer.plan.topics.command_topics import CommandTopics


@frozen
class StateTopic:
    """A compacted topic with one partition: of each key it keeps the newest record."""

    name: str
    worker: str
    """The built-in worker whose members read and write it."""
    source: str
    """The topic of that worker that it belongs to, and whose replication it gets."""
    what: str
    """A description of its records."""

    def prepare(
        self, loaded: LoadedConfig, worker: WorkerConfig, cluster: Cluster, source: Topic
    ) -> None:
        """Check the topic, and create it where it is missing and that is allowed.

        ``source`` is the topic that it belongs to. Raises NotPermittedError, MissingTopicError with
        the command that creates it, and ConfigError if it is not compacted.
        """
        topics = CommandTopics(loaded, worker, cluster)
        there, hidden = topics.existing([self.name])
        if not there and not hidden:
            model = Model.of(source, cluster.topic_config(self.source))
            there = topics.make([model.state(self.name)])
        topics.check_rights(there, hidden, [(self.name, "READ"), (self.name, "WRITE")])
        if "compact" not in cluster.topic_config(self.name).get("cleanup.policy", "compact"):
            raise ConfigError(
                f"{loaded.where((self.worker,))}: {self.name} is not compacted: Kafka would delete"
                f" {self.what} after its retention: set its cleanup.policy to compact"
            )
