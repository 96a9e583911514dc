"""Topics for copies: finds and checks them, and creates missing ones if permitted.

Retry topics have as many partitions as their source, so that a record and its copies have the same
owner. When a source grows, its retry topics and its topic for redriven records grow with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from attrs import evolve, frozen

from window_consumer.config.names import wrong_name
from window_consumer.engine.retry.copy_record import Target
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic, Topic
from window_consumer.model.errors import (
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    NotPermittedError,
    WindowConsumerError,
)
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.ladder_topics import (
    SEE_PLAN,
    CopyTopic,
    Model,
    copy_topics,
    new_copy_topic,
)

_CREATE_AGAIN_S = 10.0


@frozen
class Ladder:
    """The topics for copies of one source topic's records."""

    levels: Mapping[Level, Target]
    dead_letters: Target | None
    """None if no record can become a dead letter."""
    park: Target | None = None
    """Where successors of a failed record wait; None if they do not wait."""

    def target(self, level: Level | None) -> Target:
        """Return the topic of a level; for None, the dead-letter topic."""
        found = self.dead_letters if level is None else self.levels[level]
        if found is None:
            msg = "this worker writes no dead letters"
            raise LookupError(msg)
        return found

    @property
    def targets(self) -> list[Target]:
        """All topics of the ladder."""
        return [*self.levels.values(), *filter(None, (self.dead_letters, self.park))]


class CopyTopics:
    """The topics for copies of one worker. ``dry`` only checks whether they could be created."""

    def __init__(self, plan: AppPlan, worker: PlannedWorker, cluster: Cluster, *, dry: bool):
        self._plan = plan
        self._worker = worker
        self._cluster = cluster
        self._dry = dry
        self._planned: dict[str, NewCopyTopic] = {}
        """The topics that a dry run would have created."""

    def of(self, topics: Mapping[str, Topic]) -> dict[str, Ladder]:
        """Find or create the topics for the copies of each source topic's records.

        Raises MissingTopicError and NotPermittedError with instructions.
        """
        config, all_topics = self._worker.config, self._plan.config.topics
        dead_letters = self._worker.writes_dead_letters
        wanted = [
            each
            for name in topics
            for each in copy_topics(config, all_topics, name, dead_letters=dead_letters)
        ]
        for each in wanted:
            self._check_name(each)
        there = self._existing([each.name for each in wanted])
        missing = [each for each in wanted if each.name not in there]
        if missing:
            new = [self.new(each, topics[each.source]) for each in missing]
            there.update(self.make(_named(missing), new))
        for each in wanted:
            self._check_rights(there[each.name], each)
            if each.is_read:
                there[each.name] = self._widened(there[each.name], topics[each.source])
        return {
            name: self._ladder(topic, [each for each in wanted if each.source == name], there)
            for name, topic in topics.items()
        }

    def _ladder(
        self, source: Topic, wanted: Sequence[CopyTopic], there: Mapping[str, Topic]
    ) -> Ladder:
        targets = {
            each: Target(each.name, there[each.name].partitions, source.partitions)
            for each in wanted
        }
        levels = {each.level: target for each, target in targets.items() if each.level}
        dead_letters = [target for each, target in targets.items() if not each.is_read]
        park = [target for each, target in targets.items() if each.is_park]
        return Ladder(levels, next(iter(dead_letters), None), next(iter(park), None))

    def _check_name(self, wanted: CopyTopic) -> None:
        """Raise ConfigError for a name that Kafka refuses; patterns match names of any length."""
        wrong = wrong_name(wanted.name)
        if wrong is not None:
            key, what = wanted.key, wanted.kind
            place = self._plan.where("workers", self._worker.name, "group")
            raise ConfigError(
                f"{place}: workers.{self._worker.name}: the {what} topic of {wanted.source} would"
                f" be {wanted.name}, which {wrong}: choose a shorter group or topics.{key}, or a"
                " pattern that does not match this topic"
            )

    def _check_rights(self, topic: Topic, wanted: CopyTopic) -> None:
        needed = ("WRITE", "READ") if wanted.is_read else ("WRITE",)
        for operation in needed:
            if topic.operations is not None and operation not in topic.operations:
                lacks = missing_right(self._worker.name, operation, f"topic {topic.name}")
                raise NotPermittedError(lacks)

    def widen(self, names: Mapping[str, Topic]) -> None:
        """Give topics with copies, by name, as many partitions as their source topics have.

        Otherwise a copy's partition and that of its source could have two owners.
        """
        for name, topic in self._existing(list(names)).items():
            self._widened(topic, names[name])

    def _widened(self, topic: Topic, source: Topic) -> Topic:
        """Give a topic with copies as many partitions as its source has."""
        if topic.partitions >= source.partitions or self._dry:
            return topic
        by_hand = (
            f"kafka-topics.sh --bootstrap-server {self._cluster.bootstrap} --alter"
            f" --topic {topic.name} --partitions {source.partitions}\n{SEE_PLAN}"
        )
        why = (
            f"workers.{self._worker.name}: {topic.name} has {topic.partitions} partitions and"
            f" {source.name} {source.partitions}"
        )
        if not self._plan.config.topics.create:
            raise MissingTopicError(
                f"{why}, and topics.create is false: give it as many:\n  {by_hand}"
            )
        try:
            self._cluster.widen(topic.name, source.partitions)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{why}, which may not be changed ({error}): allow ALTER on it, or give it as many"
                f" by hand:\n  {by_hand}"
            ) from error
        return evolve(topic, partitions=source.partitions)

    def _existing(self, names: Sequence[str]) -> dict[str, Topic]:
        """Describe topics for copies; a topic without permission counts as missing."""
        found = {}
        for name in names:
            try:
                found.update(self._cluster.topics([name]))
            except NotPermittedError:
                continue
        return found

    def make(self, what: str, missing: Sequence[NewCopyTopic]) -> dict[str, Topic]:
        """Create topics, which ``what`` describes, and return them once they exist."""
        commands = "\n".join(f"  {each.command(self._cluster.bootstrap)}" for each in missing)
        is_one = len(missing) == 1
        by_hand = f"create {'it' if is_one else 'them'} manually:\n{commands}\n{SEE_PLAN}"
        lacks = f"{what} {'is' if is_one else 'are'} missing"
        where = self._plan.where("workers", self._worker.name, "group")
        place = f"{where}: workers.{self._worker.name}"
        if not self._plan.config.topics.create:
            raise MissingTopicError(f"{place}: {lacks} and topics.create is false: {by_hand}")
        try:
            self._cluster.create(missing, validate_only=self._dry)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{place}: {lacks} and may not be created ({error}): allow CREATE, or {by_hand}"
            ) from error
        except WindowConsumerError as error:
            raise MissingTopicError(
                f"{place}: {what} could not be created ({error}): {by_hand}"
            ) from error
        if self._dry:
            self._planned |= {each.name: each for each in missing}
            return {
                each.name: Topic(each.name, each.partitions, each.replication, None, None)
                for each in missing
            }
        return self._wait_for([each.name for each in missing], by_hand)

    def _wait_for(self, names: Sequence[str], by_hand: str) -> dict[str, Topic]:
        """Return topics once the cluster shows them, which takes a moment."""
        deadline = monotonic() + _CREATE_AGAIN_S
        while True:
            there = self._cluster.topics(names)
            if len(there) == len(names):
                return there
            if monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{', '.join(names)} was created but does not appear: try again, or {by_hand}"
                )

    def new(self, wanted: CopyTopic, source: Topic) -> NewCopyTopic:
        """Return the topic to create, with settings derived from its source."""
        planned = self._planned.get(source.name)
        settings = planned.config if planned else self._cluster.topic_config(source.name)
        model = Model.of(source, settings)
        return new_copy_topic(wanted, model, self._plan.config.topics)


def _named(wanted: Sequence[CopyTopic]) -> str:
    what = " and ".join(dict.fromkeys(each.kind for each in wanted))
    return f"the {what} topic{'s' if len(wanted) > 1 else ''} {', '.join(e.name for e in wanted)}"


def missing_right(worker: str, operation: str, resource: str) -> str:
    """Describe the permission that a worker lacks."""
    lacks = f"workers.{worker}: not authorised: needs {operation} on {resource}"
    return f"{lacks}: add an ACL, see window-consumer topics plan"
