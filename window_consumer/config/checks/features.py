"""Rules about the sections that features declare, at the top of the file and in workers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from window_consumer.config.options import Sections
from window_consumer.config.problems import Problem
from window_consumer.config.schema import Config
from window_consumer.config.sections.listening import ListenAddress, ListenSection
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree

_OF_HANDLERS: Final = ("handler", "routes", "otherwise", "pool")
"""Keys of a worker about the application's handlers."""


def feature_problems(
    config: Config, tree: Tree, broken: Collection[str | int], sections: Sections
) -> Iterator[Problem]:
    """Yield conflicts between the keys of each section, except the ``broken`` ones."""
    yield from _same_address(config, sections)
    # A broken section holds its defaults, not what the user wrote: checks would mislead.
    is_whole = not any(each.name in broken for each in sections.file)
    path: Path
    for each in sections.file:
        if each.name not in broken:
            path = (each.name,)
            found = each.check(config.section(each.kind), tree.get(path) or ())
            relations = each.relations(config) if is_whole else ()
            yield from (problem.below(path) for problem in (*found, *relations))
    for name, worker in config.workers.items():
        for each in sections.worker:
            path = ("workers", name, each.name)
            found = each.check(worker.section(each.kind), tree.get(path) or ())
            yield from (problem.below(path) for problem in found)
            related = each.relations_in_worker(worker, tree.get(path[:-1]) or ())
            yield from (problem.below(path[:-1]) for problem in related)
        if worker.handled_by:
            yield from _handled(worker, tree, sections)


def _handled(worker: WorkerConfig, tree: Tree, sections: Sections) -> Iterator[Problem]:
    """Yield keys about handlers in a worker that has a section as its handler."""
    path: Path = ("workers", worker.name)
    for second in sections.handling(worker)[1:]:
        message = f"is given, and so is {worker.handled_by}: keep one of the two"
        yield Problem((*path, second), message)
    for key in _OF_HANDLERS:
        if tree.get((*path, key)) is not None:
            message = f"is for handlers of an application, but {worker.handled_by} is the handler"
            yield Problem((*path, key), f"{message}: remove {key}")


def _same_address(config: Config, sections: Sections) -> Iterator[Problem]:
    taken: dict[ListenAddress, str] = {}
    for each in sections.file:
        section = config.section(each.kind)
        if isinstance(section, ListenSection) and section.address and section.address.port:
            other = taken.setdefault(section.address, each.name)
            if other != each.name:
                message = f"is {section.listen}, and so is {other}.listen: choose another port"
                yield Problem((each.name, "listen"), message)
