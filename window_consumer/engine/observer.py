"""Observers of an Engine: traces, audits and spans record what happens to records.

Observers never decide: none can change what the Engine does, or delay it much. All calls go through
``Observers``, which keeps their exceptions away from the poll thread. Only rules, which see here
the results of their decisions, may raise and thereby stop the worker: see ``turn``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from attrs import define, field

from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import Message

if TYPE_CHECKING:
    from window_consumer.engine.guards.breaker_state import BreakerNews
    from window_consumer.engine.guards.stuck_calls import Stalled
    from window_consumer.engine.partition import Partition
    from window_consumer.engine.retry.failed_record import FailedRecord
    from window_consumer.engine.scheduling.slices import Slice
    from window_consumer.model.fault import Failure

P = ParamSpec("P")


class Observer:
    """Receives what happens to records; the methods do nothing. Called on the poll thread.

    Implementations record the facts and leave the work to their own threads: a method is called for
    each slice, not for each record, and has a few microseconds. Times are monotonic seconds of the
    worker's clock. Arguments belong to the Engine and must not be changed; messages may be kept.
    Each assignment reports its records: after a rebalance or a restart one may appear again with
    the same topic, partition and offset.
    """

    def assigned(self, partition: Partition, now: float) -> None:
        """Called for a partition that is ours from now on."""

    def given_up(self, partition: Partition, now: float) -> None:
        """Called when a partition is released: no more reports or commits follow."""

    def taken(self, partition: Partition, messages: Sequence[Message], now: float) -> None:
        """Called for delivered records, in offset order.

        Records among them that an earlier assignment finished are not reported again.
        """

    def gone(self, partition: Partition, offsets: Sequence[range], now: float) -> None:
        """Called for offsets that will not be read: the log lost them, or they are skipped with it.

        Offsets that an earlier assignment finished are excluded.
        """

    def over(self, slice_: Slice, now: float) -> None:
        """Called when a slot has finished a slice, before its records are reported.

        If the slice was split in the meantime, its earlier records were completed then. If its
        partition was released, its records' results are ignored.
        """

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Called for records whose handler returned (DONE) or skipped them (SKIPPED).

        FILTERED records match no handler and need no action. ``slice_`` is the slice they ran in;
        None if their results had to be acked first.
        """

    def failed(self, failed: FailedRecord, now: float) -> None:
        """Called for a failed call: ``reason`` is None if the handler is called again here."""

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Called when a record leaves the ladder: MOVED, DEAD_LETTERED, EXPIRED or DROPPED.

        A record that a user skipped is SKIPPED, with reason MANUAL. Copies are acked by then. If
        ``failed.is_dropped``, the record has no copy.
        """

    def stalled(self, stalled: Stalled, failure: Failure, now: float) -> None:
        """Called for a call that does not return, with its stack."""

    def held(self, failure: Failure, until: float, now: float) -> None:
        """Called when a call asked that nothing starts before a time, see ``HoldCalls``."""

    def breaker(self, news: BreakerNews, now: float) -> None:
        """Called when the circuit breaker has changed its state."""

    def committing(self, partition: Partition, commit: Commit, now: float) -> None:
        """Called for a commit that is about to be sent.

        The commit covers all records reported as finished or left, at least those before
        ``commit.next_offset``. Others may run again if its metadata has no room for them.
        """


_REPORTS = tuple(name for name in vars(Observer) if not name.startswith("_"))
"""The names of an observer's methods."""


def does_anything(observer: Observer) -> bool:
    """Return whether an observer wants any report."""
    return any(_does_something(getattr(observer, name), name) for name in _REPORTS)


def _does_something(method: Callable[..., None], name: str) -> bool:
    return getattr(method, "__func__", None) is not getattr(Observer, name)


def _to_each(
    method: Callable[Concatenate[Observer, P], None],
) -> Callable[Concatenate[Observers, P], None]:
    """Return a method of Observers that calls the same method of each observer."""
    name = method.__name__

    def notify(self: Observers, /, *about: P.args, **more: P.kwargs) -> None:
        for call in self._overridden[name]:
            try:
                call(*about, **more)
            except Exception as error:
                self.failures += 1
                self.on_error(error)

    notify.__doc__ = method.__doc__
    return notify


@define(eq=False)
class Observers(Observer):
    """Calls several observers and keeps their exceptions away from the caller."""

    observers: Sequence[Observer]
    on_error: Callable[[Exception], None]
    """Called with each exception; if it raises, the report ends."""
    failures: int = 0
    """How often an observer has raised."""
    _overridden: Mapping[str, Sequence[Callable[..., None]]] = field(init=False, repr=False)
    """By method name: the methods that observers have overridden. Only these are called."""

    def __attrs_post_init__(self) -> None:
        found = {name: [getattr(each, name) for each in self.observers] for name in _REPORTS}
        self._overridden = {
            name: [method for method in methods if _does_something(method, name)]
            for name, methods in found.items()
        }

    assigned = _to_each(Observer.assigned)
    given_up = _to_each(Observer.given_up)
    taken = _to_each(Observer.taken)
    gone = _to_each(Observer.gone)
    over = _to_each(Observer.over)
    finished = _to_each(Observer.finished)
    failed = _to_each(Observer.failed)
    left = _to_each(Observer.left)
    stalled = _to_each(Observer.stalled)
    held = _to_each(Observer.held)
    breaker = _to_each(Observer.breaker)
    committing = _to_each(Observer.committing)
