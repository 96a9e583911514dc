"""Rules about several keys. Each message lists every way to fix the conflict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final, Literal

from attrs import evolve

from window_consumer.config import kinds, units
from window_consumer.config.checks.client_properties import problems_with_clients
from window_consumer.config.checks.features import feature_problems
from window_consumer.config.checks.login import login_problems
from window_consumer.config.checks.subscription import ladder_topics, overlap
from window_consumer.config.conflicts import conflicts_of_keys
from window_consumer.config.options import Sections
from window_consumer.config.problems import Problem, did_you_mean
from window_consumer.config.schema import Config
from window_consumer.config.sections import RetryConfig
from window_consumer.config.sections.fair import FairConfig
from window_consumer.config.sections.guards import NewFailureConfig
from window_consumer.config.sections.mask import empty_rules
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.runtime.pools.registry import KINDS

_CHOOSE: Final = """\
has to be chosen, because ordering is {ordering}:
  block:    a failing record is retried without end and its lane waits: order is kept
  overtake: it leaves when its attempts are spent, and later ones of its lane continue"""

_OR_PARK: Final = """
  park:     it moves to retry.levels, and later ones of its key wait for it in a park topic"""

_NO_CLASSES: Final = """\
is missing: what defines a class, for example by: header('tenant'), by: topic or by: key"""

_RATE_OF_CLASSES: Final = """\
is per class, but no classes are defined: write fair.by, for example by: header('tenant'), or \
choose another per"""

_ALL_ALIKE: Final = """\
is strict, but all classes weigh the same; write weights, for example {urgent: 10, default: 1}"""

_NO_ACTION: Final = """\
does nothing without an action; choose:
  action: pause: nothing more starts or leaves until somebody resumes the worker
  action: alert: it is only reported"""

_TOO_MANY: Final = """\
is {given}, but pool: {pool} allows at most {most}; choose about the number of \
processor cores, which is also the default"""


def check(
    config: Config,
    tree: Tree,
    known: Collection[Problem],
    sections: Sections,
    *,
    without_handlers: bool = False,
) -> list[Problem]:
    """Return conflicts between keys that are valid by themselves.

    ``known`` holds the problems of single keys; a broken key is not checked again. ``sections``
    are those of features. With ``without_handlers``, keys that decorators may give can be missing.
    """
    broken = {problem.path[0] for problem in known if problem.path}
    running = [worker for worker in config.workers.values() if worker.enabled]
    problems = list(_missing_groups(tree))
    problems += [
        problem
        for worker in config.workers.values()
        if worker.own_topics is None  # else its section is checked
        for problem in (
            *_worker(worker, without_handlers=without_handlers),
            *conflicts_of_keys(worker, tree, only_given=without_handlers),
        )
    ]
    if not running and "workers" not in broken:
        problems.append(
            Problem(("workers",), "all are disabled; at least one has to say enabled: true")
        )
    if "mask" not in broken:
        problems.extend(empty_rules(config.mask))
    problems.extend(feature_problems(config, tree, broken, sections))
    if "kafka" not in broken:
        problems.extend(login_problems(config, tree))
        for worker in running:
            problems.extend(problems_with_clients(config, worker, tree))
    for index, worker in enumerate(running):
        for other in running[:index]:
            problems.extend(overlap(worker, other, tree))
    if "topics" not in broken:
        with_ladders = [worker for worker in running if not worker.is_broadcast]
        problems.extend(ladder_topics(with_ladders, config.topics, tree))
    return problems


def _missing_groups(tree: Tree) -> Iterator[Problem]:
    """Find workers without a group, including workers with other problems."""
    workers = tree.get(("workers",))
    for name, worker in workers.items() if isinstance(workers, dict) else ():
        if isinstance(worker, dict | None) and "group" not in (worker or {}):
            if worker and worker.get("delivery") == DeliveryMode.BROADCAST:
                continue
            expected = kinds.kafka_name("group").expected
            yield Problem(("workers", name, "group"), f"is missing: {expected}")


def with_defaults(worker: WorkerConfig) -> WorkerConfig:
    """Fill in what follows from other keys.

    on_failure defaults to overtake; in an ordered worker whose handler is a section, to block.
    """
    if worker.is_broadcast:
        worker = _with_broadcast(worker)
    if worker.delivery is DeliveryMode.AT_MOST_ONCE:
        return _with_at_most_once(worker)
    if worker.retry.on_failure is not None or _must_choose(worker):
        return worker
    on_failure: Literal["block", "overtake"] = "overtake"
    if worker.handled_by and worker.ordering != "unordered":
        on_failure = "block"
    return evolve(worker, retry=evolve(worker.retry, on_failure=on_failure))


def _with_at_most_once(worker: WorkerConfig) -> WorkerConfig:
    """Fill in the settings of a worker that calls each record once: no ladder."""
    return evolve(
        worker,
        retry=RetryConfig(attempts=1, crash_attempts=1, when_spent="drop", on_failure="overtake"),
        otherwise="skip" if worker.otherwise == "dead_letter" else worker.otherwise,
        on_expired="drop",
    )


def _with_broadcast(worker: WorkerConfig) -> WorkerConfig:
    """Fill in the settings of a worker without a group: no ladder, no commits."""
    when_spent = worker.broadcast.when_spent
    return evolve(
        worker,
        retry=evolve(worker.retry, when_spent=when_spent),
        otherwise="stop" if when_spent == "stop" else "skip",
        on_expired="drop",
        on_out_of_range="earliest",
    )


def _worker(worker: WorkerConfig, *, without_handlers: bool) -> Iterator[Problem]:
    path: Path = ("workers", worker.name)
    if worker.topics and worker.patterns:
        yield Problem((*path, "patterns"), "topics is given too; keep one of the two")
    elif not worker.topics and not worker.patterns and not without_handlers:
        message = "is missing: write a list of topic names, or patterns: with a list of expressions"
        yield Problem((*path, "topics"), message)
    if _must_choose(worker) and worker.retry.on_failure is None and not without_handlers:
        or_park = _OR_PARK if worker.ordering == "key" else ""
        message = _CHOOSE.format(ordering=worker.ordering) + or_park
        yield Problem((*path, "retry", "on_failure"), message)
    for handler in worker.routes:
        if handler not in worker.handlers:
            hint = did_you_mean(handler, worker.handlers)
            message = f"is none of the worker's handlers, {', '.join(worker.handlers)}"
            yield Problem((*path, "routes", handler), f"{message}; {hint}" if hint else message)
    yield from _batch(worker)
    yield from _levels(worker)
    yield from _slots(worker)
    yield from _fair(worker)
    yield from _new_failure(worker)
    for index, name in enumerate(worker.retry.retryable):
        if name in worker.retry.fatal:
            message = "is in fatal too; keep it in one of the two lists"
            yield Problem((*path, "retry", "retryable", index), message)


def _must_choose(worker: WorkerConfig) -> bool:
    ladderless = (DeliveryMode.AT_MOST_ONCE, DeliveryMode.BROADCAST)
    keeps_order = worker.handled_by and not worker.retry.levels
    return not keeps_order and worker.ordering != "unordered" and worker.delivery not in ladderless


def _batch(worker: WorkerConfig) -> Iterator[Problem]:
    path: Path = ("workers", worker.name, "batch")
    batch = worker.batch
    if batch.min_records > batch.max_records:
        message = f"is {batch.min_records}, and a batch is full with max_records, "
        yield Problem((*path, "min_records"), f"{message}{batch.max_records}")


def _slots(worker: WorkerConfig) -> Iterator[Problem]:
    most = KINDS[worker.pool].max_slots
    if most is not None and worker.slots > most:
        message = _TOO_MANY.format(given=worker.concurrency, pool=worker.pool, most=most)
        yield Problem(("workers", worker.name, "concurrency"), message)


def _fair(worker: WorkerConfig) -> Iterator[Problem]:
    path: Path = ("workers", worker.name, "fair")
    fair = worker.fair
    if fair.by is None:
        rate = worker.rate_per_process
        if rate is not None and rate.per == "class":
            yield Problem(("workers", worker.name, "rate_per_process"), _RATE_OF_CLASSES)
        if fair != FairConfig():
            yield Problem((*path, "by"), _NO_CLASSES)
        return
    weights = {fair.weights.get("default", 1.0), *fair.weights.values()}
    if fair.order == "strict" and len(weights) < 2:
        yield Problem((*path, "order"), _ALL_ALIKE)
    most = fair.at_most.slots
    if most is not None and most > worker.slots:
        message = f"is {most} slots, and the worker has {worker.slots} (concurrency)"
        yield Problem((*path, "at_most"), message)


def _new_failure(worker: WorkerConfig) -> Iterator[Problem]:
    watch = worker.on_new_failure
    if watch.action is None and watch != NewFailureConfig():
        yield Problem(("workers", worker.name, "on_new_failure"), _NO_ACTION)


def _levels(worker: WorkerConfig) -> Iterator[Problem]:
    path: Path = ("workers", worker.name, "retry", "levels")
    levels = worker.retry.levels
    for index, (before, level) in enumerate(pairwise(levels), start=1):
        if level <= before:
            delay, after = units.format_duration(level), units.format_duration(before)
            message = f"{delay} comes after {after}: write the shortest first"
            yield Problem((*path, index), message)
