"""The broker settings for tests and benchmarks."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping

from window_consumer.model.errors import RunError

Settings = Mapping[str, str | int]

USERS = ("admin", "alice", "bob")
"""The users of the SASL listener. Only admin needs no ACLs."""

_HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)
"""Below Linux' range of ports for outgoing connections."""

FOR_TESTS: Settings = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": -1,
    # One broker.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # A killed broker can restart once the controller has removed its predecessor.
    "broker.session.timeout.ms": 5_000,
    "broker.heartbeat.interval.ms": 1_000,
    # How often an idle controller writes a record, which its broker reads; default: 2 a second.
    "metadata.max.idle.interval.ms": 5_000,
    # Groups: shorten everything that a test waits for.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 2_000,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    # The log: compaction, and the end of abandoned transactions, within a second.
    "log.initial.task.delay.ms": 500,
    "log.cleaner.backoff.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}

USUAL_GROUPS: Settings = {
    "group.initial.rebalance.delay.ms": 3_000,
    "group.min.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 5_000,
    "group.consumer.min.heartbeat.interval.ms": 5_000,
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.session.timeout.ms": 45_000,
    "group.consumer.assignment.interval.ms": 1_000,
}
"""Kafka's own defaults instead of the tests': members learn of changes seconds later."""


def listeners(bootstrap: str, sasl_bootstrap: str, controller: str) -> Settings:
    """Return the settings of one node that is broker and controller, at these addresses."""
    addresses = f"PLAINTEXT://{bootstrap},SASL://{sasl_bootstrap}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"{addresses},CONTROLLER://{controller}",
        "advertised.listeners": addresses,
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": protocols,
    }


def security(passwords: Mapping[str, str]) -> Settings:
    """Return the settings for logins with passwords or tokens, and for ACLs."""
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    modules = "org.apache.kafka.common.security"
    plain = f"{modules}.plain.PlainLoginModule required {users};"
    bearer = f"{modules}.oauthbearer.OAuthBearerLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": plain,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": bearer,
        # Connections end when their first tokens expire, unless the client renews them.
        "listener.name.sasl.oauthbearer.connections.max.reauth.ms": 3_600_000,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }


def free_addresses(count: int) -> list[str]:
    """Return free addresses, in random order so that two callers differ."""
    found: list[str] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((_HOST, port))
            except OSError:
                continue
        found.append(f"{_HOST}:{port}")
        if len(found) == count:
            return found
    raise RunError(f"fewer than {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}")
