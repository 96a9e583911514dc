"""Records that a client could not send: failed, or waiting for a client or their topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from window_consumer.kafka import errors
from window_consumer.kafka.batch_limits import BatchLimits
from window_consumer.producer.errors import (
    InvalidRecordError,
    LoginRefusedError,
    MayHaveArrivedError,
    NeverSentError,
    NoSuchTopicError,
    SendDeniedError,
    SendError,
    TooLargeError,
)
from window_consumer.producer.future import SendFuture
from window_consumer.producer.memory_limit import MemoryLimit
from window_consumer.producer.missing_topics import MissingTopics


class UnsentRecords:
    """Decides by the error. Owner: the thread that serves delivery reports, except ``hold``."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        missing_topic_s: float,
        bound: MemoryLimit,
        *,
        resends: bool,
    ):
        """``resends`` is False with transactions, which are retried as a whole."""
        self._largest = int(properties["message.max.bytes"])
        self._resends = resends
        self._waiting: list[SendFuture] = []
        self._too_large = 0
        self._doubtful: set[int] = set()
        self._doubtful_below = 0
        self.limits = BatchLimits[SendFuture](properties)
        self.missing = MissingTopics(missing_topic_s, bound)
        self.refused_login: str | None = None
        """Why the brokers refuse the login; while it is set, nothing is sent again."""
        self.closing = False
        """Whether the producer is closing: nothing is sent again."""

    def __len__(self) -> int:
        return len(self._waiting) + self.missing.count() + self._too_large

    def on_error(self, future: SendFuture, error: Any, message: Any) -> None:
        """Decide what happens to a record; ``message`` is None if the client did not accept it."""
        verdict = errors.send_verdict(error)
        text = f"{future.topic}: {errors.text_of(error)}"
        if self.closing and verdict not in ("denied", "invalid"):
            self._give_up(future, may_have_arrived=self._may_have_arrived(future, error, message))
        elif self.refused_login is not None and verdict == "transient":
            self._fail_login(
                future, may_have_arrived=self._may_have_arrived(future, error, message)
            )
        elif verdict == "denied":
            future.fail(SendDeniedError(f"{text}: no permission to WRITE: add an ACL"))
        elif verdict == "invalid":
            future.fail(InvalidRecordError(text))
        elif verdict == "too_large" and message is None:
            future.fail(TooLargeError(future.topic, future.size, self._largest))
        elif not self._resends:
            future.fail(_of_transaction(future, verdict, text))
        elif verdict == "too_large":
            self._too_large += 1
            self.limits.add_refused(future, message.partition())
        elif verdict == "missing":
            self.hold(future)
        elif self.may_resend(future, error, message):
            self._waiting.append(future)

    def may_resend(self, future: SendFuture, error: Any, message: Any) -> bool:
        """Return whether to resend after a transient error; remember if it may be written."""
        if self.closing or self.refused_login is not None:
            return False
        if self._may_have_arrived(future, error, message):
            self._doubtful.add(future.number)
        return True

    def hold(self, future: SendFuture) -> None:
        """Keep a record whose topic is missing, unless it has been missing for too long."""
        if not self.missing.hold(future):
            fail_missing(future)

    def add(self, *futures: SendFuture) -> None:
        """Queue records to be sent again."""
        self._waiting += futures

    def take(self) -> list[SendFuture]:
        """Remove and return the records to send again, in order."""
        found = sorted(self._waiting, key=attrgetter("number"))
        self._waiting.clear()
        return found

    def sort_out(
        self, limit_of: Callable[[str], int | None]
    ) -> tuple[list[SendFuture], list[tuple[SendFuture, int | None]]]:
        """Split refused batches: return the records to resend, and those that are too large."""
        found = self.limits.sort_out(limit_of)
        self._too_large = 0
        return found

    def doubt_below(self, number: int) -> None:
        """Remember a lost connection: records with lower numbers may have been sent on it."""
        self._doubtful_below = number

    def _may_have_arrived(self, future: SendFuture, error: Any, message: Any) -> bool:
        """Return whether a purged record may be written.

        A record in the queue may have been sent on a connection that was lost. Without a partition
        it was not: the client did not know the topic yet.
        """
        if future.number in self._doubtful or not errors.is_purged(error):
            return True
        place = None if message is None else message.partition()
        is_cut = place is not None and place >= 0 and future.number <= self._doubtful_below
        return is_cut or errors.was_in_flight(error)

    def fail_refused_login(self) -> None:
        """Fail all waiting records, as nothing can be sent."""
        for future in (*self.take(), *self.missing.clear()):
            self._fail_login(future, may_have_arrived=future.number in self._doubtful)

    def _fail_login(self, future: SendFuture, *, may_have_arrived: bool) -> None:
        text = f"{future.topic}: the brokers refuse the login: {self.refused_login}"
        if may_have_arrived:
            future.fail(MayHaveArrivedError(f"{text}; an earlier attempt may have written it"))
        else:
            future.fail(LoginRefusedError(text))

    def fail_all(self) -> None:
        """Fail all waiting records, as the producer is closed."""
        again, alone = self.sort_out(_unknown_limit)
        for future, limit in alone:
            future.fail(TooLargeError(future.topic, future.size, limit))
        for future in (*self.take(), *self.missing.clear(), *again):
            self._give_up(future, may_have_arrived=future.number in self._doubtful)

    @staticmethod
    def _give_up(future: SendFuture, *, may_have_arrived: bool) -> None:
        if may_have_arrived:
            error: SendError = MayHaveArrivedError(
                f"{future.topic}: the producer was closed before the brokers acknowledged the"
                " record; it may have been written"
            )
        else:
            error = NeverSentError(
                f"{future.topic}: the producer was closed before the record was sent"
            )
        future.fail(error)


def _unknown_limit(_: str) -> None:
    return None


def fail_missing(future: SendFuture) -> None:
    """Fail a record whose topic was missing for too long."""
    future.fail(NoSuchTopicError(f"{future.topic}: the topic does not exist: create it"))


def _of_transaction(future: SendFuture, verdict: str, text: str) -> SendError:
    if verdict == "too_large":
        return TooLargeError(future.topic, future.size, None)
    return NoSuchTopicError(text) if verdict == "missing" else SendError(text)
