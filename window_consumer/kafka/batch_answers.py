"""Whom a refusal is about: brokers refuse a batch as a whole, though one record may be to blame.

A batch that is too large is made smaller by ``batch_limits``. Of one that holds an invalid record,
brokers may name it; else each is tried alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen
from confluent_kafka import KafkaError

from window_consumer.kafka import errors
from window_consumer.kafka.writing.batch_limits import BatchLimits
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy

Answer = PublishFailedError | None
"""None: the brokers have it. ``refused``: they never will. Else nobody knows."""

UNANSWERED: Final = PublishFailedError("the brokers did not answer in time")
_HELD: Final = PublishFailedError("an earlier record of its key was refused")


@frozen
class SendingFailure:
    """Why a record was not written."""

    error: KafkaError
    partition: int | None
    """None if the client itself did not take it."""


@frozen
class RefusedRecord:
    """A record of a batch that is too large."""

    place: int
    topic: str
    size: int


class AnsweredBatch:
    """The records of a batch and what is known of each. Owner: the sender's thread."""

    def __init__(self, copies: Sequence[Copy], *, holds_keys: bool):
        """With ``holds_keys`` no record is sent after a refused one of its topic and key."""
        self.copies = copies
        self.answers: list[Answer] = [UNANSWERED] * len(copies)
        self._holds_keys = holds_keys
        self._held: dict[tuple[str, bytes], int] = {}
        """Topics and keys of refused records, with the place of the first."""
        self._silent: set[str] = set()
        """Topics of records that had no answer: none of theirs may pass these."""

    def is_held(self, place: int) -> bool:
        """Return whether a record may not be sent, as one before it was refused."""
        if not (self._held or self._silent):
            return False
        copy = self.copies[place]
        if copy.topic in self._silent:
            return True
        if copy.key is None or self._held.get((copy.topic, copy.key), place) >= place:
            return False
        self.answers[place] = _HELD
        return True

    def fail(self, place: int, error: KafkaError) -> None:
        """Give a record its answer."""
        if errors.send_verdict(error) == "transient":
            topic = self.copies[place].topic
            self.answers[place] = errors.publish_failure(error, topic)
            self._silent.add(topic)
        else:
            self.refuse(place, errors.text_of(error))

    def refuse(self, place: int, why: str) -> None:
        """Answer that a record will never be written."""
        copy = self.copies[place]
        self.answers[place] = PublishFailedError(why, refused=True)
        if self._holds_keys and copy.key is not None:
            key = copy.topic, copy.key
            self._held[key] = min(place, self._held.get(key, place))

    def leave(self, place: int, why: str) -> None:
        """Answer that nobody knows whether a record was written."""
        self.answers[place] = PublishFailedError(why)

    def sort_out(
        self,
        failures: Mapping[int, SendingFailure],
        limits: BatchLimits[RefusedRecord],
        limit_of: Callable[[str], int | None],
    ) -> set[int]:
        """Answer those that are to blame for an aborted transaction; return their places.

        The rest is sent again: with smaller batches if ``limits`` say so, else by halves.
        """
        done: set[int] = set()
        invalid: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        is_refusal = any(errors.is_refusal(each.error) for each in failures.values())
        for place, failure in failures.items():
            error, partition, topic = failure.error, failure.partition, self.copies[place].topic
            verdict = errors.send_verdict(error)
            if errors.is_purged(error) or errors.is_of_another(error):
                continue
            if verdict == "transient":
                if errors.is_expiry(error) or not is_refusal:
                    self.fail(place, error)
                    done.add(place)
            elif verdict == "too_large":
                size = size_of(self.copies[place])
                limits.add_refused(RefusedRecord(place, topic, size), partition or 0)
            else:
                invalid[topic, partition or 0].append(place)
        _, alone = limits.sort_out(limit_of)
        refused = [record.place for record, _ in alone]
        refused += [places[0] for places in invalid.values() if len(places) == 1]
        for place in refused:
            self.fail(place, failures[place].error)
        return done.union(refused)


def size_of(copy: Copy) -> int:
    """Return the bytes of key, value and headers."""
    size = len(copy.key or b"") + len(copy.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") for name, value in copy.headers)
