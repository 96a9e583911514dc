"""The topics of telemetry: they are made where they are missing, and nothing depends on them."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from window_consumer.app.plan import Plan
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.topics import NewCopyTopic
from window_consumer.model.errors import WindowConsumerError

_ASK_S: Final = 5.0
"""So long a start waits for what the cluster says of the topic; nothing depends on it."""

_PARTITIONS: Final = 4


@frozen
class EventTopic:
    """A topic that telemetry is written to."""

    name: str
    section: str
    """The section of the configuration that wants it."""
    without_it: str
    """What happens as long as it cannot be written to."""
    retention_ms: int

    def problem(self, plan: Plan, cluster: Cluster, *, dry: bool = False) -> str | None:
        """Return what is wrong with it, None when all is well.

        It is made where it is missing and that is allowed; a ``dry`` run only asks whether it could
        be.
        """
        about = f"{self.section}: topic {self.name}"
        try:
            found = cluster.topics([self.name], _ASK_S).get(self.name)
            if found is None:
                return self._make(plan, cluster, dry=dry)
            if found.operations is not None and "WRITE" not in found.operations:
                needs = f"{self.section}: needs WRITE on topic {self.name}"
                return f"{needs}: add an ACL; {self.without_it}"
        except WindowConsumerError as error:
            return f"{about}: {error}; {self.without_it}"
        return None

    def _make(self, plan: Plan, cluster: Cluster, *, dry: bool) -> str | None:
        new = self.as_new(plan, cluster)
        by_hand = f"{self.without_it}; make it by hand:\n  {new.command(cluster.bootstrap)}"
        missing = f"{self.section}: there is no topic {self.name}"
        if not plan.config.topics.create:
            return f"{missing} and topics.create is false; {by_hand}"
        try:
            cluster.create([new], _ASK_S, validate_only=dry)
        except WindowConsumerError as error:
            return f"{missing}, and it cannot be made ({error}); {by_hand}"
        return None

    def as_new(self, plan: Plan, cluster: Cluster) -> NewCopyTopic:
        """Return it as it has to be made: as safe as the first source topic."""
        sources = [name for worker in plan.workers for name in worker.config.topics]
        model = next(iter(cluster.topics(sources[:1], _ASK_S).values()), None) if sources else None
        return NewCopyTopic(
            self.name,
            _PARTITIONS,
            1 if model is None else model.replication,
            {"cleanup.policy": "delete", "retention.ms": str(self.retention_ms)},
        )
