"""``kafka.login``: a word, or a mapping with ``kind`` and the keys of that kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.kafka.login import LOGINS, login_properties
from window_consumer.kafka.login.login import Login

NO_LOGIN: Final = "none"
"""With this word, a worker does not use the login at the top of the file."""

LoginChoice = Login | Literal["none"]

_WORDS: Final = (*LOGINS, NO_LOGIN)


def login_kind() -> ValueKind:
    """How clients log in."""
    expected = f"{', '.join(_WORDS)}, or a mapping such as {{kind: oidc, token_url: ...}}"
    return ValueKind("login", expected, read_login, str, _schema())


def with_login(properties: Mapping[str, Any], *choices: LoginChoice | None) -> dict[str, Any]:
    """Return a client's properties with those of a login: the first choice that is not None."""
    login = next(filter(None, choices), None)
    if not isinstance(login, Login):
        return dict(properties)
    return {**properties, **login_properties(login, properties)}


def read_login(raw: Any) -> LoginChoice:
    """Read a login; raises InvalidError with all problems, without secrets."""
    given = raw if isinstance(raw, dict) else {"kind": raw}
    word = given.get("kind")
    if "kind" not in given:
        raise InvalidError(Problem(("kind",), f"is missing: one of {', '.join(LOGINS)}"))
    if not isinstance(word, str) or word not in _WORDS:
        hint = did_you_mean(str(word), _WORDS)
        at = ("kind",) if isinstance(raw, dict) else ()
        message = f"is not one of {', '.join(_WORDS)}"
        wrong = Problem(at, f"{message}; {hint}" if hint else message, value=word)
        raise InvalidError(wrong)
    if word == NO_LOGIN:
        return NO_LOGIN
    kind = LOGINS[word]
    problems = list(_wrong_keys(kind, given))
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in kind.key_fields():
            try:
                found[key] = _extensions(value) if key == "extensions" else _text(value)
            except InvalidError as error:
                problems.extend(problem.below((key,)) for problem in error.problems)
    if problems:
        raise InvalidError(*problems)
    return kind(**found)


def _wrong_keys(kind: type[Login], given: Mapping[str, Any]) -> Iterator[Problem]:
    known = kind.key_fields()
    for key in given:
        if key != "kind" and key not in known:
            hint = did_you_mean(str(key), known) or f"known are kind, {', '.join(known)}"
            yield Problem((key,), f"unknown key of a login of kind {kind.kind}; {hint}")
    missing = [name for name, each in known.items() if _is_required(each) and name not in given]
    if missing and set(given) == {"kind"}:
        keys = ", ".join(f"{name}: ..." for name in missing)
        yield Problem((), f"needs more keys: write {{kind: {kind.kind}, {keys}}}")
    else:
        for name in missing:
            yield Problem((name,), f"is missing: {known[name].metadata['meaning']}")


def _is_required(key: attrs.Attribute[Any]) -> bool:
    return bool(key.metadata["required"])


def _text(raw: Any) -> str:
    """Read a text. The message never shows the value, which may be a secret."""
    if not isinstance(raw, str):
        is_scalar = isinstance(raw, int | float)
        message = "expected text" + ("; write it in quotes" if is_scalar else "")
        raise InvalidError(Problem((), message))
    if not raw.strip():
        raise InvalidError(Problem((), "is empty; write a value, or remove the key"))
    return str(raw)


def _extensions(raw: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, dict):
        expected = "expected a mapping, such as {logicalCluster: lkc-1, identityPoolId: pool-1}"
        raise InvalidError(Problem((), expected))
    found = []
    for name, value in raw.items():
        try:
            found.append((str(name), _text(value)))
        except InvalidError as error:
            raise InvalidError(*(each.below((name,)) for each in error.problems)) from None
    return tuple(found)


def _schema() -> dict[str, Any]:
    words = [
        word
        for word, kind in LOGINS.items()
        if not any(map(_is_required, kind.key_fields().values()))
    ]
    return {
        "anyOf": [
            {"enum": [*words, NO_LOGIN]},
            REFERENCE,
            *(_schema_of(kind) for kind in LOGINS.values()),
        ]
    }


def _schema_of(kind: type[Login]) -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    keys = {
        name: {**(texts if name == "extensions" else {"type": "string"}), "description": meaning}
        for name, each in kind.key_fields().items()
        for meaning in (each.metadata["meaning"],)
    }
    return {
        "type": "object",
        "properties": {"kind": {"const": kind.kind}, **keys},
        "required": [
            "kind",
            *(name for name, each in kind.key_fields().items() if _is_required(each)),
        ],
        "additionalProperties": False,
    }


def login_rows() -> Iterator[tuple[str, str, str]]:
    """Yield key, kind and meaning of the keys of all logins, for the reference page."""
    for kind in LOGINS.values():
        for name, each in kind.key_fields().items():
            needs = f"{kind.kind}, required" if _is_required(each) else kind.kind
            yield name, needs, each.metadata["meaning"]
