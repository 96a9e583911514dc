"""Tokens from a token endpoint: what is sent, what may come back, and what is shown of it."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from tests.login.token_server import TokenServer, granting, refusing, unsigned
from window_consumer.kafka.login.login import TokenRefusedError, TokenUnavailableError
from window_consumer.kafka.login.oidc import OidcLogin

HIDDEN = "s3cret/with+signs"


def login_at(url: str, **more: Any) -> OidcLogin:
    return OidcLogin(token_url=url, client_id="shop:1", client_secret=HIDDEN, **more)


def token_of(login: OidcLogin) -> tuple[Any, ...]:
    return login.token_function()("")


def test_the_client_credentials_are_sent_as_rfc_6749_says(token_server: TokenServer) -> None:
    token_of(login_at(token_server.url, scope="kafka orders", audience="brokers"))
    (request,) = token_server.requests
    assert request.method == "POST"
    assert request.credentials == "shop%3A1:s3cret%2Fwith%2Bsigns"
    assert request.form == {
        "grant_type": "client_credentials",
        "scope": "kafka orders",
        "audience": "brokers",
    }


def test_what_is_not_configured_is_not_sent(token_server: TokenServer) -> None:
    token_of(login_at(token_server.url))
    assert token_server.requests[0].form == {"grant_type": "client_credentials"}


def test_extensions_come_with_each_token(token_server: TokenServer) -> None:
    login = login_at(token_server.url, extensions=(("logicalCluster", "lkc-1"),))
    assert token_of(login)[2:] == ("", {"logicalCluster": "lkc-1"})


@pytest.mark.parametrize("given", [600, 600.0, "600"])
def test_a_token_expires_when_the_answer_says(token_server: TokenServer, given: object) -> None:
    token_server.answer = lambda _: (200, {"access_token": "opaque", "expires_in": given})
    before = time.time()
    text, expiry, *_ = token_of(login_at(token_server.url))
    assert text == "opaque"
    assert before + 600 <= expiry <= time.time() + 600


def test_without_that_the_token_itself_says_it(token_server: TokenServer) -> None:
    token_server.answer = lambda _: (200, {"access_token": unsigned("bob", 50)})
    expiry = token_of(login_at(token_server.url))[1]
    assert time.time() < expiry <= time.time() + 50


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_says_who_was_refused_and_why(token_server: TokenServer, status: int) -> None:
    token_server.answer = refusing(
        status, error="invalid_client", error_description="no such\nclient"
    )
    with pytest.raises(TokenRefusedError) as caught:
        token_of(login_at(token_server.url))
    said = str(caught.value)
    assert all(each in said for each in ("shop:1", "invalid_client", "no such client"))
    assert "\n" not in said


NO_EXPIRY = base64.urlsafe_b64encode(json.dumps({"sub": "bob"}).encode()).decode()


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"error": "server_error"}),
        (503, b"<html>busy</html>"),
        (404, b""),
        (200, b"<html>a page</html>"),
        (200, []),
        (200, {}),
        (200, {"access_token": None, "expires_in": 5}),
        (200, {"access_token": "opaque"}),
        (200, {"access_token": "opaque", "expires_in": "soon"}),
        (200, {"access_token": f"e30.{NO_EXPIRY}."}),
    ],
)
def test_an_answer_without_a_token_may_pass(
    token_server: TokenServer, answer: tuple[int, Any]
) -> None:
    token_server.answer = lambda _: answer
    with pytest.raises(TokenUnavailableError):
        token_of(login_at(token_server.url))


def test_a_server_that_is_not_there_may_come(token_server: TokenServer) -> None:
    with pytest.raises(TokenUnavailableError, match="refused"):
        token_of(login_at("http://127.0.0.1:1/token"))
    assert not token_server.requests


@pytest.mark.parametrize("status", [301, 302, 307])
def test_the_secret_follows_no_redirect(token_server: TokenServer, status: int) -> None:
    token_server.answer = refusing(status)
    with pytest.raises(TokenUnavailableError, match=str(status)):
        token_of(login_at(token_server.url))
    assert [request.path for request in token_server.requests] == ["/token"]


def test_its_text_shows_no_secret() -> None:
    assert HIDDEN not in repr(login_at("http://127.0.0.1:1/token"))


def test_the_server_may_change_its_mind(token_server: TokenServer) -> None:
    function = login_at(token_server.url).token_function()
    token_server.answer = refusing(401)
    with pytest.raises(TokenRefusedError):
        function("")
    token_server.answer = granting("bob")
    assert function("")[0]
