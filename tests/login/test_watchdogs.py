"""A token server that is away says nothing about a client, and nothing about the brokers."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.login.token_server import TokenServer, refusing
from tests.waiting import wait_until
from window_consumer.kafka.login import login_properties
from window_consumer.kafka.login.oidc import OidcLogin
from window_consumer.kafka.watchdogs.client import ClientWatchdog, ClientWatchdogTimes
from window_consumer.kafka.watchdogs.login import LoginWatchdog


def settings_of(server: TokenServer) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "token_url": server.url,
        "client_id": "shop",
        "client_secret": "hunter2-hunter2",
    }
    properties = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}
    return {
        **properties,
        **login_properties(OidcLogin(**keys), properties),
        "socket.connection.setup.timeout.ms": 1000,
    }


@pytest.mark.parametrize("status", [503, 401])
def test_a_client_is_not_given_up_because_no_other_one_gets_a_token(
    token_server: TokenServer, status: int
) -> None:
    token_server.answer = refusing(status)
    times = ClientWatchdogTimes(check_s=0.0)
    watchdog = ClientWatchdog(settings_of(token_server), times=times)
    watchdog.suspect()

    def has_asked_often() -> bool:
        assert not watchdog.is_lost(None)
        return len(token_server.requests) >= 5

    wait_until(has_asked_often)


def refused_login(server: TokenServer) -> LoginWatchdog:
    watchdog = LoginWatchdog(settings_of(server))
    watchdog.record_error(KafkaError(KafkaError._AUTHENTICATION))
    return watchdog


def test_a_token_server_that_is_away_refuses_no_login(token_server: TokenServer) -> None:
    token_server.answer = refusing(503)
    watchdog = refused_login(token_server)

    def has_asked_twice() -> bool:
        assert watchdog.refusal() is None
        return len(token_server.requests) >= 2

    wait_until(has_asked_twice)


def test_a_token_server_that_refuses_the_credentials_does(token_server: TokenServer) -> None:
    token_server.answer = refusing(401, error="invalid_client")
    watchdog = refused_login(token_server)
    found: list[str | None] = []

    def is_refused() -> bool:
        found.append(watchdog.refusal())
        return found[-1] is not None

    wait_until(is_refused)
    assert "invalid_client" in str(found[-1])
    assert token_server.url in str(found[-1])
