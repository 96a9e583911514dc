"""The history of each record of a test: calls, outcome, copy, by worker.

It receives calls from the slots and final outcomes from the windows.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

from attrs import define, field, frozen

from window_consumer.dlq.dead_letter import DeadLetter, read_dead_letter
from window_consumer.model.copy_headers import attempts_before
from window_consumer.model.errors import UsageError
from window_consumer.model.outcome import OUTCOMES, Outcome
from window_consumer.model.produce import Produce
from window_consumer.model.record import Call as CallFacts
from window_consumer.model.record import Message, OnStored, Record


class SentState(Enum):
    """The current state of a record: an outcome, in the words of the table, or an earlier state."""

    WAITING = "waiting"
    """No handler was called for it yet."""
    DONE = "done"
    """Its handler returned."""
    SKIPPED = "skipped"
    """Its handler raised Skip, or no handler takes it."""
    RETRYING = "retrying"
    """Its last call failed. It waits for the next one, or for the ack of its copy."""
    MOVED = "moved"
    """A copy waits in a retry topic."""
    DEAD_LETTERED = "dead-lettered"
    """A copy is in the dead-letter topic."""
    DROPPED = "dropped"
    """Its attempts are spent and ``retry.when_spent`` is drop."""
    EXPIRED = "expired"
    """It was older than its time to live."""

    _ignore_ = "_row"
    for _row in OUTCOMES:
        if _row.is_progress and _row.words not in vars().values():
            vars()[_row.words.replace("-", "_").upper()] = _row.words

    def __repr__(self) -> str:
        return self.name


WAITING = SentState.WAITING
DONE = SentState.DONE
SKIPPED = SentState.SKIPPED
RETRYING = SentState.RETRYING
MOVED = SentState.MOVED
DEAD_LETTERED = SentState.DEAD_LETTERED
DROPPED = SentState.DROPPED
EXPIRED = SentState.EXPIRED

_NOT_THE_USERS = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))

UNFINISHED = frozenset({WAITING, RETRYING, MOVED})

_STATES = {row: SentState(row.words) for row in OUTCOMES if row.is_progress}


@frozen
class DeliveryPosition:
    """The place of a record's first delivery."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @classmethod
    def of(cls, message: Message) -> DeliveryPosition:
        """Return the place of a message."""
        return cls(message.topic(), message.partition(), message.offset())

    @classmethod
    def of_original(cls, message: Message) -> DeliveryPosition:
        """Return the place of a copy's original; for other messages, their own."""
        origin = read_dead_letter(message).original
        return cls.of(message) if origin is None else cls(*origin)


@define(eq=False)
class HandlerCall:
    """One handler call."""

    attempt: int
    """1 for the first; continues in retry topics."""
    error: BaseException | None = None
    """Its exception, with its traceback."""


@define(eq=False)
class Handling:
    """One worker's handling of one record. It stays up to date."""

    worker: str
    record: Record
    """The record that was sent."""
    place: DeliveryPosition
    calls: list[HandlerCall] = field(factory=list)
    """The handler calls, including those of crashed processes."""
    produced: list[Produce] = field(factory=list)
    """The acked results that its handler returned; with ``once``, its committed outbox rows."""
    was_moved: bool = False
    """At least one copy was written to a retry topic."""
    find_copy: Callable[[Handling], DeadLetter | None] = field(default=lambda _: None, repr=False)
    _final: SentState | None = None

    @property
    def outcome(self) -> SentState:
        """The current state of the record."""
        if self._final is not None:
            return self._final
        return RETRYING if self.calls else WAITING

    @property
    def attempts(self) -> int:
        """The attempt of the last call, 0 before the first."""
        return self.calls[-1].attempt if self.calls else 0

    @property
    def error(self) -> BaseException | None:
        """The exception of the last call, None if it returned or there was none."""
        return self.calls[-1].error if self.calls else None

    @property
    def copy(self) -> DeadLetter | None:
        """Its last copy, in a retry topic or among the dead letters."""
        return self.find_copy(self)

    def called(self, attempt: int) -> HandlerCall:
        """Record that a call begins."""
        self._final = None
        self.calls.append(HandlerCall(attempt))
        return self.calls[-1]

    def finished(self, outcome: Outcome) -> None:
        """Record an outcome in one of the topics that it passes."""
        self._final = _STATES[outcome]
        self.was_moved |= self._final is MOVED

    def __repr__(self) -> str:
        times = f"{len(self.calls)} call{'' if len(self.calls) == 1 else 's'}"
        text = f"{self.worker}: {self.place} {self.outcome!r} after {times}"
        if self.error is None:
            return f"<{text}>"
        where = _users_place(self.error)
        return f"<{text}; the last raised {type(self.error).__name__}: {self.error}{where}>"


def _users_place(error: BaseException) -> str:
    """Return the place in the user's code where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if not each.filename.startswith(_NOT_THE_USERS)]
    return f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""


@frozen(eq=False)
class Sent:
    """A record that a test has sent, and its current state.

    ``outcome``, ``attempts``, ``calls``, ``error`` and ``copy`` belong to the one worker that reads
    the record's topic. With several workers, use ``result.of("charge").outcome``.
    """

    record: Record
    by_worker: Mapping[str, Handling]

    @property
    def outcome(self) -> SentState:
        """Its current state."""
        return self.of().outcome

    @property
    def attempts(self) -> int:
        """The attempt of the last call, 0 before the first."""
        return self.of().attempts

    @property
    def calls(self) -> list[HandlerCall]:
        """The handler calls."""
        return self.of().calls

    @property
    def error(self) -> BaseException | None:
        """The exception of the last call, None if it returned or there was none."""
        return self.of().error

    @property
    def copy(self) -> DeadLetter | None:
        """Its last copy, None without one."""
        return self.of().copy

    @property
    def produced(self) -> list[Produce]:
        """The acked results that its handler returned; with ``once``, its committed outbox rows."""
        return self.of().produced

    def of(self, worker: str | None = None) -> Handling:
        """Return a worker's handling of it; the name is optional with one worker.

        Raises UsageError if there is no such worker.
        """
        there = ", ".join(self.by_worker) or "no worker"
        if worker is None:
            if len(self.by_worker) != 1:
                raise UsageError(
                    f"{self.record.topic} is read by {there}: use result.of(WORKER) for one of them"
                )
            return next(iter(self.by_worker.values()))
        if worker not in self.by_worker:
            raise UsageError(f"{self.record.topic} is read by {there}, not by {worker!r}")
        return self.by_worker[worker]

    def __repr__(self) -> str:
        if not self.by_worker:
            return f"<{self.record!r} is read by no worker>"
        return ", ".join(map(repr, self.by_worker.values()))


class Journal:
    """Everything that was sent or handled, in that order. Owner: one thread."""

    def __init__(
        self,
        sources: Mapping[str, Container[str]],
        find_copy: Callable[[Handling], DeadLetter | None],
    ):
        self._sources = sources
        """The source topics of each worker; its other topics hold copies."""
        self._find_copy = find_copy
        self._handlings: dict[tuple[str, DeliveryPosition], Handling] = {}
        self.results: list[Produce] = []
        """The produced records, in the order of the acks."""

    def produced(self, result: Produce, handlings: Iterable[Handling]) -> None:
        """Record that a result is acked or committed, from a call for these records."""
        self.results.append(result)
        for handling in handlings:
            handling.produced.append(result)

    def storing(self, worker: str) -> OnStored:
        """Return the callback for the committed outbox rows of a call with ``once``."""

        def stored(records: Sequence[Record], rows: Sequence[Produce]) -> None:
            handlings = [self.of(worker, each._message) for each in records]  # noqa: SLF001 - as below
            for row in rows:
                self.produced(row, handlings)

        return stored

    def __iter__(self) -> Iterator[Handling]:
        return iter(self._handlings.values())

    def of(self, worker: str, message: Message) -> Handling:
        """Return the history of a worker's record; a copy counts as its original."""
        is_copy = message.topic() not in self._sources[worker]
        place = DeliveryPosition.of_original(message) if is_copy else DeliveryPosition.of(message)
        handling = self._handlings.get((worker, place))
        if handling is None:
            record = Record.of(message, CallFacts(before=attempts_before if is_copy else None))
            handling = Handling(worker, record, place, find_copy=self._find_copy)
            self._handlings[worker, place] = handling
        return handling

    def with_outcome(self, *outcomes: SentState) -> list[Handling]:
        """Return the handlings with one of these outcomes."""
        return [each for each in self if each.outcome in outcomes]
