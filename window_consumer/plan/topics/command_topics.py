"""The topics of commands: finds, checks and, if permitted, creates them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from time import monotonic

from attrs import frozen

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import NewCopyTopic, Topic
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    UsageError,
    WindowConsumerError,
)
from window_consumer.plan.ladder_topics import SEE_PLAN
from window_consumer.plan.topics.copy_topics import missing_right

_APPEARS_S = 10.0


def refuse_broadcast(loaded: LoadedConfig, worker: WorkerConfig) -> None:
    """Raise UsageError for a command on a worker with ``delivery: broadcast``."""
    if worker.is_broadcast:
        where = loaded.where(("workers", worker.name, "delivery"))
        raise UsageError(
            f"--worker {worker.name}: its delivery is broadcast ({where}): it has no group, no"
            " retry topics and no dead letters, and each start begins at broadcast.from"
        )


@frozen
class CommandTopics:
    """Topics of one worker, for a command."""

    loaded: LoadedConfig
    worker: WorkerConfig
    cluster: Cluster

    def existing(self, names: Sequence[str]) -> tuple[dict[str, Topic], set[str]]:
        """Describe existing topics; also return the names that may not be described."""
        found, hidden = {}, set()
        for name in names:
            try:
                found.update(self.cluster.topics([name]))
            except NotPermittedError:
                hidden.add(name)
        return found, hidden

    def check_group(self, group: str) -> None:
        """Raise NotPermittedError if a progress group is denied: a reader would wait forever."""
        lacks = missing_right(self.worker.name, "READ", f"group {group}")
        try:
            operations = self.cluster.group(group).operations
        except NotPermittedError as error:
            raise NotPermittedError(f"{lacks} ({error})") from error
        if operations is not None and "READ" not in operations:
            raise NotPermittedError(lacks)

    def check_rights(
        self, there: Mapping[str, Topic], hidden: Collection[str], needs: Sequence[tuple[str, str]]
    ) -> None:
        """Raise NotPermittedError for a topic that does not allow its operation."""
        for name, operation in needs:
            topic = there.get(name)
            denied = topic and topic.operations is not None and operation not in topic.operations
            if denied or name in hidden:
                raise NotPermittedError(missing_right(self.worker.name, operation, f"topic {name}"))

    def make(self, missing: Sequence[NewCopyTopic], *, dry: bool = False) -> dict[str, Topic]:
        """Create topics and return them once they exist.

        A ``dry`` run only checks whether they could be created, and returns none. Raises
        NotPermittedError or MissingTopicError with the commands that create them.
        """
        commands = "\n".join(f"  {each.command(self.cluster.bootstrap)}" for each in missing)
        names = ", ".join(each.name for each in missing)
        are = "is" if len(missing) == 1 else "are"
        them = "it" if len(missing) == 1 else "them"
        by_hand = f"create {them} manually:\n{commands}\n{SEE_PLAN}"
        place = f"workers.{self.worker.name}"
        if not self.loaded.config.topics.create:
            raise MissingTopicError(
                f"{place}: {names} {are} missing and topics.create is false: {by_hand}"
            )
        try:
            self.cluster.create(missing, validate_only=dry)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{place}: {names} {are} missing and may not be created ({error}): allow CREATE, or"
                f" {by_hand}"
            ) from error
        except WindowConsumerError as error:
            raise MissingTopicError(
                f"{place}: {names} could not be created ({error}): {by_hand}"
            ) from error
        if dry:
            return {}
        deadline = monotonic() + _APPEARS_S
        while len(there := self.cluster.topics([each.name for each in missing])) < len(missing):
            if monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{names}: created, but not visible yet: try again, or {by_hand}"
                )
        return there
