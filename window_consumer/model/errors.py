"""Every error of the framework, and the exceptions that a handler may raise on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome


class WindowConsumerError(Exception):
    """The root of all errors of this package. Messages contain the problem, place and remedy."""

    code: ClassVar[str] = "WC100"


class UsageError(WindowConsumerError):
    """Wrong use or configuration; nothing was started. The command line exits with 2."""

    code = "WC101"


class WrongKey(NamedTuple):
    """One unusable key of a configuration."""

    where: str
    """File and line, as in ``workers.yaml:14``; else the decorator or the option."""
    key: str
    """The dotted path, as in ``workers.charge.group``; empty for the whole file."""


class ConfigError(UsageError):
    """The configuration cannot be used; the message names file, line and key.

    ``wrong`` holds all unusable keys, in the order of the file.
    """

    code = "WC102"

    def __init__(self, message: str, wrong: Sequence[WrongKey] = ()):
        super().__init__(message)
        self.wrong = tuple(wrong)


class NotPermittedError(UsageError):
    """The cluster denies an operation that the configuration needs; the message names it."""

    code = "WC103"


class MissingTopicError(UsageError):
    """A required topic does not exist and may not, or could not, be created."""

    code = "WC104"


class RunError(WindowConsumerError):
    """Something failed while running. The command line exits with 1."""

    code = "WC110"


class BrokerUnavailableError(RunError):
    """No broker answered within the start timeout."""

    code = "WC111"


class StartStoppedError(RunError):
    """A stop was requested before the start was complete; no work had begun."""

    code = "WC113"


class LifespanError(RunError):
    """The application's lifespan raised on entry; ``__cause__`` is its exception."""

    code = "WC114"


class AuthenticationError(RunError):
    """The cluster rejected our credentials."""

    code = "WC112"


class WorkerStoppedError(RunError):
    """A worker stopped by itself; unfinished records are uncommitted and will run again."""

    code = "WC115"


class CallsHangError(WorkerStoppedError):
    """A worker stopped because too many calls hang and cannot be ended."""

    code = "WC116"


class CommitFailedError(WindowConsumerError):
    """A commit was refused. ``retriable`` says whether sending it again can help."""

    code = "WC130"

    def __init__(self, message: str, *, retriable: bool = True, metadata_too_large: bool = False):
        super().__init__(message)
        self.retriable = retriable
        self.metadata_too_large = metadata_too_large


class GivenUpError(CommitFailedError):
    """A commit's partition was released before the answer: its next owner may commit."""

    def __init__(self) -> None:
        text = "the partition was revoked before the answer arrived; the commit may have succeeded"
        super().__init__(text, retriable=False)


class NotCommittedError(WindowConsumerError):
    """A transaction was probably not committed: its records run again."""

    code = "WC131"

    def __init__(self, message: str, *, metadata_too_large: bool = False):
        super().__init__(message)
        self.metadata_too_large = metadata_too_large
        """The brokers accept less commit metadata than a window may need."""


class PublishFailedError(WindowConsumerError):
    """The broker did not ack a copy, or the result is unknown; the record stays open."""

    code = "WC132"

    def __init__(
        self,
        message: str,
        *,
        too_large: bool = False,
        refused: bool = False,
        of_topic: bool = False,
        gave_up: bool = False,
        why: str = "",
    ):
        super().__init__(message)
        self.too_large = too_large
        self.refused = refused or too_large or of_topic
        """Whether sending it again is useless."""
        self.of_topic = of_topic
        """Whether the topic accepts no records at all: it is missing, or the right WRITE is."""
        self.gave_up = gave_up
        """Whether the client has failed permanently and must be replaced."""
        self.why = why or message
        """The reason that the client or the broker gives, without the context."""


class ResultRefusedError(WindowConsumerError):
    """A record that a handler returned was permanently refused; its call counts as failed."""

    code = "WC133"

    def __init__(self, message: str, *, of_topic: bool = False):
        super().__init__(message)
        self.of_topic = of_topic
        """Whether the topic accepts no records at all, see ``PublishFailedError``."""


class ProcessCrashedError(WindowConsumerError):
    """The process ended while a record ran alone; never raised, used in the dead letter."""

    code = "WC135"


class ProcessDiedError(WindowConsumerError):
    """A child process died during a record's call; never raised, used as the record's failure."""

    code = "WC136"


class StalledError(WindowConsumerError):
    """A call did not return in time; never raised, used in the record's copy."""

    code = "WC137"


class LeaseExpiredError(WindowConsumerError):
    """A call's lease ended before its result came; never raised, used as the record's failure."""

    code = "WC138"


class WrongProcessError(UsageError):
    """The object was created in another process: librdkafka does not survive a fork."""

    code = "WC105"


class CapacityError(UsageError):
    """The embedded broker was asked to hold more than it can keep."""

    code = "WC106"


class HandlerSignal(Exception):  # noqa: N818 - a handler's verdict, not an error
    """The root of exceptions that a handler raises on purpose to decide about its record."""


class Fatal(HandlerSignal):
    """Retrying cannot help: the record's attempts count as spent at once."""

    reason = Reason.FATAL


class Undecodable(Fatal):
    """The record's value cannot be converted to what its handler takes."""

    reason = Reason.DECODE


class Skip(HandlerSignal):
    """The record does not concern this handler: it is finished, and counted as skipped.

    Subclasses, which layers around handlers raise, may end in another outcome.
    """

    outcome: ClassVar[Outcome] = Outcome.SKIPPED


class CallAgain(HandlerSignal):
    """Nothing happened: the record is called again after ``after_s`` seconds.

    Raised by the layers around handlers. It does not count as an attempt or as a handler's failure.
    """

    def __init__(self, after_s: float, message: str):
        super().__init__(message)
        self.after_s = after_s


class HoldCalls(CallAgain):
    """The same, but the whole worker starts nothing for ``after_s`` seconds, as a service asks.

    Raised by handlers of the framework.
    """


class RetryLater(HandlerSignal):
    """Retry the record after ``after_s`` seconds (float, >= 0); counts as an attempt.

    Without ``retry.levels`` the wait is local, and no longer than the upper end of ``backoff``.
    With levels, a record that should wait longer than that moves at once to the first level that
    waits at least that long, or to the last one.
    """

    def __init__(self, after_s: float, message: str = ""):
        if after_s < 0:
            msg = f"after_s must not be negative, got {after_s}"
            raise ValueError(msg)
        super().__init__(message or f"retry after {after_s:g} s")
        self.after_s = after_s


class PartialFailure(HandlerSignal):
    """Some records of a batch failed: those in ``failed``; the others are done.

    ``failed`` holds records of the list that the handler got, or pairs of a record and its own
    exception; a handler of values names values instead. Each failed record then continues by
    itself, as if its exception had been raised for it: ``Fatal``, ``RetryLater`` and ``Skip`` have
    their usual meaning. A record without an exception gets this one's cause, or this one. An empty
    ``failed`` means that nothing failed; naming something outside the batch fails all of it.
    """

    def __init__(self, failed: Iterable[Any], message: str = ""):
        self.failed = list(failed)
        """The named items, unchanged."""
        count = len(self.failed)
        text = f"{count} record{'' if count == 1 else 's'} of a batch failed"
        super().__init__(message or text)


class NotInBatchError(WindowConsumerError):
    """A batch handler named a record outside its batch; all records of the batch failed."""

    code = "WC134"


class NotCalled(HandlerSignal):
    """No handler was called for the record, and none will be: it leaves at once.

    Raised by the layers around handlers, never by a handler. It does not count as an attempt or as
    a handler's failure. ``end`` decides what happens to the record, whatever the ladder's rules.
    """

    reason: Reason
    headers: Sequence[tuple[str, bytes]] = ()
    """Additional headers of ours for its copy."""

    def __init__(self, message: str, end: Literal["dead_letter", "drop", "stop"] = "dead_letter"):
        super().__init__(message)
        self.end = end


class Expired(NotCalled):
    """The record is older than its time to live."""

    reason = Reason.EXPIRED


class Unroutable(NotCalled):
    """No handler's condition holds for the record."""

    reason = Reason.UNROUTABLE


class UnreadableHeaders(NotCalled):
    """The client cannot read the record's headers: one of their names is not UTF-8."""

    reason = Reason.DECODE


class NoHandlerMatched(Unroutable, Skip):
    """No handler's condition holds for the record, which is finished as skipped."""

    outcome = Outcome.FILTERED


def meant_by(error: BaseException) -> BaseException:
    """Return the only exception in nested groups; any other exception unchanged.

    ``asyncio.TaskGroup`` and similar code raise a group even if a single task has failed.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
