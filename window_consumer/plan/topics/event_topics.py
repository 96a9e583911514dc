"""Telemetry topics: created if missing; the workers run without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from window_consumer.config import Config, KafkaConfig, WorkerConfig, effective_kafka
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import (
    CONSUMER_ONLY,
    PRODUCER_ONLY,
    EventNeeds,
    Kind,
    admin_settings,
)
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.prepared_worker import Prepared

_ASK_S: Final = 5.0
"""How long a start waits for the cluster's answer about the topic; workers run without it."""

_PARTITIONS: Final = 4


@frozen
class EventPlace:
    """The cluster that telemetry is written to."""

    cluster: Cluster
    sources: Sequence[str]
    """Source topics on it. Telemetry topics get the same replication."""


@frozen
class EventTopic:
    """A topic that telemetry is written to."""

    name: str
    section: str
    """The section of the configuration that requires it."""
    what: str
    """A description of its records."""
    purpose: str
    """Its purpose, for the reasons of permissions."""
    without_it: str
    """The effect while it is not writable."""
    retention_ms: int

    def prepare(self, plan: AppPlan, prepared: Prepared, event: LogEvent) -> None:
        """Create the topic if it is missing and that is allowed; log its problem as ``event``."""
        problem = self.problem(plan, event_place(plan, prepared))
        if problem is not None:
            LOGGER.warning("%s", plan.mask(problem), extra={"event": event})

    def writer(self, plan: AppPlan, prepared: Prepared, needs: EventNeeds) -> EventWriter:
        """Return a new writer to the topic."""
        first = prepared.workers[0]
        properties = event_properties(plan.config, first.plan.config, "producer")
        return EventWriter(properties, needs, self.name, first.log, prepared.oauth_token)

    def problem(self, plan: AppPlan, place: EventPlace, *, dry: bool = False) -> str | None:
        """Return a description of its problem, None if there is none.

        Creates the topic if it is missing and that is allowed; a ``dry`` run only checks whether it
        could be created.
        """
        subject = f"{self.section}: topic {self.name}"
        try:
            found = place.cluster.topics([self.name], _ASK_S).get(self.name)
            if found is None:
                return self._make(plan, place, dry=dry)
            if found.operations is not None and "WRITE" not in found.operations:
                needs = f"{self.section}: needs WRITE on topic {self.name}"
                return f"{needs}: add an ACL; {self.without_it}"
        except WindowConsumerError as error:
            return f"{subject}: {error}; {self.without_it}"
        return None

    def _make(self, plan: AppPlan, place: EventPlace, *, dry: bool) -> str | None:
        cluster = place.cluster
        models = cluster.topics(list(place.sources), _ASK_S).values() if place.sources else ()
        new = self.as_new(max((model.replication for model in models), default=1))
        by_hand = f"{self.without_it}; create it manually:\n  {new.command(cluster.bootstrap)}"
        missing = f"{self.section}: there is no topic {self.name}"
        if not plan.config.topics.create:
            return f"{missing} and topics.create is false; {by_hand}"
        try:
            cluster.create([new], _ASK_S, validate_only=dry)
        except WindowConsumerError as error:
            return f"{missing}, and it cannot be created ({error}); {by_hand}"
        return None

    def as_new(self, replication: int) -> NewCopyTopic:
        """Return the topic to create."""
        config = {"cleanup.policy": "delete", "retention.ms": str(self.retention_ms)}
        return NewCopyTopic(self.name, _PARTITIONS, replication, config)


def event_properties(config: Config, first: WorkerConfig, kind: Kind) -> Mapping[str, Any]:
    """Return the Kafka properties for clients of telemetry.

    They come from the top of the file; if those name no brokers, from the first worker.
    """
    only = {"consumer_only": CONSUMER_ONLY, "producer_only": PRODUCER_ONLY}
    at_the_top = effective_kafka(config, evolve(first, kafka=KafkaConfig()), kind, **only)
    if "bootstrap.servers" in at_the_top:
        return at_the_top
    return effective_kafka(config, first, kind, **only)


def event_place(plan: AppPlan, prepared: Prepared) -> EventPlace:
    """Return the cluster for telemetry, often a worker's own."""
    properties = event_properties(plan.config, plan.workers[0].config, "admin")
    bootstrap = str(properties.get("bootstrap.servers", ""))
    there = [each for each in prepared.workers if each.cluster.bootstrap == bootstrap]
    if there:
        return EventPlace(there[0].cluster, [name for each in there for name in each.topics])
    log = prepared.workers[0].log
    own = admin_settings(properties, "telemetry")
    return EventPlace(Cluster(own, log, prepared.oauth_token), ())
