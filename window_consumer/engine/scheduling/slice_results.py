"""What became of the records of a slice: what its slot recorded, and the results by record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import repeat
from operator import is_, itemgetter, length_hint
from typing import TypeVar

from attrs import define, field, frozen

from window_consumer.model.errors import Skip
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome
from window_consumer.model.produce import Produce
from window_consumer.model.record import Message

T = TypeVar("T")


@frozen(eq=False)
class RecordsReturned:
    """A call that returned records to produce; its own records stay open until these are acked."""

    messages: Sequence[Message]
    """One record, or those of a batch."""
    results: Sequence[Produce]
    handler: str = ""
    """The name of the handler that was called; empty if the worker has only one."""


@define
class Deviations:
    """The records of a slice whose handler did more than just return."""

    failed: list[tuple[Message, Failure]] = field(factory=list)
    held: list[Message] = field(factory=list)
    """Claimed but not started, because an earlier record of the same lane failed."""
    skipped: list[tuple[Message, Outcome]] = field(factory=list)
    """Finished without having been handled, and how they ended."""
    returned: list[RecordsReturned] = field(factory=list)
    """Calls with results to produce; the later records of their lanes were held."""

    def skip(self, message: Message, error: Skip) -> None:
        """Record that a record is finished without having been handled."""
        self.skipped.append((message, error.outcome))


@frozen
class SliceResults:
    """The results of a slice's records, by their index in the slice."""

    done: list[tuple[Sequence[int], list[Message]]]
    """Records whose handler returned, with their sequence numbers."""
    failed: list[tuple[int, Failure]]
    held: list[int]
    skipped: Mapping[int, Outcome]
    """Records that no handler handled, and how they ended."""
    returned: list[tuple[list[int], RecordsReturned]] = field(factory=list)
    """The indices of a call's records, and its results to produce."""

    @classmethod
    def of(
        cls,
        messages: list[Message],
        seqs: Sequence[int],
        recorded: Deviations,
        but: Collection[int],
    ) -> SliceResults:
        """Sort a slice's records by result; those at the indices ``but`` are left out."""
        failed = [
            (index, failure)
            for index, (_, failure) in _places(messages, recorded.failed, itemgetter(0))
            if index not in but
        ]
        held = [index for index, _ in _places(messages, recorded.held, _itself) if index not in but]
        skipped = {
            index: outcome
            for index, (_, outcome) in _places(messages, recorded.skipped, itemgetter(0))
            if index not in but
        }
        returned = _calls_of(messages, recorded.returned)
        others = [*but, *held, *skipped, *(index for index, _ in failed)]
        others += [index for indices, _ in returned for index in indices]
        done: list[tuple[Sequence[int], list[Message]]] = []
        start = 0
        for index in sorted([*others, len(messages)]):
            if index > start:
                done.append((seqs[start:index], messages[start:index]))
            start = index + 1
        return cls(done, failed, held, skipped, returned)


def _calls_of(
    messages: Sequence[Message], calls: Sequence[RecordsReturned]
) -> list[tuple[list[int], RecordsReturned]]:
    """Return the calls with results to produce, with the indices of their records."""
    if not calls:
        return []
    # By identity, as below; several calls for one batch come in any order.
    places = {id(message): index for index, message in enumerate(messages)}
    found = []
    for call in calls:
        indices = [places[id(each)] for each in call.messages if id(each) in places]
        if indices:
            found.append((indices, call))
    return found


def _places(
    messages: Sequence[Message], recorded: Sequence[T], message_of: Callable[[T], Message]
) -> Iterator[tuple[int, T]]:
    """Yield each recorded item with the index of its record, in the order of claiming.

    Records that are no longer in the slice were completed when the rest was taken back.
    """
    # One pass through the slice, in C, by identity: comparing messages is slow.
    rest = iter(messages)
    for each in recorded:
        message = message_of(each)
        if not any(map(is_, rest, repeat(message))):
            rest = iter(messages)  # calls for parts of a batch may come in any order
            if not any(map(is_, rest, repeat(message))):
                rest = iter(messages)
                continue
        yield len(messages) - length_hint(rest) - 1, each


def _itself(message: Message) -> Message:
    return message
