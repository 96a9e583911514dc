"""Who listens to an Engine: traces, audits and spans hear what becomes of records.

Observers listen and never decide: none of them can change, or slow down much, what the Engine does.
``Observers`` is the one door to them, and keeps what they raise away from the poll thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from attrs import define, field

from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import Message

if TYPE_CHECKING:
    from window_consumer.engine.guards.circuit_breaker import BreakerNews
    from window_consumer.engine.guards.stalls import Stalled
    from window_consumer.engine.partition import Partition
    from window_consumer.engine.retry.policy import FailedRecord
    from window_consumer.engine.scheduling.slices import Slice
    from window_consumer.model.fault import Failure

P = ParamSpec("P")


class Observer:
    """Hears what becomes of records; does nothing with it. Called on the poll thread.

    Implementations take notes and leave the work to threads of their own: a method is called for
    each slice, not for each record, and has a few microseconds. Times are those of the worker's
    clock, in monotonic seconds. What is handed over belongs to the Engine and must not be changed;
    messages may be kept. A record is new to each assignment: after a rebalance or a restart it
    may be heard of again, with the same topic, partition and offset.
    """

    def assigned(self, partition: Partition, now: float) -> None:
        """Hear of a partition that is ours from now on."""

    def given_up(self, partition: Partition, now: float) -> None:
        """Hear that nothing more will be heard of a partition, and nothing more committed."""

    def taken(self, partition: Partition, messages: Sequence[Message], now: float) -> None:
        """Hear of records that were delivered, in offset order.

        Those among them that an earlier assignment has finished are not heard of again.
        """

    def gone(self, partition: Partition, offsets: Sequence[range], now: float) -> None:
        """Hear of offsets that nobody here will read: they were gone, or are passed over.

        What an earlier assignment has finished is not among them.
        """

    def over(self, slice_: Slice, now: float) -> None:
        """Hear that a slot is through with a slice, before its records are heard of.

        The slice may have been cut meanwhile: what ran before was settled then. Its partition may
        be given up; its records' results are ignored then.
        """

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Hear of records whose handler returned (DONE) or skipped them (SKIPPED).

        FILTERED are those that no handler is for, where nothing is done with them.
        ``slice_`` is what they ran in; None where their results had to be acked first.
        """

    def failed(self, failed: FailedRecord, now: float) -> None:
        """Hear of a failed call: ``reason`` is None where the handler is called again here."""

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """Hear that a record left the ladder for good: MOVED, DEAD_LETTERED, EXPIRED or DROPPED.

        SKIPPED is one that a person took out of the way, with reason MANUAL. Copies are acked by
        now. ``failed.is_dropped`` tells what has no copy.
        """

    def stalled(self, stalled: Stalled, failure: Failure, now: float) -> None:
        """Hear of a call that does not return, and where it stands."""

    def breaker(self, news: BreakerNews, now: float) -> None:
        """Hear that the circuit breaker has changed its state."""

    def committing(self, partition: Partition, commit: Commit, now: float) -> None:
        """Hear of a commit that is about to be sent.

        It says that everything is finished that was heard of as finished or left, at least what
        lies before ``commit.next_offset``; what its metadata has no room for may run again.
        """


def _does_something(hear: Callable[..., None], name: str) -> bool:
    return getattr(hear, "__func__", None) is not getattr(Observer, name)


def _to_each(
    method: Callable[Concatenate[Observer, P], None],
) -> Callable[Concatenate[Observers, P], None]:
    """Return the method of Observers that calls one of each observer."""
    name = method.__name__

    def notify(self: Observers, /, *about: P.args, **more: P.kwargs) -> None:
        for hear in self._hearers[name]:
            try:
                hear(*about, **more)
            except Exception as error:
                self.failures += 1
                self.on_error(error)

    notify.__doc__ = method.__doc__
    return notify


@define(eq=False)
class Observers(Observer):
    """Tells each of several observers, and keeps what they raise away from who tells it."""

    observers: Sequence[Observer]
    on_error: Callable[[Exception], None]
    """Hears of each exception; must not raise."""
    failures: int = 0
    """How often one of them has raised."""
    _hearers: Mapping[str, Sequence[Callable[..., None]]] = field(init=False, repr=False)
    """By method: those of the observers that have one of their own. The others need not hear."""

    def __attrs_post_init__(self) -> None:
        names = [name for name in vars(Observer) if not name.startswith("_")]
        found = {name: [getattr(each, name) for each in self.observers] for name in names}
        self._hearers = {
            name: [hear for hear in hearers if _does_something(hear, name)]
            for name, hearers in found.items()
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
    breaker = _to_each(Observer.breaker)
    committing = _to_each(Observer.committing)
