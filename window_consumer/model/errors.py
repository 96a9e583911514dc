"""Every error the framework raises, and the exceptions a handler may raise on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from window_consumer.model.headers import Reason


class WindowConsumerError(Exception):
    """The root of all errors of this package: the message says what, where and what to do."""


class UsageError(WindowConsumerError):
    """Wrong use or configuration; nothing was started. The command line ends with exit code 2."""


class WrongKey(NamedTuple):
    """One key of a configuration that cannot be used."""

    where: str
    """The file and the line, as in ``workers.yaml:14``; else the decorator or the option."""
    key: str
    """With dots, as in ``workers.charge.group``; empty for the whole file."""


class ConfigError(UsageError):
    """The configuration cannot be used; the message names file, line and key.

    ``wrong`` has all of them, in the order of the file.
    """

    def __init__(self, message: str, wrong: Sequence[WrongKey] = ()):
        super().__init__(message)
        self.wrong = tuple(wrong)


class NotPermittedError(UsageError):
    """The cluster denies an operation that the configuration needs; the message names it."""


class MissingTopicError(UsageError):
    """A topic that is needed does not exist and may not, or could not, be made."""


class RunError(WindowConsumerError):
    """Something failed while running. The command line ends with exit code 1."""


class BrokerUnavailableError(RunError):
    """No broker answered within the time that was allowed for the start."""


class StartStoppedError(RunError):
    """A stop was asked for before the start was complete; nothing had begun."""


class LifespanError(RunError):
    """The application's lifespan raised while it was entered; ``__cause__`` is what it raised."""


class AuthenticationError(RunError):
    """The cluster refused who we say we are."""


class WorkerStoppedError(RunError):
    """A worker stopped by itself; what was unfinished is uncommitted and will run again."""


class CallsHangError(WorkerStoppedError):
    """A worker stopped because too many calls hang, which nobody can end."""


class CommitFailedError(WindowConsumerError):
    """A commit was refused. ``retriable`` says whether sending it again can help."""

    def __init__(self, message: str, *, retriable: bool = True, metadata_too_large: bool = False):
        super().__init__(message)
        self.retriable = retriable
        self.metadata_too_large = metadata_too_large


class GivenUpError(CommitFailedError):
    """A commit's partition was given up before the answer came: its next owner may commit."""

    def __init__(self) -> None:
        text = "the partition was given up before the answer came; the commit may have been taken"
        super().__init__(text, retriable=False)


class PublishFailedError(WindowConsumerError):
    """A copy was not acked by the broker, or its fate is unknown; the record stays open."""

    def __init__(
        self,
        message: str,
        *,
        too_large: bool = False,
        refused: bool = False,
        gave_up: bool = False,
        why: str = "",
    ):
        super().__init__(message)
        self.too_large = too_large
        self.refused = refused or too_large
        """Sending the same again cannot help."""
        self.gave_up = gave_up
        """The client has given up; nothing can be written before there is another one."""
        self.why = why or message
        """What the client or the broker says, without what it is about."""


class ResultRefusedError(WindowConsumerError):
    """A record that a handler returned was refused for good; its call counts as failed."""


class ProcessCrashedError(WindowConsumerError):
    """The process ended while a record ran alone; never raised, it stands in the dead letter."""


class ProcessDiedError(WindowConsumerError):
    """A child process died while it was on a record; never raised, it is the record's failure."""


class StalledError(WindowConsumerError):
    """A call did not return in time; never raised, it stands in the record's copy."""


class WrongProcessError(UsageError):
    """The object was made in another process: librdkafka does not survive a fork."""


class CapacityError(UsageError):
    """The embedded broker was asked to hold more than it can keep."""


class HandlerSignal(Exception):  # noqa: N818 - these are verdicts of a handler, not errors of ours
    """The root of what a handler raises on purpose to say what shall become of its record."""


class Fatal(HandlerSignal):
    """Retrying cannot help: the record's attempts count as spent at once."""

    reason = Reason.FATAL


class Undecodable(Fatal):
    """The record's value cannot be made into what its handler takes."""

    reason = Reason.DECODE


class Skip(HandlerSignal):
    """The record is none of this handler's business: it is finished, and counted as skipped."""


class RetryLater(HandlerSignal):
    """Try the record again after ``after_s`` seconds (float, >= 0); counts as an attempt.

    Without ``retry.levels`` the wait is local, and no longer than the upper end of ``backoff``.
    With levels, a record that is to wait longer than that moves at once to the first level that
    waits as long, or to the last one.
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
    exception; a handler of values names those. Each failed one then goes on by itself, as if its
    exception had been raised for it: ``Fatal``, ``RetryLater`` and ``Skip`` mean what they always
    mean. Without one of its own it is what this was raised from, or this itself. Naming nothing
    means that nothing failed; naming what is not in the batch fails all of it.
    """

    def __init__(self, failed: Iterable[Any], message: str = ""):
        self.failed = list(failed)
        """What was named, as it was named."""
        count = len(self.failed)
        text = f"{count} record{'' if count == 1 else 's'} of a batch failed"
        super().__init__(message or text)


class NotInBatchError(WindowConsumerError):
    """A batch handler named what it had not got; all records of the batch failed."""


class NotCalled(HandlerSignal):
    """No handler was called for the record, and none will be: it leaves at once.

    Raised by the layers around handlers, never by one: it says nothing of how handlers fare, and
    is no attempt. ``end`` says what becomes of the record, whatever the ladder's rules are.
    """

    reason: Reason

    def __init__(self, message: str, end: Literal["dead_letter", "drop", "stop"] = "dead_letter"):
        super().__init__(message)
        self.end = end


class Expired(NotCalled):
    """The record is older than its time to live."""

    reason = Reason.EXPIRED


class Unroutable(NotCalled):
    """The condition of no handler holds for the record."""

    reason = Reason.UNROUTABLE


class UnreadableHeaders(NotCalled):
    """The client cannot read the record's headers: a name among them is not UTF-8."""

    reason = Reason.DECODE


class NoHandlerMatched(Unroutable, Skip):
    """The condition of no handler holds for the record, which is finished: skipped."""


def meant_by(error: BaseException) -> BaseException:
    """Return the exception that a group holds alone, however deep; all else as it is.

    ``asyncio.TaskGroup`` and what resembles it raise groups where one task has failed.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
