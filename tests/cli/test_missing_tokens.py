"""Commands that need no application, where only an application could supply tokens."""

from __future__ import annotations

import re

import pytest

from tests.commands import Commands

TOKENS = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
}


@pytest.mark.parametrize(
    "command", ["topics plan", "dlq list", "dlq redrive", "dlq purge --before 1d --yes"]
)
def test_that_nothing_supplies_tokens_is_said_at_once(commands: Commands, command: str) -> None:
    charge = {"group": "shop", "topics": ["orders"]}
    commands.configure({"kafka": TOKENS, "workers": {"charge": charge}})
    ended = commands.run(*command.split())
    assert (ended.code, ended.out) == (2, "")
    assert re.search(r"workers\.charge: kafka: sasl\.mechanism .*\bOAUTHBEARER\b", ended.err)
    assert "@app.oauth_token" in ended.err


def test_offline_nothing_has_to_supply_them(commands: Commands) -> None:
    charge = {"group": "shop", "topics": ["orders"]}
    commands.configure({"kafka": TOKENS, "workers": {"charge": charge}})
    ended = commands.run("topics", "plan", "--partitions", "1", "--replication-factor", "1")
    assert ended.code == 0, ended.err
