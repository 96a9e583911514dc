"""``kafka.login``: its settings for every client, and its kinds.

Each kind is a module with its keys and its way to get a token; ``tokens`` renews tokens for all
clients of the process. The vendors' libraries are optional and imported only in the kinds' modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from window_consumer.kafka.login.azure import AzureLogin
from window_consumer.kafka.login.gcp import GcpLogin
from window_consumer.kafka.login.login import Login
from window_consumer.kafka.login.msk_iam import MskIamLogin
from window_consumer.kafka.login.oidc import OidcLogin
from window_consumer.kafka.login.tokens import login_tokens
from window_consumer.kafka.settings import BOOTSTRAP

LOGINS: Final[Mapping[str, type[Login]]] = MappingProxyType(
    {each.kind: each for each in (MskIamLogin, OidcLogin, GcpLogin, AzureLogin)}
)
"""The kinds by the words that ``kafka.login`` takes."""

PROTOCOL: Final = "security.protocol"
PROTOCOLS: Final = ("SASL_SSL", "SASL_PLAINTEXT")
"""The protocols for a login. The first is the default; the other is for tests."""

_CONTRADICTING: Final = ("sasl.", "enable.sasl.")
"""Prefixes of properties that also describe a login."""


def login_properties(login: Login, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a login's settings for a client with these properties, token function included."""
    complete = login.completed(brokers_of(properties))
    return {
        PROTOCOL: properties.get(PROTOCOL, PROTOCOLS[0]),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": login_tokens(complete),
    }


def brokers_of(properties: Mapping[str, Any]) -> str:
    """Return the addresses of a client's brokers, empty without any."""
    return ",".join(str(properties[key]) for key in sorted(BOOTSTRAP) if properties.get(key))


def contradicts(key: str, value: object) -> bool:
    """Return whether a client's property conflicts with a login."""
    if key == PROTOCOL:
        return str(value).upper() not in PROTOCOLS
    return key.startswith(_CONTRADICTING)
