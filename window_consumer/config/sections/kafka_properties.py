"""Kafka properties of the file: reading, merging for one client of a worker, names of secrets.

``kafka.settings`` decides which properties exist and which would break a guarantee.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config.interpolation import Untyped
from window_consumer.config.options import about
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.sections.kafka_login import LoginChoice, login_kind, read_login
from window_consumer.config.tree import ValueOrigin

_SECRET_KEY = re.compile(
    r"password|passphrase|secret|token(?!\.endpoint|_url)|private\.key"
    r"|ssl\.key\.pem|sasl\.oauthbearer\.config|sasl\.jaas\.config",
    re.IGNORECASE,
)


def is_secret_key(key: str) -> bool:
    """Return whether the value of a Kafka property, named by its dotted key, is a secret."""
    return _SECRET_KEY.search(key) is not None


Scalar = str | int | float | bool
"""The types of a Kafka property's value."""

Client = Literal["consumer", "producer", "admin"]

CLIENTS: Final[tuple[Client, ...]] = ("consumer", "producer", "admin")
"""The names of the sub-maps; no property of librdkafka equals or begins with one of them."""


def _names_only(properties: Mapping[str, Scalar]) -> str:
    return f"<{', '.join(properties)}>"  # values may be secrets


@frozen(kw_only=True)
class KafkaConfig:
    """Properties for librdkafka by dotted name, and additions for one kind of client.

    Its repr shows names only.
    """

    common: Mapping[str, Scalar] = field(factory=dict, repr=_names_only)
    login: LoginChoice | None = field(
        default=None,
        metadata=about(
            "How all clients log in: msk-iam, oidc, gcp or azure, see docs/login.md. It sets"
            " security.protocol and sasl.mechanism, and gets and renews tokens. In a worker, none"
            " switches off the login at the top for its clients.",
            kind=login_kind(),
            default="none",
        ),
    )
    consumer: Mapping[str, Scalar] = field(
        factory=dict, repr=_names_only, metadata=about("Properties that only consumers get.")
    )
    producer: Mapping[str, Scalar] = field(
        factory=dict, repr=_names_only, metadata=about("Properties that only producers get.")
    )
    admin: Mapping[str, Scalar] = field(
        factory=dict, repr=_names_only, metadata=about("Properties that only admin clients get.")
    )


def read_kafka(raw: Any) -> KafkaConfig:
    """Read a KafkaConfig from a raw mapping; raises InvalidError with all problems."""
    problems: list[Problem] = []
    parts: dict[str, dict[str, Scalar]] = {"common": {}, **{client: {} for client in CLIENTS}}
    login: LoginChoice | None = None
    for key, value in _mapping(raw, "the properties of Kafka clients").items():
        if key == "login" and value is not None:
            try:
                login = read_login(value)
            except InvalidError as error:
                problems.extend(problem.below((key,)) for problem in error.problems)
            continue
        if key not in CLIENTS:
            _put(parts["common"], (key,), value, problems)
            continue
        try:
            properties = _mapping(value, f"the properties that only the {key} gets")
        except InvalidError as error:
            problems.extend(problem.below((key,)) for problem in error.problems)
            continue
        for name, item in properties.items():
            _put(parts[key], (key, name), item, problems)
    if problems:
        raise InvalidError(*problems)
    return KafkaConfig(login=login, **parts)


def misread(key: str, value: Any, origin: ValueOrigin) -> str | None:
    """Return the problem if YAML reads a property differently from how it is written.

    YAML reads ``0123`` as 83, which would silently change a password.
    """
    if origin.text is None or not isinstance(value, bool | int | float):
        return None
    if as_text(value) == origin.text or (isinstance(value, bool) and not is_secret_key(key)):
        return None
    return "YAML would change this value, as it reads 0123 as 83; write it in quotes"


def as_text(value: Scalar) -> str:
    """Convert a property's value to librdkafka's text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mapping(raw: Any, expected: str) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if isinstance(raw, dict):
        return raw
    raise InvalidError(Problem((), f"expected a mapping with {expected}"))


def _put(
    properties: dict[str, Scalar], path: tuple[str, ...], raw: Any, problems: list[Problem]
) -> None:
    """Add one property. Messages show no value: it may be a secret under a misspelled name."""
    key = path[-1]
    if isinstance(raw, Untyped):
        properties[key] = _lossless(raw)
    elif isinstance(raw, str | int | float):
        properties[key] = raw
    elif raw is None:
        problems.append(Problem(path, "has no value; write one, or remove the key"))
    elif isinstance(raw, dict):
        inner = next(iter(raw), "...")
        problems.append(Problem(path, f"properties are not nested; write {key}.{inner}: ..."))
    else:
        problems.append(
            Problem(path, "expected text, a number, true or false; write a list as 'a,b'")
        )


def _lossless(raw: Untyped) -> Scalar:
    typed = raw.typed()
    if isinstance(typed, bool | int | float) and as_text(typed) == raw:
        return typed
    return str(raw)
