"""The topics of a redrive: finds, checks and, if permitted, creates them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from time import monotonic

from attrs import frozen

from window_consumer.config import ENTRY, LoadedConfig, WorkerConfig
from window_consumer.dlq.redrive_copy import Destination
from window_consumer.engine.retry.retry_topics import state_topic
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic, Topic
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    UsageError,
    WindowConsumerError,
)
from window_consumer.plan.ladder_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    SEE_PLAN,
    Model,
    new_entry,
    new_state,
)
from window_consumer.plan.topics.copy_topics import missing_right

_APPEARS_S = 10.0


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
        names = self.loaded.config.topics
        dead_letters = self.worker.dlq_topic(source, names)
        entry = self.worker.retry_topic(source, ENTRY, names)
        state = state_topic(self.worker.group)
        target = source if self.to_source else entry
        there, hidden = self._existing([source, dead_letters, entry, state])
        needs = [(dead_letters, "READ"), (state, "READ")]
        if not self.dry:
            needs += [(target, "WRITE"), (state, "WRITE")]
        self._check_rights(there, hidden, [need for need in needs if need[0] != source])
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
                new_entry(self.worker, source, likeness, names),
                new_state(self.worker.group, likeness),
            )
            if new.name not in there and (new.name != entry or not self.to_source)
        ]
        if missing and not self.dry:
            there.update(self._make(missing))
        self._check_rights(there, hidden, needs[2:])
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

    def _check_source(
        self,
        source: str,
        there: Mapping[str, Topic],
        hidden: Collection[str],
        settings: Mapping[str, str],
    ) -> None:
        if source not in there:
            unseen = ", or it may not be seen here (DESCRIBE)" if source in hidden else ""
            raise MissingTopicError(f"--to-source: there is no topic {source} any more{unseen}")
        policy = settings.get("cleanup.policy")
        if policy is None:
            raise NotPermittedError(
                f"--to-source: whether {source} is compacted cannot be found out: allow"
                f" DESCRIBE_CONFIGS on it, or leave out --to-source"
            )
        if "compact" in policy:
            raise UsageError(
                f"--to-source: {source} is compacted (cleanup.policy={policy}): an old value would"
                " replace the present one of its key; without --to-source the records go to the"
                " group's own topic"
            )

    def _existing(self, names: Sequence[str]) -> tuple[dict[str, Topic], set[str]]:
        """Describe existing topics; also return the names that may not be described."""
        found, hidden = {}, set()
        for name in names:
            try:
                found.update(self.cluster.topics([name]))
            except NotPermittedError:
                hidden.add(name)
        return found, hidden

    def _check_rights(
        self, there: Mapping[str, Topic], hidden: Collection[str], needs: Sequence[tuple[str, str]]
    ) -> None:
        for name, operation in needs:
            topic = there.get(name)
            denied = topic and topic.operations is not None and operation not in topic.operations
            if denied or name in hidden:
                raise NotPermittedError(missing_right(self.worker.name, operation, f"topic {name}"))

    def _make(self, missing: Sequence[NewCopyTopic]) -> dict[str, Topic]:
        commands = "\n".join(f"  {each.command(self.cluster.bootstrap)}" for each in missing)
        names = ", ".join(each.name for each in missing)
        are = "is" if len(missing) == 1 else "are"
        by_hand = f"make {'it' if len(missing) == 1 else 'them'} by hand:\n{commands}\n{SEE_PLAN}"
        place = f"workers.{self.worker.name}"
        if not self.loaded.config.topics.create:
            raise MissingTopicError(
                f"{place}: {names} {are} missing and topics.create is false: {by_hand}"
            )
        try:
            self.cluster.create(missing)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{place}: {names} {are} missing and may not be made ({error}): allow CREATE, or"
                f" {by_hand}"
            ) from error
        except WindowConsumerError as error:
            raise MissingTopicError(
                f"{place}: {names} could not be made ({error}): {by_hand}"
            ) from error
        deadline = monotonic() + _APPEARS_S
        while len(there := self.cluster.topics([each.name for each in missing])) < len(missing):
            if monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{names}: made, but not to be seen yet: try again, or {by_hand}"
                )
        return there
