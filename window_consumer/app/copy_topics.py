"""Topics for copies: found, checked, and made where they are missing and that is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from window_consumer.app.plan import Plan, PlannedWorker
from window_consumer.core.copies import Target
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.topics import COPY_HEADROOM_BYTES, NewCopyTopic, Topic
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    WindowConsumerError,
)

_CREATE_AGAIN_S = 10.0
_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

_MOST_MESSAGE_BYTES = 2**31 - 1
"""Kafka takes no more for max.message.bytes."""


class CopyTopics:
    """The dead-letter topics of one worker. A ``dry`` one only asks whether they could be made."""

    def __init__(self, plan: Plan, worker: PlannedWorker, cluster: Cluster, *, dry: bool):
        self._plan = plan
        self._worker = worker
        self._cluster = cluster
        self._dry = dry

    def of(self, topics: Mapping[str, Topic]) -> dict[str, Target]:
        """Find, or make, the dead-letter topic of each source topic.

        Raises MissingTopicError and NotPermittedError with what has to be done.
        """
        wanted = {name: self._dlq_of(name) for name in topics}
        there = self._existing(list(wanted.values()))
        missing = [
            self._new(topic, wanted[name])
            for name, topic in topics.items()
            if wanted[name] not in there
        ]
        if missing:
            there.update(self._make(missing))
        targets = {}
        for name, topic in topics.items():
            target = there[wanted[name]]
            if target.operations is not None and "WRITE" not in target.operations:
                lacks = missing_right(self._worker, "WRITE", f"topic {target.name}")
                raise NotPermittedError(lacks)
            targets[name] = Target(target.name, target.partitions, topic.partitions)
        return targets

    def _existing(self, names: Sequence[str]) -> dict[str, Topic]:
        """Describe dead-letter topics; one that we may not see counts as missing."""
        found = {}
        for name in names:
            try:
                found.update(self._cluster.topics([name]))
            except NotPermittedError:
                continue
        return found

    def _make(self, missing: Sequence[NewCopyTopic]) -> dict[str, Topic]:
        commands = "\n".join(f"  {each.command(self._cluster.bootstrap)}" for each in missing)
        names = ", ".join(each.name for each in missing)
        by_hand = f"make {'it' if len(missing) == 1 else 'them'} by hand:\n{commands}"
        where = self._plan.where("workers", self._worker.name, "group")
        place = f"{where}: workers.{self._worker.name}"
        if not self._plan.config.topics.create:
            raise MissingTopicError(
                f"{place}: the dead-letter topic {names} is missing and topics.create is false:"
                f" {by_hand}"
            )
        try:
            self._cluster.create(missing, validate_only=self._dry)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{place}: the dead-letter topic {names} is missing and may not be made"
                f" ({error}): allow CREATE, or {by_hand}"
            ) from error
        except WindowConsumerError as error:
            raise MissingTopicError(
                f"{place}: the dead-letter topic {names} could not be made ({error}): {by_hand}"
            ) from error
        if self._dry:
            return {
                each.name: Topic(each.name, each.partitions, each.replication, None, None)
                for each in missing
            }
        return self._wait_for([each.name for each in missing], by_hand)

    def _wait_for(self, names: Sequence[str], by_hand: str) -> dict[str, Topic]:
        """Return topics once the cluster knows them, which takes it a moment."""
        deadline = monotonic() + _CREATE_AGAIN_S
        while True:
            there = self._cluster.topics(names)
            if len(there) == len(names):
                return there
            if monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{', '.join(names)} was made but does not appear: try again, or {by_hand}"
                )

    def _new(self, source: Topic, name: str) -> NewCopyTopic:
        theirs = self._cluster.topic_config(source.name)
        max_bytes = int(theirs.get("max.message.bytes", _DEFAULT_MAX_MESSAGE_BYTES))
        config = {
            "cleanup.policy": "delete",
            "retention.ms": str(round(self._plan.config.topics.dlq_retention * 1000)),
            "max.message.bytes": str(min(max_bytes + COPY_HEADROOM_BYTES, _MOST_MESSAGE_BYTES)),
        }
        if "min.insync.replicas" in theirs:
            config["min.insync.replicas"] = theirs["min.insync.replicas"]
        return NewCopyTopic(name, source.partitions, source.replication, config)

    def _dlq_of(self, topic: str) -> str:
        return self._worker.config.dlq_topic(topic, self._plan.config.topics)


def missing_right(worker: PlannedWorker, operation: str, resource: str) -> str:
    """Say which permission a worker lacks."""
    return f"workers.{worker.name}: not authorised: needs {operation} on {resource}: add an ACL"
