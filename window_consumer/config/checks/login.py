"""Checks whether a login can work, and whether Kafka properties contradict it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.schema import Config
from window_consumer.config.sections.kafka_login import (
    NO_LOGIN,
    LoginChoice,
    read_login,
    with_login,
)
from window_consumer.config.sections.kafka_properties import CLIENTS, KafkaConfig
from window_consumer.config.tree import Path, Tree, ValueOrigin, dotted
from window_consumer.kafka.login import PROTOCOL, PROTOCOLS, brokers_of, contradicts
from window_consumer.kafka.login.login import Login
from window_consumer.kafka.settings import BOOTSTRAP
from window_consumer.model.errors import UsageError

Place = tuple[Path, KafkaConfig]
"""A ``kafka`` section and where it stands."""


def login_problems(config: Config, tree: Tree) -> Iterator[Problem]:
    """Yield the problems of the logins of all workers, and of other clients."""
    top: Place = (("kafka",), config.kafka)
    running = [worker for worker in config.workers.values() if worker.enabled]
    if not running or not BOOTSTRAP.isdisjoint(config.kafka.common):
        yield from problems_of([top], tree)
    for worker in running:
        yield from problems_of([(("workers", worker.name, "kafka"), worker.kafka), top], tree)


def problems_of(places: Sequence[Place], tree: Tree) -> Iterator[Problem]:
    """Yield the problems of the first login among the sections, and of all their properties.

    The properties of a section override those of the sections after it.
    """
    found = next(((path, each.login) for path, each in places if each.login is not None), None)
    if found is None or not isinstance(found[1], Login):
        return
    path, login = (*found[0], "login"), found[1]
    properties: dict[str, Any] = {}
    for _, section in reversed(places):
        for part in (section.common, *(getattr(section, client) for client in CLIENTS)):
            properties |= part
    for key, wrong in login.completed(brokers_of(properties)).obstacles():
        yield Problem((*path, key) if key else path, wrong)
    for place, section in places:
        for below, part in (((), section.common), *(((c,), getattr(section, c)) for c in CLIENTS)):
            for key, value in part.items():
                if contradicts(key, value):
                    at = (*place, *below, key)
                    message = _contradiction(key, login, tree.origin(path).where)
                    if key != PROTOCOL and len(places) > 1:
                        message += f"; a worker with another login says login: {NO_LOGIN}"
                    yield Problem(at, message)


def properties_with_login(kafka: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the properties of a client that no file configures; its key ``login`` is a login.

    Raises UsageError; ``where`` begins its message.
    """
    properties = dict(kafka)
    raw = properties.pop("login", None)
    if raw is None:
        return properties
    tree = Tree({}, {(): ValueOrigin(where)})
    try:
        login: LoginChoice = read_login(raw)
        section = KafkaConfig(common=properties, login=login)
        problems = [*problems_of([((), section)], tree)]
    except InvalidError as error:
        problems = [each.below(("login",)) for each in error.problems]
        login = NO_LOGIN
    if problems:
        texts = (f"{where}: {dotted(each.path)}: {each.message}" for each in problems)
        raise UsageError("\n".join(texts))
    return with_login(properties, login)


def _contradiction(key: str, login: Login, where: str) -> str:
    if key == PROTOCOL:
        return f"must be {' or '.join(PROTOCOLS)} with login: {login.kind} ({where})"
    return f"contradicts login: {login.kind} ({where}), which sets it: remove one of the two"
