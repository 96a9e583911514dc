"""Clients with the settings of one worker, and targets of copies, for use beside the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import frozen

from window_consumer.config import LoadedConfig, Mask, WorkerConfig, effective_kafka
from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import OauthToken, OAuthTokens, uses_tokens
from window_consumer.kafka.settings.client_files import unusable_files
from window_consumer.model.errors import ConfigError
from window_consumer.plan.start_timeout import LOGGER, StartTimeout


@frozen
class Clients:
    """The clients that a command needs to talk to a worker's cluster."""

    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    admin: Mapping[str, Any]
    """The user's Kafka properties of each client."""
    cluster: Cluster
    log: ClientLog
    oauth_token: OauthToken | None

    @classmethod
    def connect(
        cls,
        loaded: LoadedConfig,
        worker: WorkerConfig,
        oauth_token: OauthToken | None = None,
        timeout_s: float = 30.0,
    ) -> Clients:
        """Return the clients once a broker answers.

        Raises ConfigError for properties that may not be set, AuthenticationError, and
        BrokerUnavailableError after ``timeout_s``.
        """
        properties: dict[settings.Kind, dict[str, Any]] = {
            kind: dict(
                effective_kafka(
                    loaded.config,
                    worker,
                    kind,
                    consumer_only=settings.CONSUMER_ONLY,
                    producer_only=settings.PRODUCER_ONLY,
                )
            )
            for kind in _KINDS
        }
        where = loaded.where(("workers", worker.name))
        refused = [
            f"{where}: kafka: {reason}"
            for kind, user in properties.items()
            for _, reason in (*settings.refusals(user, kind), *unusable_files(user))
        ]
        if refused:
            raise ConfigError("\n".join(dict.fromkeys(refused)))
        check_tokens(properties["admin"], oauth_token, f"{where}: workers.{worker.name}")
        log = ClientLog(LOGGER.getChild("client"), Mask(loaded.secrets))
        tokens = (
            None if oauth_token is None else OAuthTokens(oauth_token, log, Mask(loaded.secrets))
        )
        admin = properties["admin"]
        start_timeout = StartTimeout(timeout_s)
        start_timeout.wait_for_token(worker.name, admin, tokens)
        cluster = Cluster(settings.admin_settings(admin, worker.name), log, tokens)
        cluster.wait_until_there(timeout_s, start_timeout.waiting(worker.name, cluster))
        return cls(properties["consumer"], properties["producer"], admin, cluster, log, tokens)


@frozen
class CopyTarget:
    """A topic that a redrive or a replay writes to."""

    loaded: LoadedConfig
    clients: Clients
    group: str
    """The consumer group whose records are called again."""
    topic: str
    becomes: Literal["redriven", "replayed"]
    """The name of the copies in the trace and the audit."""
    transactional: bool = False


def check_tokens(properties: Mapping[str, Any], oauth_token: OauthToken | None, where: str) -> None:
    """Raise ConfigError if a client would need tokens that nothing supplies.

    Such a client would wait without an explanation. ``where`` is for the message.
    """
    if oauth_token is None and uses_tokens(properties):
        raise ConfigError(
            f"{where}: kafka: sasl.mechanism is OAUTHBEARER, but nothing supplies tokens: name the"
            " application with @app.oauth_token, or write kafka.login (see docs/login.md)"
        )


_KINDS: tuple[settings.Kind, ...] = ("consumer", "producer", "admin")
