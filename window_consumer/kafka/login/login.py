"""The interface of every kind of login, and its errors while getting a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

import attrs
from attrs import frozen

from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import AuthenticationError, RunError


class TokenRefusedError(AuthenticationError):
    """The token server refused our credentials; the same request will not succeed later."""


class TokenUnavailableError(RunError):
    """The token server did not answer with a token; the same request may succeed later."""


def login_key(meaning: str, *, required: bool = False, secret: bool = False) -> dict[str, Any]:
    """Return the metadata of a field that is a key of ``kafka.login``."""
    return {"meaning": meaning, "required": required, "secret": secret}


@frozen
class Login:
    """One kind of login with its keys. Hashable: equal logins share their tokens."""

    kind: ClassVar[str]
    extra: ClassVar[str] = ""
    """The extra of this package that installs the vendor's library; empty if none is needed."""
    library: ClassVar[str] = ""
    """The module whose presence is checked."""

    @classmethod
    def key_fields(cls) -> Mapping[str, attrs.Attribute[Any]]:
        """Return the fields that are keys of the file, by name."""
        return {each.name: each for each in attrs.fields(cls)}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no output may contain."""
        fields = self.key_fields().values()
        return tuple(getattr(self, each.name) for each in fields if each.metadata["secret"])

    @property
    def source(self) -> str:
        """The source of tokens, for messages."""
        raise NotImplementedError

    def completed(self, brokers: str) -> Login:
        """Return the login, completed from the environment and the brokers' addresses."""
        del brokers
        return self

    def obstacles(self) -> Iterator[tuple[str, str]]:
        """Yield obstacles of a completed login: the key, or an empty text, and the reason."""
        if self.library and not _is_installed(self.library):
            install = f"pip install 'window-consumer[{self.extra}]'"
            yield "", f"{self.kind} needs a library that is not installed: {install}"

    def token_function(self) -> OauthToken:
        """Return a function that gets a token: text, expiry in seconds since 1970, and maybe more.

        It imports the vendor's library. The function ignores its argument. Raises
        TokenRefusedError, and other exceptions for temporary problems.
        """
        raise NotImplementedError


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
