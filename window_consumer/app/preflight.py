"""Preflight: what is asked of the cluster before the first record is taken.

Topics exist, we may read and write what we need, dead-letter topics are there or are made.
``run`` and ``check --connect`` ask the same questions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
from time import monotonic

from attrs import define, field, frozen

from window_consumer.app.plan import Plan, PlannedWorker
from window_consumer.core.copies import Target
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import (
    COPY_HEADROOM_BYTES,
    Cluster,
    NewCopyTopic,
    OauthToken,
    Topic,
)
from window_consumer.kafka.settings import admin_settings
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    StartStoppedError,
    WindowConsumerError,
)
from window_consumer.model.protocols import TopicFacts

LOGGER = logging.getLogger("window_consumer")

SAY_S = 5.0
"""While no broker answers, a line says so this often."""

_CREATE_AGAIN_S = 10.0
_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

_MOST_MESSAGE_BYTES = 2**31 - 1
"""Kafka takes no more for max.message.bytes."""


@define
class PreparedWorker:
    """A worker whose topics are there. Its topics may grow in number where it has patterns."""

    plan: PlannedWorker
    cluster: Cluster
    log: ClientLog
    topics: dict[str, TopicFacts]
    targets: dict[str, Target] = field(factory=dict)
    """The dead-letter topic of each source topic."""


@frozen
class Prepared:
    """The workers, ready to run."""

    workers: tuple[PreparedWorker, ...]
    oauth_token: OauthToken | None
    warnings: tuple[str, ...] = ()


def prepare(
    plan: Plan, oauth_token: OauthToken | None, patience: Patience, *, dry: bool = False
) -> Prepared:
    """Check the cluster for all workers and make the dead-letter topics that are missing.

    A ``dry`` run only asks whether they could be made.
    Raises UsageErrors for what has to be put right, AuthenticationError,
    BrokerUnavailableError, and StartStoppedError.
    """
    prepared = []
    for worker in plan.workers:
        log = ClientLog(LOGGER.getChild("client"), plan.mask)
        cluster = Cluster(admin_settings(worker.admin, worker.name), log, oauth_token)
        cluster.wait_until_there(patience.left_s(), patience.waiting(worker.name, cluster))
        prepared.append(Preparation(plan, worker, cluster, log, dry=dry).prepare())
    return Prepared(tuple(prepared), oauth_token)


class Patience:
    """How long to wait for a broker, and what to say meanwhile."""

    def __init__(
        self, timeout_s: float | None = None, stop_asked: Callable[[], bool] = lambda: False
    ):
        self._deadline = inf if timeout_s is None else monotonic() + timeout_s
        self._stop_asked = stop_asked
        self._said_at = -inf

    def left_s(self) -> float:
        """Return the seconds that are left, infinity where there is no end."""
        return max(0.0, self._deadline - monotonic())

    def waiting(self, worker: str, cluster: Cluster) -> Callable[[str, float], None]:
        """Return what is called while a worker waits for its cluster."""

        def on_wait(reason: str, waited_s: float) -> None:
            if self._stop_asked():
                raise StartStoppedError("stopped while waiting for a broker")
            if monotonic() - self._said_at >= SAY_S:
                self._said_at = monotonic()
                LOGGER.warning(
                    "%s: no broker at %s answers (%s); trying for %.0f s now",
                    worker,
                    cluster.bootstrap,
                    reason,
                    waited_s,
                )

        return on_wait


class Preparation:
    """The questions of one worker. Also asked again while it runs, for topics that are new."""

    def __init__(
        self,
        plan: Plan,
        worker: PlannedWorker,
        cluster: Cluster,
        log: ClientLog,
        *,
        dry: bool = False,
    ):
        self._dry = dry
        self._plan = plan
        self._worker = worker
        self._cluster = cluster
        self._log = log

    def prepare(self) -> PreparedWorker:
        """Return the worker with its topics; raises a UsageError for what has to be put right."""
        names = self._topic_names()
        topics = self._readable(names)
        self._check_group()
        prepared = PreparedWorker(
            self._worker,
            self._cluster,
            self._log,
            {name: TopicFacts(topic.partitions, topic.topic_id) for name, topic in topics.items()},
        )
        if self._worker.writes_copies:
            self.add_targets(prepared, topics)
        return prepared

    def _topic_names(self) -> list[str]:
        config = self._worker.config
        if not config.patterns:
            return list(config.topics)
        names = self._matching(config.patterns)
        if not names:
            LOGGER.warning(
                "%s: no topic matches %s yet", self._worker.name, ", ".join(config.patterns)
            )
        return names

    def _matching(self, patterns: Sequence[str]) -> list[str]:
        names = self._cluster.topic_names()
        config = self._plan.config
        copies = {
            worker.dlq_topic(name, config.topics)
            for worker in config.workers.values()
            for name in names
        }
        return matching(patterns, names, copies)

    def _readable(self, names: Sequence[str]) -> dict[str, Topic]:
        topics = self._describe(names)
        missing = [name for name in names if name not in topics]
        if missing:
            raise MissingTopicError(
                f"{self._where('topics')}: workers.{self._worker.name}: the cluster at"
                f" {self._cluster.bootstrap} has no topic {', '.join(missing)}: create it, or"
                " correct the name"
            )
        for topic in topics.values():
            if topic.operations is not None and "READ" not in topic.operations:
                raise NotPermittedError(self._needs("READ", f"topic {topic.name}"))
        return topics

    def _describe(self, names: Sequence[str]) -> dict[str, Topic]:
        try:
            return self._cluster.topics(names)
        except NotPermittedError as error:
            raise NotPermittedError(
                f"{self._needs('DESCRIBE and READ', 'topics ' + ', '.join(names))} ({error})"
            ) from error

    def _check_group(self) -> None:
        group = self._worker.config.group
        try:
            operations = self._cluster.group(group).operations
        except NotPermittedError as error:
            raise NotPermittedError(f"{self._needs('READ', f'group {group}')} ({error})") from error
        if operations is not None and "READ" not in operations:
            raise NotPermittedError(self._needs("READ", f"group {group}"))

    def add_targets(self, prepared: PreparedWorker, topics: Mapping[str, Topic]) -> None:
        """Find, or make, the dead-letter topic of each source topic."""
        wanted = {name: self._dlq_of(name) for name in topics}
        there = self._existing(list(wanted.values()))
        missing = [
            self._new(topic, wanted[name])
            for name, topic in topics.items()
            if wanted[name] not in there
        ]
        if missing:
            there.update(self._make(missing))
        for name, topic in topics.items():
            target = there[wanted[name]]
            if target.operations is not None and "WRITE" not in target.operations:
                raise NotPermittedError(self._needs("WRITE", f"topic {target.name}"))
            prepared.targets[name] = Target(target.name, target.partitions, topic.partitions)

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
        place = f"{self._where('group')}: workers.{self._worker.name}"
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

    def refresh(self, prepared: PreparedWorker) -> Mapping[str, TopicFacts]:
        """Return the topics that should be read now, the new ones made ready.

        A topic that is gone is left out. Called while the worker runs, on a thread of its own.
        """
        patterns = self._worker.config.patterns
        names = self._matching(patterns) if patterns else list(self._worker.config.topics)
        topics = self._cluster.topics(names)
        new = {name: topic for name, topic in topics.items() if name not in prepared.targets}
        if new and self._worker.writes_copies:
            self.add_targets(prepared, new)
        return {
            name: TopicFacts(topic.partitions, topic.topic_id) for name, topic in topics.items()
        }

    def _dlq_of(self, topic: str) -> str:
        return self._worker.config.dlq_topic(topic, self._plan.config.topics)

    def _where(self, key: str) -> str:
        return self._plan.where("workers", self._worker.name, key)

    def _needs(self, operation: str, resource: str) -> str:
        return (
            f"workers.{self._worker.name}: not authorised: needs {operation} on {resource}: add an"
            " ACL"
        )


def matching(patterns: Sequence[str], names: Sequence[str], copies: Container[str]) -> list[str]:
    """Return the topics that a pattern is found in; topics for copies never match.

    Patterns are searched here, not by the broker: the two group protocols disagree about what
    matches. Topics for copies are those in ``copies`` (ours), and whatever ends in ``.dlq`` or
    ``.retry.<level>`` behind a group and the name of a topic that exists, whoever made it. The
    cluster's internal topics do not match either.
    """
    there = set(names)
    compiled = [re.compile(pattern) for pattern in patterns]
    return [
        name
        for name in names
        if any(pattern.search(name) for pattern in compiled)
        and not name.startswith("__")
        and name not in copies
        and not _looks_like_a_copy(name, there)
    ]


def _looks_like_a_copy(name: str, there: Container[str]) -> bool:
    """Tell whether ``<group>.<topic>`` stands before the ending; both may contain dots."""
    parts = name.split(".")
    if parts[-1] == "dlq":
        middle = parts[:-1]
    elif parts[-2:-1] == ["retry"]:
        middle = parts[:-2]
    else:
        return False
    return any(".".join(middle[start:]) in there for start in range(1, len(middle)))
