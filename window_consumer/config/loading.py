"""Builds one checked configuration from a file, decorators and overrides."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from window_consumer.config.checks import check, with_defaults
from window_consumer.config.conflicts import HandlerTrait, conflicts_of_handlers
from window_consumer.config.cores import usable_cores
from window_consumer.config.decorators import HandlerDefaults, explained, lay, with_handler_defaults
from window_consumer.config.interpolation import Interpolation
from window_consumer.config.options import ANY_NAME, NO_SECTIONS, Sections, secret_keys
from window_consumer.config.overrides import read_override
from window_consumer.config.problems import InvalidError, Problem, to_error
from window_consumer.config.schema import Config
from window_consumer.config.sections.concurrency import MOST, with_cores
from window_consumer.config.sections.kafka_properties import as_text, is_secret_key
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.structure import is_property, structure
from window_consumer.config.tree import Path, Tree, ValueOrigin, walk
from window_consumer.config.yaml_file import read_file
from window_consumer.kafka.settings import BOOTSTRAP
from window_consumer.model.errors import ConfigError
from window_consumer.model.redaction import Mask
from window_consumer.runtime.pools.registry import KINDS

_NONE: Final[HandlerDefaults] = MappingProxyType({})

_SHORTEST_WORD: Final = 8
"""A word of a secret that is also masked alone, such as the token in ``Bearer TOKEN``."""


@frozen
class LoadedConfig:
    """A configuration that passed all checks that need no cluster."""

    config: Config
    secrets: frozenset[str] = field(repr=False)
    """Texts that no output may contain, see ``Mask``."""
    _tree: Tree = field(repr=False)
    file: pathlib.Path
    """The file it was read from; its relative paths start at its directory."""

    def where(self, path: Path) -> str:
        """Return where a value was set: ``workers.yaml:14``, ``@app.handler charge``, ``--set …``.

        ``path`` holds the keys as in the file: ``("workers", "charge", "kafka",
        "fetch.min.bytes")``. If the value is set nowhere, this is the place of its nearest parent
        that is set.
        """
        return self._tree.origin(path).where

    def is_set(self, path: Path) -> bool:
        """Return whether a value, or one below it, is set somewhere."""
        return any(at[: len(path)] == path for at in self._tree.origins)

    def refuse_handlers(self, worker: WorkerConfig, traits: Mapping[HandlerTrait, str]) -> None:
        """Raise ConfigError for keys that conflict with a worker's handlers, see ``conflicts``."""
        problems = list(conflicts_of_handlers(worker, self._tree, traits))
        if problems:
            raise self.error_of(problems)

    def error_of(self, problems: Sequence[Problem]) -> ConfigError:
        """Return the error that reports problems found outside of the file."""
        return to_error(problems, self._tree, Mask(self.secrets))


def load(  # noqa: PLR0913 - the layers to merge, and the caller's options
    path: pathlib.Path,
    handler_defaults: HandlerDefaults = _NONE,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    *,
    without_handlers: bool = False,
    sections: Sections = NO_SECTIONS,
    only_section: str | None = None,
    only_built_in: bool = False,
    cores: Callable[[], int] = usable_cores,
) -> LoadedConfig:
    """Read a configuration file and merge it with decorators and ``--set``.

    Decorators give defaults: ``handler_defaults`` has the raw values of a worker's keys for each
    handler; None counts as not given. The file overrides them, and ``overrides`` (``KEY=VALUE``)
    override the file. Mappings are merged, lists and scalars replaced. ``${...}`` in the file and
    in overrides is replaced from ``environ`` and files; relative file names start at the
    configuration's directory. References in overridden values are ignored and need not resolve.

    ``without_handlers`` is for commands without an application: keys that its decorators may give,
    topics and ``on_failure``, can be missing. ``sections`` are those of features; ``only_section``
    names one whose commands do not use workers: see ``_of_section``. ``only_built_in`` drops the
    workers of the file and keeps those that sections add.

    Raises ConfigError with all problems found, secrets masked.
    """
    try:
        tree, problems = read_file(path)
    except InvalidError as error:
        raise to_error(error.problems, Tree({}, {(): ValueOrigin(str(path))}), Mask(())) from None
    tree = _with_overrides(tree, overrides, sections, problems)
    if only_section is not None:
        with_it = {each.name for each in sections.file if each.part_of == only_section}
        tree = _of_section(tree, {only_section, *with_it})
    if only_built_in:
        tree = tree.without(("workers",))
    interpolation = Interpolation(environ, path.parent)
    tree, not_filled_in = interpolation.apply(tree)
    tree = with_handler_defaults(tree, handler_defaults, problems)
    secrets = frozenset(interpolation.secrets | set(_secret_values(tree, sections))) - {""}
    config, not_structured = structure(tree, sections)
    config = _with_cores(config, tree, cores)
    config = _with_built_in(config, sections, problems)
    problems += [*not_filled_in, *not_structured]
    without_handlers = without_handlers or only_section is not None
    problems += check(config, tree, problems, sections, without_handlers=without_handlers)
    alone = (each.works_alone(config.section(each.kind)) for each in sections.file)
    adds_workers = any(each.workers and tree.get((each.name,)) for each in sections.file)
    if only_section is not None or adds_workers or (without_handlers and any(alone)):
        problems = [problem for problem in problems if problem.path != ("workers",)]
    if problems:
        problems = explained(problems, tree, handler_defaults)
        raise to_error(problems, tree, Mask(secrets))
    workers = {name: with_defaults(worker) for name, worker in config.workers.items()}
    return LoadedConfig(evolve(config, workers=workers), secrets, tree, path)


def _of_section(tree: Tree, only: Collection[str]) -> Tree:
    """Keep the sections ``only``, and ``kafka``.

    If ``kafka`` names no brokers, also keep the ``kafka`` section of each worker that has one.
    """
    if not isinstance(tree.value, dict):
        return tree
    kafka = tree.get(("kafka",))
    is_enough = isinstance(kafka, dict) and not BOOTSTRAP.isdisjoint(kafka)
    for section in tuple(tree.value):
        if section not in {*only, "kafka"} and (section != "workers" or is_enough):
            tree = tree.without((section,))
    workers = tree.get(("workers",))
    for name, worker in (workers if isinstance(workers, dict) else {}).items():
        if not isinstance(worker, dict) or "kafka" not in worker:
            tree = tree.without(("workers", name))
            continue
        for key in worker:
            if key != "kafka":
                tree = tree.without(("workers", name, key))
        tree = Tree({"workers": {name: {"group": name}}}, {}).over(tree)  # every worker has one
    return tree


def _with_built_in(config: Config, sections: Sections, problems: list[Problem]) -> Config:
    """Add the workers of sections that have no problems of their own."""
    workers = dict(config.workers)
    for section in sections.file:
        added = section.workers(config.section(section.kind)) if section.workers else ()
        for worker in added:
            if worker.name in workers:
                message = f"is the name of a worker that {section.name} adds: choose another one"
                problems.append(Problem(("workers", worker.name), message))
            workers[worker.name] = worker
    return evolve(config, workers=workers)


def _with_cores(config: Config, tree: Tree, cores: Callable[[], int]) -> Config:
    """Fill in the concurrency of workers that leave it to us."""
    workers = dict(config.workers)
    for name, worker in config.workers.items():
        pool = KINDS[worker.pool]
        if pool.computes_in_parallel:
            given = tree.get(("workers", name, "concurrency"))
            most = min(cores(), pool.max_slots or MOST)
            concurrency = with_cores(given, worker.concurrency, most)
            workers[name] = evolve(worker, concurrency=concurrency)
    return evolve(config, workers=workers)


def _with_overrides(
    tree: Tree, overrides: Iterable[str], sections: Sections, problems: list[Problem]
) -> Tree:
    workers = tree.get(("workers",))
    names = tuple(workers) if isinstance(workers, dict) else ()
    for text in overrides:
        try:
            override, found = read_override(text, names, sections)
        except InvalidError as error:
            problems.extend(error.problems)
            continue
        problems.extend(found)
        tree = lay(override, tree)
    return tree


def _secret_values(tree: Tree, sections: Sections) -> Iterable[str]:
    secrets = list(secret_keys(sections))
    for path, value in walk(tree.value):
        if any(_fits(path, secret) for secret in secrets) and isinstance(value, str | int | float):
            text = as_text(value)
            yield text
            yield _password_of(text)
            yield from (word for word in text.split() if len(word) >= _SHORTEST_WORD)
            yield tree.origin(path).text or ""
        key = (
            ".".join(str(part) for part in path[path.index("kafka") :]) if is_property(path) else ""
        )
        if is_secret_key(key) and isinstance(value, str | int | float):
            yield as_text(value)
            yield tree.origin(path).text or ""


def _fits(path: Path, pattern: tuple[str, ...]) -> bool:
    return len(path) == len(pattern) and all(
        wanted in {ANY_NAME, part} for part, wanted in zip(path, pattern, strict=True)
    )


def _password_of(url: str) -> str:
    """Return the password in a URL as it is written there; empty without one."""
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""
