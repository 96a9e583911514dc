"""Commands with a login that never works: they end, name the token endpoint, and no secret."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands import Commands
from tests.login.token_server import TokenServer, refusing

HIDDEN = "hunter2-hunter2"
APPLICATION = """
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop", ordering="unordered")
def charge(record):
    pass
"""


def configure(commands: Commands, url: str) -> None:
    commands.application(APPLICATION)
    login = {"kind": "oidc", "token_url": url, "client_id": "shop", "client_secret": HIDDEN}
    kafka: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "login": login}
    charge = {"group": "shop", "topics": ["orders"], "ordering": "unordered"}
    commands.configure({"kafka": kafka, "workers": {"charge": charge}})


@pytest.mark.parametrize(
    "command",
    ["run shop:app", "check shop:app --connect", "topics plan", "dlq list", "dlq redrive"],
)
def test_refused_credentials_end_a_command_at_once(
    commands: Commands, token_server: TokenServer, command: str
) -> None:
    token_server.answer = refusing(401, error="invalid_client", error_description=f"not {HIDDEN}")
    configure(commands, token_server.url)
    ended = commands.run(*command.split())
    assert ended.code == 1
    assert token_server.url in ended.said
    assert "invalid_client" in ended.said
    assert HIDDEN not in ended.said


@pytest.mark.parametrize("command", ["run shop:app", "check shop:app --connect"])
def test_a_token_server_that_is_away_is_waited_for_as_a_broker_is(
    commands: Commands, command: str
) -> None:
    url = "http://127.0.0.1:1/token"
    configure(commands, url)
    ended = commands.run(*command.split(), "--start-timeout", "1s")
    assert ended.code == 1
    assert url in ended.said
    assert HIDDEN not in ended.said


def test_offline_no_token_is_asked_for(commands: Commands, token_server: TokenServer) -> None:
    configure(commands, token_server.url)
    ended = commands.run("check", "shop:app")
    assert ended.code == 0, ended.said
    assert not token_server.requests
