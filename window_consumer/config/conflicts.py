"""The table of meaningless pairs: two settings of a worker that cannot both hold, and why.

A pair is refused at the start, with both keys named. Rules that need more than two settings, or a
number, are in ``checks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import reduce
from typing import Any, Final

import attrs
from attrs import frozen

from window_consumer.config.options import Option, options
from window_consumer.config.problems import Problem
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode


class HandlerTrait(Enum):
    """A property of a handler that no key states; the value completes "handler X ..."."""

    BATCHES = "is a batch handler"
    SINGLE_RECORDS = "gets one record a call"
    ONCE = "has once="
    ENDLESS_CALLS = "runs on threads, whose calls cannot be ended"


@frozen
class Setting:
    """A key of a worker, and its values in a pair."""

    key: str
    """Dotted, below the worker."""
    values: tuple[object, ...] = ()
    """Empty: any value except the default."""
    is_given: bool = False
    """Only a written value conflicts, not a default. Without ``values``, even a written default
    conflicts."""

    def holds(self, worker: WorkerConfig, tree: Tree) -> bool:
        """Return whether the worker has it."""
        if self.is_given and not self.is_in(tree, worker):
            return False
        if not self.values:
            return self.is_given or self._value(worker) != self._value(_DEFAULTS)
        return self._value(worker) in self.values

    def is_in(self, tree: Tree, worker: WorkerConfig) -> bool:
        """Return whether the user wrote it."""
        return _is_given(tree.get(self.path(worker)))

    def path(self, worker: WorkerConfig) -> Path:
        """Return the path of the key in the configuration."""
        return ("workers", worker.name, *self.key.split("."))

    def shown(self, worker: WorkerConfig) -> str:
        """Return its value as the file writes it."""
        kind, value = self._option.kind, self._value(worker)
        if kind is None:
            return "given"
        return "not given" if value is None else kind.write(value)

    def place(self, worker: WorkerConfig, tree: Tree) -> str:
        """Return where it was set."""
        return tree.origin(self.path(worker)).where if self.is_in(tree, worker) else "its default"

    def _value(self, worker: WorkerConfig) -> Any:
        return reduce(getattr, self.key.split("."), worker)

    @property
    def _option(self) -> Option:
        *sections, name = self.key.split(".")
        kind: type = WorkerConfig
        for section in sections:
            inner = attrs.fields_dict(attrs.resolve_types(kind))[section].type
            assert inner is not None
            kind = inner
        return options(kind)[name][1]


@frozen
class Conflict:
    """A row of the table; ``key`` is the key to change."""

    key: Setting
    other: Setting | HandlerTrait
    why: str


_DEFAULTS: Final = WorkerConfig(group="")

_AT_MOST_ONCE: Final = Setting("delivery", (DeliveryMode.AT_MOST_ONCE,))
_BROADCAST: Final = Setting("delivery", (DeliveryMode.BROADCAST,))

CONFLICTS: Final = (
    Conflict(
        Setting("retry.on_failure", ("block",)),
        Setting("ordering", ("unordered",)),
        "without ordering no lane waits; choose:\n"
        "  on_failure: overtake, or no on_failure: the record leaves when its attempts are spent\n"
        "  ordering: key (or partition): the records of its lane wait for it",
    ),
    Conflict(
        Setting("retry.levels"),
        Setting("retry.on_failure", ("block",)),
        "the lane waits for its record, so the record cannot move; choose:\n"
        "  no levels: the record is retried where it is, without end\n"
        "  on_failure: overtake: it moves to the first level, and later ones of its lane continue",
    ),
    Conflict(
        Setting("retry.on_failure", ("park",)),
        Setting("ordering", ("unordered", "partition")),
        "parking keeps the order of a key: write ordering: key, or on_failure: overtake",
    ),
    Conflict(
        Setting("retry.on_failure", ("park",)),
        Setting("retry.levels", ((),)),
        "a key is parked while a record of it waits in the levels: write levels, or on_failure: "
        "block, which retries in place",
    ),
    Conflict(
        Setting("retry.on_failure", ("park",)),
        HandlerTrait.BATCHES,
        "a batch may hold several records of a key: write block or overtake, or decorate the "
        "handler with @app.handler",
    ),
    Conflict(
        Setting("retry.park"),
        Setting("retry.on_failure", (None, "overtake", "block")),
        "nothing is parked: write on_failure: park, or remove park",
    ),
    Conflict(
        Setting("retry.park.on_dead", ("follow",)),
        Setting("retry.when_spent", ("stop", "drop")),
        "no record becomes a dead letter: write when_spent: dead_letter, or on_dead: go_on",
    ),
    Conflict(
        Setting("on_new_failure.action", ("pause", "alert")),
        Setting("retry.when_spent", ("stop", "drop")),
        "dead letters show how other versions failed: write when_spent: dead_letter, or "
        "remove on_new_failure",
    ),
    Conflict(
        Setting("fair.floor"),
        Setting("fair.order", ("shares",)),
        "without a strict order each class gets its share: write order: strict, or remove floor",
    ),
    Conflict(
        Setting("fair.by"),
        HandlerTrait.BATCHES,
        "a batch would have records of several classes: remove fair, or decorate the handler "
        "with @app.handler",
    ),
    Conflict(
        Setting("batch"),
        HandlerTrait.SINGLE_RECORDS,
        "remove batch, or decorate the handler with @app.batch_handler",
    ),
    Conflict(
        Setting("stall.action", ("retry",)),
        HandlerTrait.ENDLESS_CALLS,
        "the record would run again beside its first call: write move, or make the handler "
        "a coroutine, or choose pool: processes",
    ),
    Conflict(
        Setting("retry", is_given=True),
        _AT_MOST_ONCE,
        "a record gets one call and is lost if that fails: remove retry",
    ),
    Conflict(
        Setting("otherwise", ("dead_letter",), is_given=True),
        _AT_MOST_ONCE,
        "nothing becomes a dead letter: write skip or stop, or remove otherwise, which then "
        "means skip",
    ),
    Conflict(
        Setting("on_expired", ("dead_letter",), is_given=True),
        _AT_MOST_ONCE,
        "nothing becomes a dead letter: write drop, or remove on_expired, which then means drop",
    ),
    Conflict(
        Setting("stall.action", ("retry",)),
        _AT_MOST_ONCE,
        "a record gets one call: write move or report",
    ),
    Conflict(
        Setting("on_new_failure.action", ("pause", "alert")),
        _AT_MOST_ONCE,
        "dead letters show how other versions failed, but nothing becomes one: remove "
        "on_new_failure",
    ),
    Conflict(
        Setting("commit_interval", is_given=True),
        _AT_MOST_ONCE,
        "records are committed before they start: remove commit_interval",
    ),
    Conflict(
        _AT_MOST_ONCE,
        HandlerTrait.ONCE,
        "once= makes repeated calls take effect once, but a record gets one call: remove one of "
        "the two",
    ),
    Conflict(
        Setting("group", is_given=True),
        _BROADCAST,
        "every process reads all partitions, without a group: remove group",
    ),
    Conflict(
        Setting("broadcast"),
        Setting("delivery", tuple(each for each in DeliveryMode if each != DeliveryMode.BROADCAST)),
        "the members of a group share the records: write delivery: broadcast, or remove broadcast",
    ),
    *(
        Conflict(Setting(key, is_given=True), _BROADCAST, f"{why}: remove {key}")
        for key, why in {
            "retry.levels": "a copy in a retry topic would reach one process",
            "retry.attempts_per_level": "a copy in a retry topic would reach one process",
            "retry.on_oversize": "no copies are written",
            "retry.crash_attempts": "nothing is committed that could record a crash",
            "commit_interval": "nothing is committed",
            "on_no_offset": "nothing is committed; broadcast.from says where to begin",
            "on_out_of_range": "reading continues at the earliest record",
        }.items()
    ),
    Conflict(
        Setting("retry.when_spent", is_given=True),
        _BROADCAST,
        "there is no dead-letter topic: write broadcast.when_spent: stop or drop",
    ),
    Conflict(
        Setting("retry.on_failure", ("park",)),
        _BROADCAST,
        "no copies are written: write block or overtake",
    ),
    Conflict(
        Setting("otherwise", is_given=True),
        _BROADCAST,
        "broadcast.when_spent decides about a record that no handler takes: remove otherwise",
    ),
    Conflict(
        Setting("on_expired", ("dead_letter",), is_given=True),
        _BROADCAST,
        "there is no dead-letter topic: write drop, or remove on_expired, which then means drop",
    ),
    Conflict(
        Setting("on_new_failure.action", ("pause", "alert")),
        _BROADCAST,
        "dead letters show how other versions failed, but nothing becomes one: remove "
        "on_new_failure",
    ),
    Conflict(
        _BROADCAST,
        HandlerTrait.ONCE,
        "each process handles each record, but once= would let only one do it: remove one of the "
        "two",
    ),
)


def conflicts_of_keys(
    worker: WorkerConfig, tree: Tree, *, only_given: bool = False
) -> Iterator[Problem]:
    """Yield the pairs of keys that a worker has.

    ``only_given`` is for a tree without decorators: an apparent default may come from one.
    """
    for row in CONFLICTS:
        key, other = row.key, row.other
        if isinstance(other, HandlerTrait):
            continue
        if not (key.holds(worker, tree) and other.holds(worker, tree)):
            continue
        if only_given and not (key.is_in(tree, worker) and other.is_in(tree, worker)):
            continue
        what = f"{other.key} is {other.shown(worker)} ({other.place(worker, tree)})"
        yield _problem(row, worker, what)


def conflicts_of_handlers(
    worker: WorkerConfig, tree: Tree, traits: Mapping[HandlerTrait, str]
) -> Iterator[Problem]:
    """Yield the keys of a worker that conflict with its handlers.

    ``traits`` are those of its handlers, each with the name and place of a handler that has it.
    """
    for row in CONFLICTS:
        other = row.other
        if isinstance(other, HandlerTrait) and other in traits and row.key.holds(worker, tree):
            yield _problem(row, worker, f"{traits[other]} {other.value}")


def _problem(row: Conflict, worker: WorkerConfig, what: str) -> Problem:
    return Problem(row.key.path(worker), f"is {row.key.shown(worker)}, and {what}: {row.why}")


def _is_given(raw: Any) -> bool:
    return any(map(_is_given, raw.values())) if isinstance(raw, dict) else raw is not None
