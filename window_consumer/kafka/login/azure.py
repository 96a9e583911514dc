"""``login: azure``: Azure Event Hubs with Entra ID, by azure-identity."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from attrs import evolve, field, frozen

from window_consumer.kafka.login.login import Login, login_key
from window_consumer.kafka.oauth import OauthToken

_NAMESPACE: Final = re.compile(r"(?:^|[,\s])([a-z0-9-]+\.servicebus\.[a-z.]+)(?::\d+)?(?=,|\s|$)")


@frozen(kw_only=True)
class AzureLogin(Login):
    """Azure, with the credentials that DefaultAzureCredential finds."""

    kind: ClassVar[str] = "azure"
    extra: ClassVar[str] = "azure"
    library: ClassVar[str] = "azure.identity"

    scope: str = field(
        default="",
        metadata=login_key(
            "The scope of the token. Default: https://NAMESPACE.servicebus.windows.net/.default,"
            " by the brokers' name."
        ),
    )
    client_id: str = field(
        default="",
        metadata=login_key(
            "The client id of a user-assigned managed identity. Default: AZURE_CLIENT_ID."
        ),
    )

    @property
    def source(self) -> str:
        return f"Azure credentials for {self.scope}"

    def completed(self, brokers: str) -> Login:
        named = _NAMESPACE.search(brokers.lower())
        if self.scope or named is None:
            return self
        return evolve(self, scope=f"https://{named[1]}/.default")

    def obstacles(self) -> Iterator[tuple[str, str]]:
        yield from super().obstacles()
        if not self.scope:
            scope = "https://NAMESPACE.servicebus.windows.net/.default"
            written = f"{{kind: azure, scope: {scope}}}"
            yield "", f"azure needs a scope, as the brokers' names contain none: write {written}"

    def token_function(self) -> OauthToken:
        from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an optional extra

        named = {"managed_identity_client_id": self.client_id} if self.client_id else {}
        credential = DefaultAzureCredential(**named)

        def token(_config: str) -> tuple[Any, ...]:
            found = credential.get_token(self.scope)
            return found.token, float(found.expires_on)

        return token
