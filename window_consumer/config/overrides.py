"""``--set workers.charge.concurrency=8``: values that override the file."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from window_consumer.config.interpolation import Untyped
from window_consumer.config.options import Sections, subsections
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.config.schema import Config
from window_consumer.config.sections.kafka_properties import CLIENTS, KafkaConfig
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree, ValueOrigin, tree_of
from window_consumer.config.yaml_file import read_text

_FLOW_BEGINS: Final = ("[", "{", '"', "'")


def read_override(
    text: str, workers: Collection[str], sections: Sections
) -> tuple[Tree, list[Problem]]:
    """Read ``KEY=VALUE``; return a tree to lay over the file's. ``sections`` are those of features.

    KEY is a path with dots. Below ``kafka`` the rest is one property, dots included, except for a
    leading ``consumer.``, ``producer.``, ``admin.`` or ``login.``, which selects that sub-map. A
    VALUE that begins with a bracket, a brace or a quote is read as YAML. Any other VALUE is a
    scalar of the type that its key expects, otherwise unchanged. Raises InvalidError.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        # What follows the first word may be a secret.
        start = re.match(r"[\w.-]*", text)
        begin = start[0] if start else ""
        more = "" if begin == text else "..."
        raise _error(
            f"--set {begin}{more}", "needs the form KEY=VALUE: --set workers.NAME.memory=1GiB"
        )
    origin = ValueOrigin(f"--set {key}")
    path = _resolve(key, workers, sections)
    if not value.startswith(_FLOW_BEGINS):
        return tree_of(Untyped(value), origin, path), []
    try:
        tree, problems = read_text(value, lambda _: origin, path)
    except InvalidError as error:
        raise _error(
            origin.where, f"{error}; values that begin with a bracket, brace or quote are YAML"
        ) from error
    whole: Any = tree.value
    for name in reversed(path):
        whole = {name: whole}
    return Tree(whole, tree.origins), problems


def _resolve(key: str, workers: Collection[str], sections: Sections) -> Path:
    head, _, rest = key.partition(".")
    if head == "workers" and rest:
        name, _, rest = rest.partition(".")
        if name not in workers:
            hint = did_you_mean(name, workers) or f"workers are {', '.join(workers)}"
            raise _error(f"--set {key}", f"the file has no worker {name}; {hint}")
        return ("workers", name, *_keys(key, rest, WorkerConfig, sections))
    kind = next((each.kind for each in sections.file if each.has_names and each.name == head), None)
    if kind is not None and rest:
        name, _, rest = rest.partition(".")
        return (head, name, *_keys(key, rest, kind, sections))
    return _keys(key, key, Config, sections)


def _keys(key: str, rest: str, section: type, sections: Sections) -> Path:
    if not rest:
        return ()
    if section is KafkaConfig:
        first, _, inner = rest.partition(".")
        return (first, inner) if first in {*CLIENTS, "login"} and inner else (rest,)
    head, dot, inner = rest.partition(".")
    known = subsections(section, sections)
    if head not in known:
        hint = did_you_mean(head, known) or f"known are {', '.join(known)}"
        raise _error(f"--set {key}", f"unknown key {head}; {hint}")
    below = known[head]
    if below is not None:
        return (head, *_keys(key, inner, below, sections))
    if dot:
        raise _error(f"--set {key}", f"unknown key {rest}; {head} has no keys below it")
    return (head,)


def _error(where: str, message: str) -> InvalidError:
    return InvalidError(Problem((), message, origin=ValueOrigin(where)))
