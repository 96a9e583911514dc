"""What the cluster says of itself: topics, their ids, rights and limits; and making topics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from itertools import chain, count
from typing import Any

from attrs import define, frozen
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    TopicDescription,
)

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.features import Features
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    NotPermittedError,
    RunError,
    WindowConsumerError,
)

OauthToken = Callable[[str], tuple[Any, ...]]
"""The client's oauth_cb: sasl.oauthbearer.config to (token, expiry in seconds since 1970, ...)."""

_POLL_S = 0.2
_NOT_READY_S = 20.0
_ASK_S = 5.0
_WAIT_S = 1.0
"""How long one question waits for an absent broker: a stop is noticed in between."""
COPY_HEADROOM_BYTES = 64 * 1024
"""How much larger than its source's records a copy may be: our headers."""


@frozen
class Topic:
    """A topic as the cluster describes it."""

    name: str
    partitions: int
    replication: int
    topic_id: str | None
    operations: frozenset[str] | None
    """What we may do with it (READ, WRITE, DESCRIBE ...); None where the cluster does not tell."""


@frozen
class Group:
    """A consumer group; None stands for what the cluster does not tell."""

    members: int | None
    operations: frozenset[str] | None


@frozen
class NewCopyTopic:
    """A topic for copies that is to be made."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]

    def command(self, bootstrap: str) -> str:
        """Return the shell command that makes the topic with Kafka's own tools."""
        settings = "".join(f" --config {key}={value}" for key, value in self.config.items())
        return (
            f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {self.name}"
            f" --partitions {self.partitions} --replication-factor {self.replication}{settings}"
        )


@define
class _Troubles:
    """What the client's error callback has said since the last question."""

    absent: KafkaError | None = None
    refused: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Keep the last error of each kind."""
        if errors.is_authentication(error):
            self.refused = error
        else:
            self.absent = error


class Cluster:
    """Questions to the cluster, each with a deadline. Any thread may ask, one at a time."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        log: ClientLog,
        oauth_token: OauthToken | None = None,
    ):
        self.bootstrap = str(settings.get("bootstrap.servers", ""))
        self.oauth_token = oauth_token
        self._troubles = _Troubles()
        self._pid = os.getpid()
        self._features = Features(log, settings)
        conf = {**settings, **self._features.settings()}
        conf["error_cb"] = self._troubles.note
        if oauth_token is not None:
            conf["oauth_cb"] = oauth_token
        try:
            self._admin = AdminClient(conf, logger=self._features)
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    def wait_until_there(self, timeout_s: float, on_wait: Callable[[str, float], None]) -> None:
        """Return once a broker answers.

        Calls ``on_wait(reason, seconds so far)`` after each question that got no answer. Raises
        AuthenticationError at once, BrokerUnavailableError after ``timeout_s``.
        """
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            ask_s = max(_POLL_S, min(_WAIT_S, timeout_s - waited))
            try:
                self._admin.list_topics(timeout=ask_s)
            except KafkaException as exception:
                self._raise_unless_absent(exception)
            else:
                return
            waited = time.monotonic() - started
            reason = errors.text_of(self._troubles.absent) if self._troubles.absent else "no answer"
            if waited >= timeout_s:
                raise BrokerUnavailableError(
                    f"no broker at {self.bootstrap} answered within {round(timeout_s, 1):g} s"
                    f" ({reason}): check kafka: bootstrap.servers and the network"
                )
            on_wait(reason, waited)

    def _raise_unless_absent(self, exception: KafkaException) -> None:
        self._admin.poll(0)  # serves the error callback
        refused = self._troubles.refused
        if refused is not None:
            raise AuthenticationError(
                f"the cluster at {self.bootstrap} refused us: {errors.text_of(refused)}: check"
                " sasl.mechanism, sasl.username and the password in `kafka:`"
            ) from exception
        error = errors.cause_of(exception)
        if error is None or not errors.is_absence(error):
            raise self._translate(exception, f"cluster at {self.bootstrap}") from exception

    def has_consumer_protocol(self) -> bool:
        """Tell whether the brokers that have answered know the consumer group protocol."""
        self._admin.poll(0)  # serves the log
        return not self._features.no_consumer_protocol

    # ---- topics

    def topic_names(self, timeout_s: float = _ASK_S) -> list[str]:
        """Return the names of all topics that we may see."""
        try:
            return sorted(self._admin.list_topics(timeout=timeout_s).topics)
        except KafkaException as exception:
            raise self._translate(exception, "list of topics") from exception

    def topics(
        self,
        names: Sequence[str],
        timeout_s: float = _ASK_S,
        patience_s: float = _NOT_READY_S,
    ) -> dict[str, Topic]:
        """Describe topics; those that do not exist are left out.

        A question waits for ``timeout_s``, and is asked again for ``patience_s`` where a broker
        is not ready.

        Raises NotPermittedError where describing is denied, a RunError in trouble.
        """

        def describe(wanted: Sequence[str]) -> Mapping[str, Future[Any]]:
            return self._admin.describe_topics(
                TopicCollection(list(wanted)),
                include_authorized_operations=True,
                request_timeout=timeout_s,
            )

        found = {}
        answers = describe(names) if names else {}
        for name, first in answers.items():
            futures = chain([first], (describe([name])[name] for _ in count()))
            try:
                description = self._answer(futures, f"topic {name}", timeout_s, patience_s)
            except MissingTopicError:
                continue
            except _UnsupportedError:
                return self._topics_by_metadata(names, timeout_s)
            found[name] = _topic(description)
        return found

    def _topics_by_metadata(self, names: Sequence[str], timeout_s: float) -> dict[str, Topic]:
        """Ask for topics the old way, without ids and rights; librdkafka's mock needs it."""
        found = {}
        for name in names:
            try:
                metadata = self._admin.list_topics(name, timeout=timeout_s).topics[name]
            except KafkaException as exception:
                raise self._translate(exception, f"topic {name}") from exception
            if metadata.error is not None:
                error = errors.translate(metadata.error, f"topic {name}")
                if isinstance(error, MissingTopicError):
                    continue
                raise error
            replicas = next(iter(metadata.partitions.values())).replicas
            found[name] = Topic(name, len(metadata.partitions), len(replicas), None, None)
        return found

    def topic_config(self, name: str, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return a topic's settings; empty where the cluster does not tell them."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        futures = (
            self._admin.describe_configs([resource], request_timeout=timeout_s)[resource]
            for _ in count()
        )
        try:
            entries = self._answer(futures, f"settings of topic {name}", timeout_s)
        except (_UnsupportedError, NotPermittedError):
            return {}
        return {key: entry.value for key, entry in entries.items() if entry.value is not None}

    def create(
        self,
        topics: Iterable[NewCopyTopic],
        timeout_s: float = 30.0,
        *,
        validate_only: bool = False,
    ) -> None:
        """Make topics, or with ``validate_only`` ask whether they could be made.

        One that exists already is fine. librdkafka's mock knows no such request: it makes a topic,
        with a number of partitions of its own, when it is asked about one.
        """
        wanted = list(topics)
        if not wanted:
            return
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication,
                config=dict(topic.config),
            )
            for topic in wanted
        ]
        futures = self._admin.create_topics(
            new,
            operation_timeout=timeout_s,
            request_timeout=timeout_s,
            validate_only=validate_only,
        )
        for topic in wanted:
            try:
                self._answer(iter([futures[topic.name]]), f"making topic {topic.name}", timeout_s)
            except _AlreadyThereError:
                continue
            except _UnsupportedError:
                if not validate_only:
                    self._topics_by_metadata([topic.name], timeout_s)

    # ---- rights and groups

    def group(self, group: str, timeout_s: float = _ASK_S) -> Group:
        """Describe a consumer group; one that has never existed has no members."""
        futures = (
            self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=timeout_s
            )[group]
            for _ in count()
        )
        try:
            description = self._answer(futures, f"group {group}", timeout_s)
        except (_UnsupportedError, _NoGroupError):
            return Group(None, None)
        return Group(len(description.members), _operations(description.authorized_operations))

    def broker_config(self, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return one broker's settings; empty where the cluster does not tell them."""
        brokers = self._admin.list_topics(timeout=timeout_s).brokers
        resource = ConfigResource(ConfigResource.Type.BROKER, str(min(brokers)))
        futures = (
            self._admin.describe_configs([resource], request_timeout=timeout_s)[resource]
            for _ in count()
        )
        try:
            entries = self._answer(futures, "settings of a broker", timeout_s)
        except (_UnsupportedError, NotPermittedError):
            return {}
        return {key: entry.value for key, entry in entries.items() if entry.value is not None}

    # ---- answers

    def _answer(
        self,
        futures: Iterator[Future[Any]],
        what: str,
        timeout_s: float,
        patience_s: float = _NOT_READY_S,
    ) -> Any:
        """Return the first answer; ask again where a broker only was not ready to give one.

        Each item of ``futures`` is one question. A coordinator that loads its groups, or has just
        moved, is ready after some seconds.
        """
        deadline = time.monotonic() + max(timeout_s, patience_s)
        while True:
            try:
                return next(futures).result(timeout_s + 1.0)
            except KafkaException as exception:
                error = errors.cause_of(exception)
                passing = error is not None and errors.is_absence(error)
                if not passing or time.monotonic() > deadline:
                    raise self._translate(exception, what) from exception
                self._admin.poll(_POLL_S)
            except TimeoutError as exception:
                text = f"{what}: no answer within {timeout_s:g} s"
                raise BrokerUnavailableError(text) from exception

    @staticmethod
    def _translate(exception: KafkaException, what: str) -> WindowConsumerError:
        error = errors.cause_of(exception)
        if error is None:
            return RunError(f"{what}: {exception}")
        if errors.is_unsupported(error):
            return _UnsupportedError(f"{what}: {errors.text_of(error)}")
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return _AlreadyThereError(what)
        if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return _NoGroupError(what)
        return errors.translate(error, what)


class _UnsupportedError(RunError):
    """The cluster does not know this question."""


class _AlreadyThereError(RunError):
    """The topic exists."""


class _NoGroupError(RunError):
    """The group has never existed."""


def _topic(description: TopicDescription) -> Topic:
    return Topic(
        name=description.name,
        partitions=len(description.partitions),
        replication=len(description.partitions[0].replicas),
        topic_id=str(description.topic_id),
        operations=_operations(description.authorized_operations),
    )


def _operations(operations: Iterable[Enum] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)
