"""A cluster's admin client: waits for brokers, sends requests, and is replaced once it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from attrs import define
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster.answers import (
    NOT_READY_S,
    UnsupportedError,
    first_answer,
    in_words,
)
from window_consumer.kafka.cluster.features import Features
from window_consumer.kafka.oauth import FUNCTION, OauthToken, token_setting
from window_consumer.kafka.settings import BOOTSTRAP
from window_consumer.kafka.watchdogs.client import MakeClientWatchdog
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    NotPermittedError,
)

_EMBEDDED = "mockCluster"
"""How the ids of librdkafka's mock clusters begin."""

_POLL_S = 0.2
_WAIT_S = 1.0
"""Timeout of one request to an absent broker; a stop is noticed between two requests."""


@define
class _Troubles:
    """What the client's error callback has reported since the last request."""

    absent: KafkaError | None = None
    refused: KafkaError | None = None

    def record(self, error: KafkaError) -> None:
        """Keep the last error of each kind."""
        if errors.is_authentication(error):
            self.refused = error
        else:
            self.absent = error


class AdminConnection:
    """Sends requests and waits for their answers. Any thread may ask, one at a time.

    ``conf`` is the client's configuration; ``features`` records what the brokers support.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        log: ClientLog,
        oauth_token: OauthToken | None,
        make_watchdog: MakeClientWatchdog,
    ):
        given = (str(settings[key]) for key in sorted(BOOTSTRAP) if settings.get(key))
        self.bootstrap = ",".join(given)
        self.is_embedded = False
        """The last broker that answered is an embedded one."""
        self._troubles = _Troubles()
        self.features = Features(log, settings)
        conf = {**settings, **self.features.settings(), **token_setting(settings, oauth_token)}
        self._make_watchdog = make_watchdog
        self._watchdog = make_watchdog(conf)
        conf["error_cb"] = self._on_error
        try:
            self.conf = conf
            self._client = AdminClient(conf, logger=self.features)
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    @property
    def client(self) -> AdminClient:
        """The client for requests. It is replaced after it has lost the cluster."""
        self._client.poll(0)  # serves the error callback
        if self._watchdog.is_lost(self._client):
            self._watchdog = self._make_watchdog(self.conf)
            self._client = AdminClient(self.conf, logger=self.features)
        return self._client

    def _on_error(self, error: KafkaError) -> None:
        self._troubles.record(error)
        self._watchdog.record_error(error)

    def wait_until_there(self, timeout_s: float, on_wait: Callable[[str, float], None]) -> None:
        """Return once a broker answers.

        Calls ``on_wait(reason, seconds so far)`` after each request without an answer. Raises
        ConfigError without an address and AuthenticationError at once, BrokerUnavailableError after
        ``timeout_s``.
        """
        if not self.bootstrap.strip(" ,"):
            raise ConfigError(
                "kafka.bootstrap.servers: is missing: the addresses of the brokers, as in"
                " broker-1:9092,broker-2:9092"
            )
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            ask_s = max(_POLL_S, min(_WAIT_S, timeout_s - waited))
            try:
                found = self.client.list_topics(timeout=ask_s)
                self.is_embedded = str(found.cluster_id).startswith(_EMBEDDED)
            except KafkaException as exception:
                self._raise_unless_absent(exception)
            else:
                return
            waited = time.monotonic() - started
            reason = errors.text_of(self._troubles.absent) if self._troubles.absent else "no answer"
            if hint := self.features.hint():
                reason = f"{reason}; {hint}"
            if waited >= timeout_s:
                raise BrokerUnavailableError(
                    f"no broker at {self.bootstrap} answered within {round(timeout_s, 1):g} s"
                    f" ({reason}): check kafka: bootstrap.servers and the network"
                )
            on_wait(reason, waited)

    def _raise_unless_absent(self, exception: KafkaException) -> None:
        self._client.poll(0)  # serves the error callback
        refused = self._troubles.refused
        if refused is not None:
            check = "sasl.mechanism, sasl.username and the password in `kafka:`"
            if FUNCTION in self.conf:
                check = "the token's issuer, audience and scope, and what the cluster accepts"
            raise AuthenticationError(
                f"the cluster at {self.bootstrap} refused us: {errors.text_of(refused)}: check"
                f" {check}"
            ) from exception
        error = errors.cause_of(exception)
        if error is None or not errors.is_absence(error):
            raise in_words(exception, f"cluster at {self.bootstrap}") from exception
        self._watchdog.suspect()

    def has_consumer_protocol(self) -> bool:
        """Return whether the brokers that have answered support the consumer group protocol."""
        self._client.poll(0)  # serves the log
        return not self.features.no_consumer_protocol

    def metadata(self, what: str, timeout_s: float, *topic: str) -> ClusterMetadata:
        """Return the cluster's metadata; ``what`` names the request in errors."""
        with self.suspecting():
            try:
                return self.client.list_topics(*topic, timeout=timeout_s)
            except KafkaException as exception:
                raise in_words(exception, what) from exception

    @contextmanager
    def suspecting(self) -> Iterator[None]:
        """Treat a request without an answer as a reason to check whether the client is lost."""
        try:
            yield
        except BrokerUnavailableError:
            self._watchdog.suspect()
            raise

    def answer(
        self,
        futures: Iterator[Future[Any]],
        what: str,
        timeout_s: float,
        deadline_s: float = NOT_READY_S,
    ) -> Any:
        """Return the first answer of requests, see ``answers.first_answer``."""

        def pause() -> None:
            self._watchdog.suspect()
            self._client.poll(_POLL_S)
            # The client sends to the controller that it knows. In KRaft mode that is any broker,
            # and the others report a dead broker as alive for some seconds.
            with suppress(KafkaException):
                self._client.list_topics(timeout=_WAIT_S)

        with self.suspecting():
            return first_answer(
                futures, what, timeout_s=timeout_s, deadline_s=deadline_s, pause=pause
            )

    def settings_of(self, kind: str, name: str, timeout_s: float) -> dict[str, str]:
        """Return the settings of a topic or broker; empty if the cluster does not report them."""
        resource = ConfigResource(kind, name)
        futures = (
            self.client.describe_configs([resource], request_timeout=timeout_s)[resource]
            for _ in count()
        )
        try:
            entries = self.answer(futures, f"settings of {kind} {name}", timeout_s)
        except (UnsupportedError, NotPermittedError):
            return {}
        return {key: entry.value for key, entry in entries.items() if entry.value is not None}
