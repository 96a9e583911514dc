"""One token for all clients: shared while it is fresh, renewed in time, kept in an outage."""

from __future__ import annotations

import logging
import pickle
import time
from typing import Any

import pytest

from tests.logged import fields_of
from tests.login.token_server import TokenServer, refusing
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.login.oidc import OidcLogin
from window_consumer.kafka.login.tokens import LoginTokens, login_tokens
from window_consumer.kafka.oauth import OAuthTokens
from window_consumer.model.errors import AuthenticationError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.redaction import Mask

HIDDEN = "hunter2-hunter2"
LOG = ClientLog(logging.getLogger("window_consumer.client"))


def tokens_of(server: TokenServer, **more: Any) -> LoginTokens:
    keys = {"token_url": server.url, "client_id": "shop", "client_secret": HIDDEN, **more}
    return login_tokens(OidcLogin(**keys))


def test_clients_share_a_fresh_token(token_server: TokenServer) -> None:
    tokens = tokens_of(token_server)
    assert tokens("") == tokens("")
    assert len(token_server.requests) == 1


def test_equal_logins_share_their_tokens(token_server: TokenServer) -> None:
    assert tokens_of(token_server) is tokens_of(token_server)
    assert tokens_of(token_server) is not tokens_of(token_server, scope="another")


class Clock:
    """The wall clock, put forward by hand."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


def with_clock(server: TokenServer) -> tuple[LoginTokens, Clock]:
    clock = Clock()
    return LoginTokens(tokens_of(server).login, LOG, Mask(()), clock), clock


def test_a_token_in_the_second_half_of_its_life_is_renewed(token_server: TokenServer) -> None:
    tokens, clock = with_clock(token_server)
    tokens("")
    for ahead_s, requests in ((295.0, 1), (305.0, 2)):
        clock.ahead_s = ahead_s
        tokens("")
        assert len(token_server.requests) == requests


def test_the_last_token_serves_while_the_server_fails(
    token_server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens, clock = with_clock(token_server)
    first = tokens("")
    token_server.answer = refusing(503)
    clock.ahead_s = 305.0
    with caplog.at_level(logging.WARNING, "window_consumer"):
        assert tokens("") == first
    said = str(fields_of(caplog, LogEvent.TOKEN_REFUSED)["message"])
    assert token_server.url in said
    assert "503" in said


def test_what_the_server_says_shows_no_secret(token_server: TokenServer) -> None:
    token_server.answer = refusing(401, error=f"wrong secret: {HIDDEN}")
    with pytest.raises(AuthenticationError, match=r"wrong secret: \*\*\*"):
        tokens_of(token_server).trouble("")


def test_another_process_gets_tokens_of_its_own(token_server: TokenServer) -> None:
    tokens = tokens_of(token_server)
    copied = pickle.loads(pickle.dumps(tokens))  # noqa: S301 - it has pickled them itself
    assert copied.login == tokens.login
    assert copied("")[0]


def test_a_long_reason_becomes_one_line_of_bounded_length() -> None:
    def failing(_: str) -> tuple[str, float]:
        raise ValueError("the reason\n\tin many lines\n" * 1000)

    said = OAuthTokens(failing, LOG).trouble("")
    assert said is not None
    assert "\n" not in said
    assert len(said) < 1000
