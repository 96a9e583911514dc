"""The topics of a worker: finds and checks them, and creates those for copies."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from window_consumer.config.sections.worker import OwnTopics
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    WindowConsumerError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import TopicFacts
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.built_in_workers import check_levels, check_source
from window_consumer.plan.ladder_topics import new_own_source
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.copy_topics import CopyTopics, Ladder, missing_right
from window_consumer.plan.topics.orphan_topics import leftovers
from window_consumer.plan.topics.patterns import matching_topics
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.plan.topics.problems import TopicTroubles, wider_copies

Errors = dict[str, WindowConsumerError]
"""Why topics cannot be prepared, by name."""


class Preparation:
    """The checks of one worker. Repeated while it runs, for new topics."""

    def __init__(
        self,
        plan: AppPlan,
        worker: PlannedWorker,
        cluster: Cluster,
        log: ClientLog,
        *,
        dry: bool = False,
    ):
        self._plan = plan
        self._worker = worker
        self._cluster = cluster
        self._log = log
        self._dry = dry
        self._copy_topics = CopyTopics(plan, worker, cluster, dry=dry)

    def prepare(self, *, all_of_them: bool = True) -> PreparedWorker:
        """Return the worker with its topics; raises UsageError for user mistakes.

        Without ``all_of_them`` it may omit topics that its patterns match, with a log line, if at
        least one can be read.
        """
        config = self._worker.config
        names = self._matching() if config.patterns else list(config.topics)
        if config.patterns and not names:
            LOGGER.warning(
                "%s: no topic matches %s: waiting for one",
                self._worker.name,
                ", ".join(config.patterns),
                extra={"event": LogEvent.TOPIC_AWAITED},
            )
        troubles = TopicTroubles(self._worker.name, self._plan.mask)
        prepared = PreparedWorker(self._worker, self._cluster, self._log, {}, troubles=troubles)
        topics: dict[str, Topic] = {}
        errors: Errors = {}
        if config.patterns and not all_of_them:
            self._check_group()  # before anything is created
            topics = self._make_ready(prepared, names, errors)
        if topics:
            troubles.report(errors, names, prepared.described)
        else:
            topics = self._readable(names)
            self._check_group()
            prepared.ladders.update(self._copy_topics.of(topics))
            self._add_leftovers(prepared, topics, topics)
            prepared.described = {**topics, **self._cluster.topics(sorted(prepared.reads))}
        prepared.topics = {name: _facts(topic) for name, topic in topics.items()}
        if not self._dry:  # ``check`` prints the warnings itself
            for warning in wider_copies(config, prepared.retry_levels, prepared.described):
                LOGGER.warning(
                    "%s: %s", config.name, warning, extra={"event": LogEvent.RETRY_TOPIC_WIDENED}
                )
        return prepared

    def _make_ready(
        self, prepared: PreparedWorker, names: Sequence[str], errors: Errors
    ) -> dict[str, Topic]:
        """Prepare the copies' topics; return the readable source topics.

        Topics are independent: an error of one goes into ``errors`` and does not delay the others.
        """
        described = self._describe_each(prepared, names, errors)
        described |= self._own_made_again(described, names, errors)
        topics = {
            name: topic
            for name, topic in described.items()
            if name in prepared.ladders or self._may_read(topic, errors)
        }
        new = {
            name: topic
            for name, topic in topics.items()
            if name not in prepared.ladders or self._has_grown(prepared.ladders[name], topic)
        }
        prepared.ladders.update(self._ladders_of(new, errors))
        topics = {name: topic for name, topic in topics.items() if name in prepared.ladders}
        self._add_leftovers(prepared, topics, new, errors)
        prepared.described = {**topics, **self._copies_made_again(prepared, topics, errors)}
        return topics

    def _own_made_again(
        self, described: Mapping[str, Topic], names: Sequence[str], errors: Errors
    ) -> dict[str, Topic]:
        """Recreate the topics of a built-in worker that were deleted."""
        own = self._worker.config.own_topics
        missing = [name for name in names if name not in described and name not in errors]
        if own is None or not missing:
            return {}
        try:
            return self._make_own(missing, own)
        except WindowConsumerError as error:
            errors.update(dict.fromkeys(missing, error))
            return {}

    def _copies_made_again(
        self, prepared: PreparedWorker, topics: Mapping[str, Topic], errors: Errors
    ) -> dict[str, Topic]:
        """Describe the retry topics, after recreating those that were deleted.

        Copies are held until their topic is there.
        """
        names = sorted(prepared.reads)
        copies = self._describe_each(prepared, names, errors)
        missing = [name for name in names if name not in copies and name not in errors]
        sources = {prepared.retry_levels[name].source for name in missing}
        incomplete = {name: topic for name, topic in topics.items() if name in sources}
        if incomplete and self._ladders_of(incomplete, errors):
            copies |= self._describe_each(prepared, missing, errors)
        return copies

    def _describe_each(
        self, prepared: PreparedWorker, names: Sequence[str], errors: Errors
    ) -> dict[str, Topic]:
        """Describe topics; one that cannot be described now keeps its last description."""
        try:
            return self._cluster.topics(names)
        except BrokerUnavailableError:
            raise
        except WindowConsumerError:
            found = {}
            for name in names:
                try:
                    found.update(self._cluster.topics([name]))
                except WindowConsumerError as error:
                    errors[name] = error
                    if name in prepared.described:
                        found[name] = prepared.described[name]
            return found

    def _may_read(self, topic: Topic, errors: Errors) -> bool:
        may = topic.operations is None or "READ" in topic.operations
        if not may:
            errors[topic.name] = NotPermittedError(self._lacks("READ", f"topic {topic.name}"))
        return may

    def _ladders_of(self, topics: Mapping[str, Topic], errors: Errors) -> dict[str, Ladder]:
        """Prepare the copies' topics: all at once, or one by one if that fails."""
        try:
            return self._copy_topics.of(topics)
        except WindowConsumerError:
            found = {}
            for name, topic in topics.items():
                try:
                    found.update(self._copy_topics.of({name: topic}))
                except WindowConsumerError as error:
                    errors[name] = error
            return found

    def _add_leftovers(
        self,
        prepared: PreparedWorker,
        topics: Mapping[str, Topic],
        new: Container[str],
        errors: Errors | None = None,
    ) -> None:
        """Find the topics with copies to read; without ``errors``, raise errors."""
        if self._worker.config.is_broadcast:
            return  # it has no ladder
        prepared.leftovers = leftovers(
            self._plan, self._worker, self._cluster, list(topics), self._cluster.topic_names()
        )
        read = {each.name: each.retry_level for each in prepared.leftovers if each.is_read}
        for name, retry_level in read.items():
            if retry_level.source in new or name not in prepared.reads or name in prepared.troubles:
                try:
                    self._copy_topics.widen({name: topics[retry_level.source]})
                except WindowConsumerError as error:
                    if errors is None:
                        raise
                    errors[name] = error
        for name in topics:
            levels = prepared.ladders[name].levels
            read |= {
                target.topic: RetryTopicLevel(name, level, is_copy=True)
                for level, target in levels.items()
            }
            if (park := prepared.ladders[name].park) is not None:
                read[park.topic] = RetryTopicLevel(name, is_copy=True)
        prepared.retry_levels.update(read)
        # ``retry_levels`` keeps topics that are no longer read: records in flight may refer to
        # them.
        prepared.reads = frozenset(read)

    @staticmethod
    def _has_grown(ladder: Ladder, topic: Topic) -> bool:
        return any(target.source_partitions != topic.partitions for target in ladder.targets)

    def _matching(self) -> list[str]:
        return matching_topics(self._plan.config, self._worker.config, self._cluster.topic_names())

    def _readable(self, names: Sequence[str]) -> dict[str, Topic]:
        topics = self._described_or_made(names)
        missing = [name for name in names if name not in topics]
        if missing:
            place = self._plan.where("workers", self._worker.name, "topics")
            raise MissingTopicError(
                f"{place}: workers.{self._worker.name}: the cluster at {self._cluster.bootstrap}"
                f" has no topic {', '.join(missing)}: create it, or correct the name"
            )
        for topic in topics.values():
            if topic.operations is not None and "READ" not in topic.operations:
                raise NotPermittedError(self._lacks("READ", f"topic {topic.name}"))
        return topics

    def _described_or_made(self, names: Sequence[str]) -> dict[str, Topic]:
        """Describe topics; a built-in worker creates its own."""
        topics = self._describe(names)
        own = self._worker.config.own_topics
        if own is None:
            return topics
        for name in topics:
            settings = self._cluster.topic_config(name)
            check_source(self._worker.config, name, settings, self._where())
        missing = [name for name in names if name not in topics]
        if not missing:
            return topics
        return {**topics, **self._make_own(missing, own)}

    def _make_own(self, missing: Sequence[str], own: OwnTopics) -> dict[str, Topic]:
        new = [new_own_source(name, own) for name in missing]
        return self._copy_topics.make(f"topic {', '.join(missing)}", new)

    def _describe(self, names: Sequence[str]) -> dict[str, Topic]:
        try:
            return self._cluster.topics(names)
        except NotPermittedError as error:
            lacks = self._lacks("DESCRIBE and READ", f"topics {', '.join(names)}")
            raise NotPermittedError(f"{lacks} ({error})") from error

    def _check_group(self) -> None:
        name = self._worker.config.group
        if not name:
            return
        try:
            group = self._cluster.group(name)
        except NotPermittedError as error:
            raise NotPermittedError(f"{self._lacks('READ', f'group {name}')} ({error})") from error
        if group.operations is not None and "READ" not in group.operations:
            raise NotPermittedError(self._lacks("READ", f"group {name}"))
        check_levels(self._worker.config, group, self._where())

    def _where(self) -> str:
        return self._plan.where("workers", self._worker.name)

    def _lacks(self, operation: str, resource: str) -> str:
        return missing_right(self._worker.name, operation, resource)

    def refresh(self, prepared: PreparedWorker) -> Mapping[str, TopicFacts]:
        """Return the topics to read now, after preparing new ones.

        Omits a topic that no longer exists. Called while the worker runs, on a separate thread.
        """
        config = self._worker.config
        names = self._matching() if config.patterns else list(config.topics)
        errors: Errors = {}
        self._make_ready(prepared, names, errors)
        there = {*names, *prepared.reads}
        prepared.troubles.report(errors, there, prepared.described)
        return {name: _facts(topic) for name, topic in prepared.described.items()}


def _facts(topic: Topic) -> TopicFacts:
    return TopicFacts(topic.partitions, topic.topic_id)
