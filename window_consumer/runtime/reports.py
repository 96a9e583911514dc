"""What a worker says while it runs: log lines, few enough to be read in a storm."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define

from window_consumer.core.breaker import BreakerNews, BreakerState
from window_consumer.core.decisions import Away, Hovering, Outlived
from window_consumer.core.failures import describe
from window_consumer.core.ladder import FailedRecord, RetryRules
from window_consumer.core.limiter import LimitNews
from window_consumer.core.producing import Production
from window_consumer.core.stalls import Ending, Returned, Stalled
from window_consumer.model.errors import (
    NotCalled,
    ProcessCrashedError,
    ProcessDiedError,
    PublishFailedError,
    WindowConsumerError,
)
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.protocols import CommitResults
from window_consumer.model.record import Message, TopicPartition
from window_consumer.runtime.current import trace_of

_ENDS = {
    "dead_letter": "it leaves for the dead letters",
    "drop": "it is dropped",
    "stop": "the worker stops",
}

_NOW = {
    BreakerState.OPEN: "nothing starts and nothing leaves until the cool-down is over",
    BreakerState.HALF_OPEN: "one call at a time finds out whether it is over",
    BreakerState.CLOSED: "everything goes on",
}

_ENDED: Mapping[Ending, str] = {
    "cancelled": "is cancelled",
    "killed": "is killed with its process, which is replaced",
}
_INTERRUPTED: Mapping[Ending, str] = {
    "cancelled": "cancelled",
    "killed": "killed with their processes",
}

MUCH = 1.25
"""A concurrency that has changed by less is not worth a line."""

QUIET_S = 10.0
"""One traceback per kind of error, and one line per kind of trouble, in this time."""

_OUTLIVED = (
    "%s: the call for %s@%d (key %r) outlived its partition: it sees record.cancelled and its"
    " result will be ignored"
)
_OUTLIVED_HOME = (
    "%s: the call for %s@%d (key %r) outlived its source's partition: another member may call a"
    " record of its lane meanwhile; its result counts"
)

_MILLISECONDS = re.compile(r"\b\d+ ?ms\b")
"""The client says how long each failed attempt took: no reason for a line of its own."""

_WHY = {Reason.FATAL: "fatal", Reason.CRASHED: "it is not called again"}

Now = Callable[[], float]

ToldKey = Callable[[str, bytes | None], bytes | str | None]
"""Gives what may be told of the key of a record that lies in a topic."""


@define
class _Kind:
    said_at: float
    unsaid: int = 0


class Repetition:
    """Decides which of many equal events are worth a line. Owner: one thread."""

    def __init__(self, now: Now):
        self._now = now
        self._kinds: dict[str, _Kind] = {}

    def worth_saying(self, kind: str) -> int | None:
        """Return how many were kept quiet since the last line, None to keep this one quiet too."""
        now = self._now()
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) > 1000:
                self._kinds.clear()
            self._kinds[kind] = _Kind(now)
            return 0
        if now - known.said_at < QUIET_S:
            known.unsaid += 1
            return None
        unsaid, known.unsaid, known.said_at = known.unsaid, 0, now
        return unsaid


class Reports:
    """The log of one worker. Owner: poll thread."""

    def __init__(
        self, worker: str, logger: logging.Logger, now: Now, told_key: ToldKey = lambda _, key: key
    ):
        self._worker = worker
        self._logger = logger
        self._told_key = told_key
        self._repetition = Repetition(now)
        self._troubles = 0
        self._said_limit = 0

    def info(self, text: str) -> None:
        """Write a line that is always worth it."""
        self._logger.info("%s: %s", self._worker, text)

    def warn(self, text: str) -> None:
        """Write a warning; the same one at most every ten seconds."""
        self._say(logging.WARNING, text, text)

    def error(self, text: str) -> None:
        """Write an error line."""
        self._logger.error("%s: %s", self._worker, text)

    def observer_failed(self, error: Exception) -> None:
        """Write down that somebody who only listens has failed; the work goes on."""
        self.warn(f"telemetry lost an event ({error!r}); nothing else is affected")

    def trouble(self, error: WindowConsumerError) -> None:
        """Write down what the client is trying to get over."""
        text = str(error)
        self._say(logging.WARNING, text, _MILLISECONDS.sub("", text))

    def not_copied(self, failed: FailedRecord, error: PublishFailedError) -> None:
        """Write down that a record's copy was not taken, one line per kind of refusal."""
        what_to_do = (
            "; raise the topic's max.message.bytes, or see retry.on_oversize"
            if error.too_large
            else ""
        )
        text = (
            f"{describe(failed)} stays open, its copy was not taken and is tried again:"
            f" {error}{what_to_do}"
        )
        self._say(logging.WARNING, text, str(error))

    def not_produced(self, production: Production, index: int, error: PublishFailedError) -> None:
        """Write down that a record's result was not taken, where it is sent again."""
        if error.refused and not (error.too_large and not production.alone):
            return  # the call counts as failed, and that is told
        offset = production.messages[0].offset()
        text = (
            f"{production.partition.name}@{offset} stays open, its result for"
            f" {production.results[index].topic} was not taken and is sent again: {error.why}"
        )
        self._say(logging.WARNING, text, f"result: {error}")

    def failed(self, records: Iterable[FailedRecord], rules: RetryRules, now: float) -> None:
        """Write down failed calls, with one traceback per kind and ten seconds."""
        for failed in records:
            unsaid = self._repetition.worth_saying(failed.failure.fault.fingerprint)
            if unsaid is None:
                continue
            more = f" ({unsaid} more of this kind since the last line)" if unsaid else ""
            self._logger.warning(
                "%s: %s %s",
                self._worker,
                describe(failed),
                _what_became_of(failed, rules, now, more),
                extra={
                    **_place(failed.partition.name, failed.message.offset(), failed.calls),
                    **_trace(failed.message),
                },
            )

    def hovering(self, news: Iterable[Hovering]) -> None:
        """Write down start cells that make no progress."""
        for each in news:
            self._logger.warning(
                "%s: %s hovers: its start cell has made no progress for %.0f s; the first open"
                " record is offset %d, attempt %d (SIGUSR1 shows where its handler stands)",
                self._worker,
                each.name,
                each.age_s,
                each.offset,
                each.attempt,
            )

    def away(self, news: Sequence[Away]) -> None:
        """Write down that copies wait for the owner of their source's partition."""
        if not news:
            return
        shown = ", ".join(f"{each.name} (its source's is {each.home})" for each in news[:4])
        more = f" and {len(news) - 4} more partitions" if len(news) > 4 else ""
        self._logger.warning(
            "%s: %d copies wait, for %.0f s so far, in %s%s: another member of the group owns the"
            " partition of their source, and a lane has one owner. They go on when all members"
            " read the same topics: give all of them the same retry.levels",
            self._worker,
            sum(each.copies for each in news),
            max(each.seconds for each in news),
            shown,
            more,
        )

    def breaker(self, news: Iterable[BreakerNews]) -> None:
        """Write down that the circuit breaker has opened, half opened or closed."""
        for each in news:
            if each.worth_a_line:
                level = logging.WARNING if each.state is BreakerState.OPEN else logging.INFO
                self._logger.log(
                    level,
                    "%s: breaker %s: %s; %s",
                    self._worker,
                    each.state,
                    each.why,
                    _NOW[each.state],
                )

    def limit(self, news: LimitNews | None) -> None:
        """Write down that the concurrency has changed by much since the last line about it."""
        if news is None:
            return
        said = self._said_limit or news.before
        if max(said, news.limit) < MUCH * min(said, news.limit):
            return
        if self._repetition.worth_saying("limit") is not None:
            self._said_limit = news.limit
            self._logger.info(
                "%s: concurrency %d, it was %d: %s", self._worker, news.limit, said, news.why
            )

    def stalled(self, call: Stalled, failure: Failure, ending: Ending) -> None:
        """Write down where a call stands that does not return, and what becomes of it."""
        what = "holds up its window, in which all else is done" if call.is_relief else "stalls"
        then = "is only reported"
        if call.end:
            then = _ENDED[ending]
        elif call.abandon:
            then = "is abandoned, its record leaves"
        self._logger.warning(
            "%s: the call for %s@%d (key %r, attempt %d%s) has been running for %.1f s and %s: it"
            " %s; it stands at:\n%s",
            self._worker,
            call.name,
            call.offset,
            self._told_key(call.name.topic, call.key),
            call.attempt,
            f", handler {failure.handler}" if failure.handler else "",
            call.seconds,
            what,
            then,
            failure.fault.stack.rstrip(),
            extra={
                **_place(call.name, call.offset, call.attempt),
                **_trace(call.slice_.running()),
            },
        )

    def returned(self, calls: Iterable[Returned]) -> None:
        """Write down abandoned calls that have ended."""
        for call in calls:
            self._logger.info(
                "%s: the abandoned call for %s@%d has ended after %.1f s; its result is ignored",
                self._worker,
                call.name,
                call.offset,
                call.seconds,
                extra=_place(call.name, call.offset, None),
            )

    def interrupted(
        self,
        calls: Sequence[tuple[TopicPartition, int]],
        go_on: int,
        why: str,
        ending: Ending,
    ) -> None:
        """Write down that calls were ended because their partitions are given up."""
        shown = ", ".join(f"{name}@{offset}" for name, offset in calls[:4])
        more = f" and {len(calls) - 4} more" if len(calls) > 4 else ""
        refused = f", {go_on} go on" if go_on else ""
        self._logger.warning(
            "%s: %s: %d calls were %s (%s%s)%s; their records will run again",
            self._worker,
            why,
            len(calls),
            _INTERRUPTED[ending],
            shown,
            more,
            refused,
        )

    def outlived(self, calls: Iterable[Outlived]) -> None:
        """Write down calls that go on although their partition was given up."""
        for call in calls:
            self._logger.warning(
                _OUTLIVED_HOME if call.counts else _OUTLIVED,
                self._worker,
                call.name,
                call.offset,
                self._told_key(call.name.topic, call.key),
                extra=_place(call.name, call.offset, None),
            )

    def commits(self, results: CommitResults) -> None:
        """Write down the commits that were refused."""
        for name, error in results.items():
            if error is not None:
                text = f"{name}: not committed, trying again: {error}"
                self._say(logging.WARNING, text, f"commit {error}")

    def _say(self, level: int, text: str, kind: str) -> None:
        unsaid = self._repetition.worth_saying(kind)
        if unsaid is not None:
            more = f" ({unsaid} more since the last line)" if unsaid else ""
            self._logger.log(level, "%s: %s%s", self._worker, text, more)


def _what_became_of(failed: FailedRecord, rules: RetryRules, now: float, more: str) -> str:
    fault = failed.failure.fault
    if isinstance(failed.failure.error, NotCalled):
        return f"{fault.message}; {_ENDS[failed.end]}{more}"
    stack = f"\n{fault.stack.rstrip()}" if fault.stack else ""
    return (
        f"failed at attempt {failed.calls} {_of_how_many(failed, rules)} with {fault.words};"
        f" {_next_step(failed, now)}{more}{stack}"
    )


def _of_how_many(failed: FailedRecord, rules: RetryRules) -> str:
    """Say how far the record is on its way out: what ends processes has attempts of its own."""
    kind = type(failed.failure.error)
    if kind is ProcessDiedError:
        return f"(crash {failed.deaths} of {rules.crash_attempts})"
    if kind is ProcessCrashedError:
        return "(its crash_attempts are spent)"
    return f"of {failed.hop.attempts + rules.allowed(failed.partition.rung.level)}"


def _next_step(failed: FailedRecord, now: float) -> str:
    if failed.reason is None:
        return f"next attempt in {max(0.0, failed.due - now):.1f} s"
    if failed.level is not None:
        return f"it moves to the retry topic of {failed.level.name}"
    why = _WHY.get(failed.reason, "its attempts are spent")
    return f"{why}, it leaves"


def _place(name: TopicPartition, offset: int, attempt: int | None) -> dict[str, object]:
    """Return the fields by which handlers' own log lines name their record, too."""
    return {
        "topic": name.topic,
        "partition": name.partition,
        "offset": offset,
        "attempt": attempt,
    }


def _trace(message: Message | None) -> dict[str, object]:
    """Return the fields that say to which trace a record belongs."""
    trace_id, span_id = (None, None) if message is None else trace_of(message)
    return {"trace_id": trace_id, "span_id": span_id}
