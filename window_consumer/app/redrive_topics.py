"""The topics of a redrive: found, checked, and made where they are missing and that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from attrs import frozen

from window_consumer.app.ladder_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    SEE_PLAN,
    Model,
    new_entry,
    new_state,
)
from window_consumer.config import ENTRY, Loaded, WorkerConfig
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.topics import NewCopyTopic, Topic
from window_consumer.messaging.returning import Destination
from window_consumer.messaging.state import state_topic
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    UsageError,
    WindowConsumerError,
)

_APPEARS_S = 10.0


@frozen
class RedriveTopics:
    """The topics that take part in putting back the dead letters of one source topic."""

    source: str
    dead_letters: Topic
    to: Destination
    state: str
    remembers: bool
    """Whether the state topic was there before: one that was just made holds nothing."""
    max_message_bytes: int
    """Of the topic that the records go to, as far as the cluster tells."""


@frozen
class TopicSearch:
    """Finds and makes the topics of one worker's redrives. A ``dry`` one makes none."""

    loaded: Loaded
    worker: WorkerConfig
    cluster: Cluster
    to_source: bool
    dry: bool

    def of(self, source: str) -> RedriveTopics | None:
        """Return the topics of a source topic; None where it has no dead-letter topic.

        Raises MissingTopicError and NotPermittedError with what has to be done, UsageError for a
        source topic that must not be written to.
        """
        names = self.loaded.config.topics
        dead_letters = self.worker.dlq_topic(source, names)
        entry = self.worker.retry_topic(source, ENTRY, names)
        state = state_topic(self.worker.group)
        there = self._existing([source, dead_letters, entry, state])
        if dead_letters not in there:
            return None
        model = there.get(source, there[dead_letters])
        theirs = self.cluster.topic_config(model.name)
        likeness = Model.of(model, theirs)
        target = source if self.to_source else entry
        remembers = state in there
        if self.to_source:
            self._check_source(source, there, theirs)
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
        self._check_rights(there, dead_letters, [target, state])
        partitions = there[target].partitions if target in there else model.partitions
        settings = self.cluster.topic_config(target) if target in there else {}
        return RedriveTopics(
            source,
            there[dead_letters],
            Destination(target, partitions, model.partitions, of_the_ladder=not self.to_source),
            state,
            remembers,
            int(settings.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
        )

    def _check_source(
        self, source: str, there: Mapping[str, Topic], settings: Mapping[str, str]
    ) -> None:
        if source not in there:
            raise MissingTopicError(f"--to-source: there is no topic {source} any more")
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

    def _existing(self, names: Sequence[str]) -> dict[str, Topic]:
        """Describe topics; one that we may not see counts as missing."""
        found = {}
        for name in names:
            try:
                found.update(self.cluster.topics([name]))
            except NotPermittedError:
                continue
        return found

    def _check_rights(
        self, there: Mapping[str, Topic], dead_letters: str, written: Sequence[str]
    ) -> None:
        needs = [(dead_letters, "READ"), *((name, "WRITE") for name in written)]
        for name, operation in needs:
            topic = there.get(name)
            if topic and topic.operations is not None and operation not in topic.operations:
                raise NotPermittedError(
                    f"workers.{self.worker.name}: not authorised: needs {operation} on topic"
                    f" {name}: add an ACL, see window-consumer topics plan"
                )

    def _make(self, missing: Sequence[NewCopyTopic]) -> dict[str, Topic]:
        commands = "\n".join(f"  {each.command(self.cluster.bootstrap)}" for each in missing)
        names = ", ".join(each.name for each in missing)
        by_hand = f"make {'it' if len(missing) == 1 else 'them'} by hand:\n{commands}\n{SEE_PLAN}"
        place = f"workers.{self.worker.name}"
        if not self.loaded.config.topics.create:
            raise MissingTopicError(
                f"{place}: {names} is missing and topics.create is false: {by_hand}"
            )
        try:
            self.cluster.create(missing)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{place}: {names} is missing and may not be made ({error}): allow CREATE, or"
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
                    f"{names} was made but does not appear: try again, or {by_hand}"
                )
        return there
