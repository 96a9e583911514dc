"""A batch of records that is sent in transactions, until the answer to each is known.

No client, thread or clock: the sender asks for the next part, reports its result, and gets the next
step. Brokers refuse a batch of the client as a whole, although one record may have caused it. Then
the transaction is aborted, and its records are sent again:

    result                                  sent again
    too large                               all but the record that caused it, in smaller batches
    one record of a partition is invalid    all others
    some record caused it                   two halves, until the record is alone
    no answer                               the same, after a pause: nothing may overtake it
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from attrs import frozen

from window_consumer.kafka.writing.batch_limits import BatchLimits
from window_consumer.kafka.writing.sent_record import SendFailure
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy

Answer = PublishFailedError | None
"""None: the brokers have it. ``refused``: they never will. Otherwise it is unknown."""

UNANSWERED: Final = PublishFailedError("the brokers did not answer in time")
_HELD: Final = PublishFailedError("an earlier record of its key was refused")


class AfterAbort(Enum):
    """The step before the next part."""

    NOTHING = "send it"
    NEW_CLIENT = "smaller batches need a new client"
    PAUSE = "wait a moment"


@frozen
class RefusedRecord:
    """A record of a batch that is too large."""

    place: int
    topic: str
    size: int


class AnsweredBatch:
    """The records of a batch and the known answers. Owner: the sender's thread."""

    def __init__(
        self, copies: Sequence[Copy], limits: BatchLimits[RefusedRecord], *, holds_keys: bool
    ):
        """With ``holds_keys`` no record is sent after a refused one of its topic and key."""
        self.copies = copies
        self.answers: list[Answer] = [UNANSWERED] * len(copies)
        self._limits = limits
        self._holds_keys = holds_keys
        self._parts: deque[Sequence[int]] = deque([range(len(copies))])
        self._held: dict[tuple[str, bytes], int] = {}
        """Topics and keys of refused records, with the place of the first."""
        self._silent: set[str] = set()
        """Topics of records without an answer, which no other record of them may overtake."""

    def __bool__(self) -> bool:
        """Return whether there is a part to send."""
        return bool(self._parts)

    def next_part(self) -> Sequence[int]:
        """Remove and return the places of the next transaction's records."""
        return self._parts.popleft()

    def is_held(self, place: int) -> bool:
        """Return whether a record may not be sent, because an earlier one was refused."""
        if not (self._held or self._silent):
            return False
        copy = self.copies[place]
        if copy.topic in self._silent:
            return True
        if copy.key is None or self._held.get((copy.topic, copy.key), place) >= place:
            return False
        self.answers[place] = _HELD
        return True

    # ---- answers

    def refuse(self, place: int, why: str) -> None:
        """Answer that a record will never be written."""
        copy = self.copies[place]
        self.answers[place] = PublishFailedError(why, refused=True)
        if self._holds_keys and copy.key is not None:
            key = copy.topic, copy.key
            self._held[key] = min(place, self._held.get(key, place))

    def fail(self, place: int, failure: SendFailure) -> None:
        """Give a record its answer."""
        if failure.verdict != "transient":
            self.refuse(place, failure.text)
            return
        topic = self.copies[place].topic
        self.answers[place] = PublishFailedError(
            f"copy to {topic}: {failure.text}", why=failure.text
        )
        self._silent.add(topic)

    def on_unconnected(self, why: str) -> None:
        """Answer that the fate of the rest is unknown: there is no client to send it."""
        for place in (place for part in self._parts for place in part):
            self.answers[place] = PublishFailedError(why)
        self._parts.clear()

    def on_committed(self, places: Sequence[int]) -> None:
        """Answer that the brokers have these records."""
        for place in places:
            self.answers[place] = None

    # ---- a transaction was aborted

    def topics_to_measure(self, failures: Mapping[int, SendFailure]) -> set[str]:
        """Return the topics whose limits ``on_aborted`` needs."""
        large = (place for place, each in failures.items() if each.verdict == "too_large")
        return {self.copies[place].topic for place in large}

    def on_aborted(
        self,
        part: Sequence[int],
        failures: Mapping[int, SendFailure],
        reason: SendFailure | None,
        limits: Mapping[str, int | None],
    ) -> AfterAbort:
        """Answer the records that caused the abort, and keep the rest for the next parts.

        ``failures`` belong to single records; ``reason`` is why the transaction was not committed.
        """
        batch_size = self._limits.properties
        done = self._blame(failures, limits)
        again = [place for place in part if place not in done]
        reasons = [*failures.values(), *([] if reason is None else [reason])]
        refusal = next((each for each in reasons if each.is_refusal), None)
        if self._limits.properties != batch_size:
            self._send_again(again)
            return AfterAbort.NEW_CLIENT
        if done:
            self._send_again(again)
        elif refusal is None:
            self._send_again(part)
            return AfterAbort.PAUSE
        elif len(again) == 1:
            self.fail(again[0], refusal)
        else:
            middle = len(again) // 2
            self._send_again(again[:middle], again[middle:])
        return AfterAbort.NOTHING

    def _send_again(self, *parts: Sequence[int]) -> None:
        self._parts.extendleft(part for part in reversed(parts) if part)

    def _blame(
        self, failures: Mapping[int, SendFailure], known: Mapping[str, int | None]
    ) -> set[int]:
        """Answer the records that are known to have caused it; return their places."""
        done: set[int] = set()
        invalid: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        is_refusal = any(each.is_refusal for each in failures.values())
        for place, failure in failures.items():
            topic, partition = self.copies[place].topic, failure.partition or 0
            if failure.is_purged or failure.is_of_another:
                continue
            if failure.verdict == "transient":
                if failure.is_expired or not is_refusal:
                    self.fail(place, failure)
                    done.add(place)
            elif failure.verdict == "too_large":
                size = size_of(self.copies[place])
                self._limits.add_refused(RefusedRecord(place, topic, size), partition)
            else:
                invalid[topic, partition].append(place)
        _, alone = self._limits.sort_out(known.get)
        refused = [record.place for record, _ in alone]
        refused += [places[0] for places in invalid.values() if len(places) == 1]
        for place in refused:
            self.fail(place, failures[place])
        return done.union(refused)


def size_of(copy: Copy) -> int:
    """Return the bytes of key, value and headers."""
    size = len(copy.key or b"") + len(copy.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") for name, value in copy.headers)
