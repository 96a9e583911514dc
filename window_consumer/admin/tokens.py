"""Access to the admin address: named tokens, each with a role."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.names import WORKER, is_worker_name
from window_consumer.config.options import about
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.structure import section_of

ADMIN: Final = "admin"
"""The name of ``admin.token`` in the log."""

_SHORTEST: Final = 16


class AccessRole(StrEnum):
    """What a token permits."""

    READ = "read"
    OPERATE = "operate"


def _wrong_token(text: str) -> str | None:
    # The message never contains the text, which is a secret.
    if len(text) < _SHORTEST:
        return f"is shorter than {_SHORTEST} characters"
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        return "has spaces, or characters other than ASCII letters, digits and signs"
    return None


def token_kind() -> ValueKind:
    """A token that a client presents."""
    return kinds.text(f"a token of {_SHORTEST} characters or more", _wrong_token)


@frozen(kw_only=True)
class AccessToken:
    """A token and its role."""

    token: str = field(
        repr=False,
        metadata=about("The token to present.", kind=token_kind(), default="none: required"),
    )
    role: AccessRole = field(
        metadata=about(
            "read: see everything. operate: act, too.",
            kind=kinds.member(AccessRole),
            default="none: required",
        )
    )


Tokens = Mapping[str, AccessToken]

NO_TOKENS: Final[Tokens] = MappingProxyType({})


def tokens_kind() -> ValueKind:
    """Tokens by the names of their owners; the value is a mapping of AccessTokens."""
    expected = (
        "a mapping of names to tokens and roles, as in {ops: {token: ..., role: operate}, support:"
        " {token: ..., role: read}}"
    )

    def read(raw: Any) -> Tokens:
        if not isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        problems: list[Problem] = []
        found: dict[str, AccessToken] = {}
        for name, given in raw.items():
            if not is_worker_name(name):
                message = "a token's name is made of letters, digits, dashes and underscores"
                problems.append(Problem((name,), message))
            token = section_of(given, AccessToken, (name,), problems)
            if token is not None:
                found[name] = token
        if problems:
            raise InvalidError(*problems)
        return MappingProxyType(found)

    role = {"anyOf": [{"enum": list(AccessRole)}, REFERENCE]}
    one = {
        "type": "object",
        "properties": {"token": {"type": "string", "minLength": 1}, "role": role},
        "required": ["token", "role"],
        "additionalProperties": False,
    }
    schema = {"type": "object", "propertyNames": {"pattern": WORKER}, "additionalProperties": one}
    limits = f"each a `token` of {_SHORTEST} characters or more and a `role`: read or operate"
    return ValueKind(
        "mapping of tokens", expected, read, lambda _: "{}", schema, limits, hidden_key="token"
    )


def shared_tokens(tokens: Iterable[tuple[str, AccessToken]]) -> Iterator[Problem]:
    """Yield the names in ``admin.tokens`` with a shared token, which would blur the log."""
    seen: dict[str, str] = {}
    for name, each in tokens:
        other = seen.setdefault(each.token, name)
        if other != name:
            path = ("tokens", name, "token")
            yield Problem(path, f"is the token of {other}, too: each needs its own")


@frozen
class Principal:
    """The sender of a request."""

    name: str = ""
    """Empty if no token is needed."""
    role: AccessRole = AccessRole.OPERATE

    @property
    def may_operate(self) -> bool:
        """Return whether actions are permitted."""
        return self.role is AccessRole.OPERATE


ANYBODY: Final = Principal()
"""Any sender at an address without tokens."""
