"""The topics of a redrive: finds, checks and, if permitted, creates them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import frozen

from window_consumer.config import ENTRY, LoadedConfig, TopicNames, WorkerConfig
from window_consumer.dlq.redrive_copy import Destination
from window_consumer.engine.retry.retry_topics import state_topic
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import MissingTopicError, NotPermittedError, UsageError
from window_consumer.plan.ladder_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    Model,
    new_entry,
    new_state,
)
from window_consumer.plan.topics.command_topics import CommandTopics


@frozen
class RedriveTopics:
    """The topics that a redrive of one source topic uses."""

    source: str
    dead_letters: Topic
    to: Destination
    state: str
    remembers: bool
    """Whether the state topic existed before: a new one is empty."""
    max_message_bytes: int
    """The limit of the destination topic, if the cluster reports it."""


@frozen
class TopicSearch:
    """Finds and creates the topics of one worker's redrives. A ``dry`` one creates none."""

    loaded: LoadedConfig
    worker: WorkerConfig
    cluster: Cluster
    to_source: bool
    dry: bool

    def of(self, source: str) -> RedriveTopics | None:
        """Return the topics of a source topic; None if it has no dead-letter topic.

        Raises MissingTopicError and NotPermittedError with the required action, UsageError for a
        source topic that must not be written.
        """
        names, topics = TopicNames(self.worker, self.loaded.config.topics), self._topics
        dead_letters, entry = names.dlq(source), names.retry(source, ENTRY)
        state = state_topic(self.worker.group)
        target = source if self.to_source else entry
        there, hidden = topics.existing([source, dead_letters, entry, state])
        needs = [(dead_letters, "READ"), (state, "READ")]
        if not self.dry:
            needs += [(target, "WRITE"), (state, "WRITE")]
        topics.check_rights(there, hidden, [need for need in needs if need[0] != source])
        if dead_letters not in there:
            return None
        model = there.get(source, there[dead_letters])
        theirs = self.cluster.topic_config(model.name)
        likeness = Model.of(model, theirs)
        remembers = state in there
        if self.to_source:
            self._check_source(source, there, hidden, theirs)
        missing = [
            new
            for new in (
                new_entry(self.worker, source, likeness, self.loaded.config.topics),
                new_state(self.worker.group, likeness),
            )
            if new.name not in there and (new.name != entry or not self.to_source)
        ]
        if missing and not self.dry:
            there.update(topics.make(missing))
        topics.check_rights(there, hidden, needs[2:])
        partitions = there[target].partitions if target in there else model.partitions
        settings = self.cluster.topic_config(target) if target in there else {}
        return RedriveTopics(
            source,
            there[dead_letters],
            Destination(target, partitions, of_the_ladder=not self.to_source),
            state,
            remembers,
            int(settings.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
        )

    @property
    def _topics(self) -> CommandTopics:
        return CommandTopics(self.loaded, self.worker, self.cluster)

    def _check_source(
        self,
        source: str,
        there: Mapping[str, Topic],
        hidden: Collection[str],
        settings: Mapping[str, str],
    ) -> None:
        if source not in there:
            unseen = ", or it may not be seen here (DESCRIBE)" if source in hidden else ""
            raise MissingTopicError(f"--to-source: the topic {source} no longer exists{unseen}")
        policy = settings.get("cleanup.policy")
        if policy is None:
            raise NotPermittedError(
                f"--to-source: cannot tell whether {source} is compacted: allow"
                f" DESCRIBE_CONFIGS on it, or omit --to-source"
            )
        if "compact" in policy:
            raise UsageError(
                f"--to-source: {source} is compacted (cleanup.policy={policy}): an old value would"
                " replace the current one of its key; without --to-source the records go to the"
                " group's own topic"
            )
