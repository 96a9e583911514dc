"""Worker keys that the handlers' decorators give, laid below the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from window_consumer.config.problems import Problem, did_you_mean
from window_consumer.config.tree import Path, Tree, ValueOrigin, dotted, walk

HandlerDefaults = Mapping[str, Mapping[str, Any]]

_SUBSCRIPTION: Final = frozenset({"topics", "patterns"})
"""These replace each other: topics in one layer replace patterns in another."""


def with_handler_defaults(
    tree: Tree, handler_defaults: HandlerDefaults, problems: list[Problem]
) -> Tree:
    """Lay a tree over the defaults from the decorators of each worker's handlers.

    If a worker has several handlers, the tree must decide where they disagree.
    """
    workers = tree.get(("workers",))
    if not isinstance(workers, dict):
        return tree
    below = Tree({}, {})
    for name, worker in workers.items():
        path: Path = ("workers", name)
        for handler in _handlers_of(name, worker):
            defaults = _plain(handler_defaults.get(handler, {}))
            problems.extend(_disagreements(path, handler, defaults, below, tree))
            origin = ValueOrigin(f"@app.handler {handler}")
            origins = {at: origin for at, _ in walk(defaults, path)}
            below = Tree({"workers": {name: defaults}}, origins).over(below)
    return lay(tree, below)


def lay(upper: Tree, lower: Tree) -> Tree:
    """Lay a tree over another; a subscription (topics or patterns) is replaced as a whole."""
    value = upper.value.get("workers")
    for name, worker in (value if isinstance(value, dict) else {}).items():
        if isinstance(worker, dict) and worker.keys() & _SUBSCRIPTION:
            for key in _SUBSCRIPTION:
                lower = lower.without(("workers", name, key))
    return upper.over(lower)


def explained(
    problems: Sequence[Problem], tree: Tree, handler_defaults: HandlerDefaults
) -> list[Problem]:
    """If a decorator could give a missing key but its handler is missing, say so."""
    return [_explained(problem, tree, handler_defaults) for problem in problems]


def _explained(problem: Problem, tree: Tree, handler_defaults: HandlerDefaults) -> Problem:
    if problem.path[:1] != ("workers",) or len(problem.path) != 3:
        return problem
    name = str(problem.path[1])
    handlers = _handlers_of(name, tree.get(problem.path[:2]))
    unknown = [each for each in handlers if each not in handler_defaults]
    if not unknown or not handler_defaults or not problem.message.startswith("is missing"):
        return problem
    hint = did_you_mean(unknown[0], handler_defaults) or f"it has {', '.join(handler_defaults)}"
    why = f"the application has no handler {unknown[0]!r} whose decorator could give it; {hint}"
    return evolve(problem, message=f"{problem.message}; {why}")


def _handlers_of(name: str, worker: Any) -> Sequence[str]:
    named = worker.get("handler") if isinstance(worker, dict) else None
    handlers = named if isinstance(named, list) else [name if named is None else named]
    return [handler for handler in handlers if isinstance(handler, str)]


def _disagreements(
    path: Path, handler: str, defaults: Any, below: Tree, tree: Tree
) -> Iterator[Problem]:
    """Yield disagreements between decorators that the tree does not settle."""
    worker = tree.get(path)
    given = worker.keys() if isinstance(worker, dict) else ()
    decided = frozenset() if _SUBSCRIPTION.isdisjoint(given) else _SUBSCRIPTION
    for at, value in walk(defaults, path):
        other = below.get(at)
        if isinstance(value, dict) or other is None or other == value:
            continue
        if at[-1] in decided or isinstance(at[-1], int) or tree.get(at) is not None:
            continue
        yield Problem(
            at,
            f"{below.origin(at).where} says {other!r} and @app.handler {handler} says {value!r}:"
            f" write {dotted(at)} in the file, which wins over both",
            origin=tree.origin(at),
        )


def _plain(value: Any) -> Any:
    """Convert a decorator's arguments to what YAML would give."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
