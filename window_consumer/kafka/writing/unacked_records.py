"""Records that are kept until the brokers have them: decides about each that a client fails.

Events go in, with the time; decisions come from ``accept``, ``take``, ``refused.ready`` and
``endings``. There is no client here, no thread and no clock.

A record is in one place at a time:

    the shared client's queue     passed on after ``accept``, or by ``take``
    waiting                       to be sent again by the next client, in the order of numbers
    limits                        refused with a batch that is too large, until ``sort_out``
    missing                       until its topic exists
    refused                       its topic has a separate client: in its queue, or before it
    endings                       it has failed

It leaves by an acknowledgement, which matters to the rules only if its topic is refused, or by an
end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Generic

from attrs import frozen

from window_consumer.kafka.writing.batch_limits import BatchLimits
from window_consumer.kafka.writing.memory_limit import MemoryLimit
from window_consumer.kafka.writing.missing_topics import MissingTopics
from window_consumer.kafka.writing.refused_topics import RefusedTopics
from window_consumer.kafka.writing.sent_record import Ending, RecordEnd, SendFailure, Sent


@frozen(kw_only=True)
class KeepingRules:
    """Limits of time and size."""

    memory: int
    """Bytes of unacknowledged values; also limits records, to one per 512 bytes."""
    missing_topic_s: float
    largest_record: int
    """The largest record that the client itself accepts, in bytes."""
    batch_bytes: int
    resends: bool = True
    """False with transactions, which are retried as a whole."""


class UnackedRecords(Generic[Sent]):
    """Decides by the failure. Owner: the holder of the driver's lock."""

    def __init__(self, rules: KeepingRules):
        self._rules = rules
        self.memory = MemoryLimit(rules.memory)
        self.missing = MissingTopics[Sent](rules.missing_topic_s, self.memory)
        self.refused = RefusedTopics[Sent](self.memory)
        self.limits = BatchLimits[Sent](rules.batch_bytes)
        self.endings: deque[tuple[Sent, RecordEnd]] = deque()
        """Records that have failed, for the driver to report without the lock."""
        self._waiting: list[Sent] = []
        self._large: list[Sent] = []
        """Records that the separate client's brokers refused: each was a batch of its own."""
        self._refusals: dict[str, str] = {}
        """Topics with a refused record since the client was created, with the reason."""
        self._doubtful: set[int] = set()
        self._doubtful_below = 0
        self._refused_login: str | None = None
        self._is_closing = False

    def __len__(self) -> int:
        """Return how many outstanding records the shared client does not have."""
        waiting = len(self._waiting) + len(self._large) + len(self.limits)
        return waiting + len(self.missing) + len(self.refused)

    @property
    def is_closing(self) -> bool:
        """Whether nothing is sent again."""
        return self._is_closing

    # ---- a record is sent

    def accept(self, record: Sent, queued: int, now: float) -> bool:
        """Return whether the shared client gets the record, whose queue holds ``queued``.

        If not, it is kept here. Raises BufferError if there is no room.
        """
        if record.topic in self.missing:
            if not self.missing.is_expired(record.topic, now):
                self.memory.check_hold(record, queued)
            self._hold(record, now)
        elif record.topic in self.refused:
            self.memory.check_hold(record, queued)
            self.refused.send(record)
        else:
            self.memory.check_queue(record, queued)
            return True
        return False

    def wait(self, *records: Sent) -> None:
        """Keep records for the next client."""
        self._waiting += records

    def take(self) -> list[Sent]:
        """Remove and return the records that the shared client gets first, in order."""
        found = sorted(self._waiting, key=attrgetter("number"))
        self._waiting.clear()
        return found

    # ---- it has failed

    def on_failed(self, record: Sent, failure: SendFailure, now: float) -> None:
        """Decide what happens to a record that the shared client did not accept or deliver."""
        verdict = failure.verdict
        if verdict in ("denied", "invalid"):
            self._refusals[record.topic] = failure.text
        self._decide(record, failure, now)

    def _decide(self, record: Sent, failure: SendFailure, now: float) -> None:
        verdict = failure.verdict
        is_alone = verdict == "too_large" and failure.partition is None
        if self._is_closing and verdict not in ("denied", "invalid"):
            self._give_up(record, is_doubtful=self._may_have_arrived(record, failure))
        elif self._refused_login is not None and verdict == "transient":
            self._fail_login(record, is_doubtful=self._may_have_arrived(record, failure))
        elif verdict == "denied":
            self._end(record, Ending.DENIED, failure.text)
        elif verdict == "invalid":
            self._end(record, Ending.INVALID, failure.text)
        elif is_alone:
            self._end(record, Ending.TOO_LARGE, limit=self._rules.largest_record)
        elif not self._rules.resends:
            ending = {"too_large": Ending.TOO_LARGE, "missing": Ending.NO_TOPIC}
            self._end(record, ending.get(verdict, Ending.FAILED), failure.text)
        elif verdict == "too_large":
            self.limits.add_refused(record, failure.partition or 0)
        elif verdict == "missing":
            self._hold(record, now)
        else:
            self._doubt(record, failure)
            self._waiting.append(record)

    def _hold(self, record: Sent, now: float) -> None:
        if not self.missing.hold(record, now):
            self._end(record, Ending.NO_TOPIC)

    def _end(
        self, record: Sent, ending: Ending, why: str = "", *, limit: int | None = None
    ) -> None:
        self.endings.append((record, RecordEnd(ending, why, limit)))

    # ---- whether it may have been written

    def on_disconnected(self, number: int) -> None:
        """Record a lost connection: records with lower numbers may have been sent on it."""
        self._doubtful_below = number

    def _doubt(self, record: Sent, failure: SendFailure) -> None:
        if self._may_have_arrived(record, failure):
            self._doubtful.add(record.number)

    def _may_have_arrived(self, record: Sent, failure: SendFailure) -> bool:
        """Return whether a failed record may have been written.

        A record in the queue may have been sent on a connection that was lost. Without a partition
        it was not: the client did not know the topic yet.
        """
        if record.number in self._doubtful or not failure.is_purged:
            return True
        place = failure.partition
        is_cut = place is not None and place >= 0 and record.number <= self._doubtful_below
        return is_cut or failure.was_in_flight

    # ---- the client is replaced

    def sort_out(self, limits: Mapping[str, int | None]) -> bool:
        """Split refused batches, by the ``limits`` of ``limits.topics``; the old client is empty.

        Returns whether refused records explain a fatal error of the client.
        """
        again, alone = self.limits.sort_out(limits.get)
        self._waiting += again
        for record, limit in alone:
            self._end(record, Ending.TOO_LARGE, limit=limit)
            self._refusals[record.topic] = "a record is too large"
        return bool(again or self._refusals)

    def separate_refused_topics(self, now: float) -> Mapping[str, str]:
        """Send topics whose records caused a fatal error with the separate client from now on.

        Their waiting records go first: others may be accepted at once. Returns the topics, with the
        reason.
        """
        refusals, self._refusals = self._refusals, {}
        if not self._rules.resends:
            return {}
        for topic in refusals:
            self.refused.add(topic, now)
        for record in self.take():
            if record.topic in self.refused:
                self.refused.send(record)
            else:
                self._waiting.append(record)
        return refusals

    def return_calm_topics(self, now: float) -> bool:
        """Return calm topics to the shared client; return whether they have records to ``take``."""
        found = self.refused.take_calm(now)
        self._waiting += found
        return bool(found)

    # ---- the separate client

    def on_separate_ack(self, record: Sent) -> None:
        """Record that the separate client delivered a record."""
        self.refused.on_ended(record)

    def on_separate_failed(self, record: Sent, failure: SendFailure, now: float) -> None:
        """Decide what happens to a record that the separate client did not accept or deliver."""
        verdict = failure.verdict
        may_resend = not (self._is_closing or self._refused_login is not None)
        if verdict == "transient" and may_resend:
            self._doubt(record, failure)
            self.refused.ready.append(record)
        elif verdict == "missing" and not self._is_closing:
            for each in self.refused.take_chain(record):
                self._hold(each, now)
        else:
            self.refused.on_refused(record.topic, now)
            self.refused.on_ended(record)
            if verdict == "too_large" and failure.partition is not None:
                self._large.append(record)
            else:
                self._decide(record, failure, now)

    def large_topics(self) -> set[str]:
        """Return the topics whose limits ``end_large`` needs."""
        return {record.topic for record in self._large}

    def end_large(self, limits: Mapping[str, int | None]) -> None:
        """End records that were refused alone, with the limits of their topics."""
        large, self._large = self._large, []
        for record in large:
            self._end(record, Ending.TOO_LARGE, limit=limits.get(record.topic))

    # ---- topics that are missing

    def topics_to_find(self, now: float) -> Iterator[str]:
        """Yield missing topics to ask the cluster for."""
        return self.missing.due(now)

    def on_found(self, topic: str) -> None:
        """Record that a topic exists: its records are ready for ``take``."""
        if topic in self.missing:
            self._waiting += self.missing.release(topic)

    def on_tick(self, now: float) -> None:
        """End records whose topic has been missing for too long."""
        for record in self.missing.expired(now):
            self._end(record, Ending.NO_TOPIC)

    # ---- the end

    def on_login_refused(self, why: str) -> None:
        """Record a refused login: until ``on_login_over``, purged records end."""
        self._refused_login = why

    def on_login_over(self) -> None:
        """End waiting records, because nothing can be sent; later records are kept again."""
        for record in (*self.take(), *self.missing.clear()):
            self._fail_login(record, is_doubtful=record.number in self._doubtful)
        self._refused_login = None

    def _fail_login(self, record: Sent, *, is_doubtful: bool) -> None:
        ending = Ending.LOGIN_DOUBTFUL if is_doubtful else Ending.LOGIN_REFUSED
        self._end(record, ending, self._refused_login or "")

    def on_closing(self) -> None:
        """Record that nothing is sent again: records that clients give back end."""
        self._is_closing = True

    def end_all(self) -> None:
        """End everything that remains, once the clients are empty."""
        again, alone = self.limits.sort_out(_unknown)
        for record, limit in alone:
            self._end(record, Ending.TOO_LARGE, limit=limit)
        self.end_large({})
        for record in (*self.take(), *self.missing.clear(), *again, *self.refused.clear()):
            self._give_up(record, is_doubtful=record.number in self._doubtful)

    def _give_up(self, record: Sent, *, is_doubtful: bool) -> None:
        self._end(record, Ending.MAY_HAVE_ARRIVED if is_doubtful else Ending.NEVER_SENT)


def _unknown(_: str) -> None:
    return None
