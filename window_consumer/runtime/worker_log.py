"""The log lines of a running worker, limited so that they stay readable when much fails at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define

from window_consumer.engine.decisions import (
    Assigned,
    HeadOfLineBlocked,
    Outlived,
    OutOfOrderRecords,
    OwnerAway,
)
from window_consumer.engine.guards.circuit_breaker import (
    BreakerNews,
    BreakerState,
)
from window_consumer.engine.guards.stalls import (
    AbandonedReturned,
    Ending,
    Stalled,
)
from window_consumer.engine.retry.output import Production
from window_consumer.engine.retry.policy import (
    FailedRecord,
    RetryRules,
)
from window_consumer.engine.retry.queue import describe
from window_consumer.engine.scheduling.adaptive_concurrency import LimitNews
from window_consumer.model.errors import (
    GivenUpError,
    NotCalled,
    ProcessCrashedError,
    ProcessDiedError,
    PublishFailedError,
    RetryLater,
    WindowConsumerError,
)
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import CommitResults
from window_consumer.model.record import (
    Message,
    TopicPartition,
)
from window_consumer.runtime.context import (
    ToldKey,
    key_text,
    trace_of,
)

_ENDS = {
    "dead_letter": "it leaves for the dead letters",
    "drop": "it is dropped",
    "stop": "the worker stops",
}

_NOW = {
    BreakerState.OPEN: "nothing starts and nothing leaves until the cool-down is over",
    BreakerState.PAUSED: "nothing starts and no attempt is spent until then",
    BreakerState.HALF_OPEN: "one call at a time tests whether it is over",
    BreakerState.CLOSED: "work resumes",
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
"""A concurrency change below this factor gets no line."""

_LINES_OF_A_STORM = 3
_MOST_STORMS = 1000
_MOST_HANGING = 8
"""When more hanging calls than these lose their partitions, they share a line."""

QUIET_S = 10.0
"""The period for one traceback per kind of error and one line per kind of trouble."""

_OUTLIVED = (
    "%s: the call for %s@%d (key %r) outlived its partition: it sees record.cancelled and its"
    " result will be ignored"
)
_OUTLIVED_HOME = (
    "%s: the call for %s@%d (key %r) outlived its source's partition: another member may call a"
    " record of its lane meanwhile; its result counts"
)

_MILLISECONDS = re.compile(r"\b\d+ ?ms\b")
"""The client's texts contain the duration of each attempt, which must not make a line unique."""

_WHY = {Reason.FATAL: "fatal", Reason.CRASHED: "it is not called again"}

Now = Callable[[], float]


@define
class _Kind:
    said_at: float
    unsaid: int = 0


class Repetition:
    """Decides which of many equal events get a line. Owner: one thread."""

    def __init__(self, now: Now):
        self._now = now
        self._kinds: dict[str, _Kind] = {}

    def worth_saying(self, kind: str) -> int | None:
        """Return how many lines were suppressed since the last; None suppresses this one too."""
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


class LogStorm:
    """Calls that hang at one code position. Owner: one thread."""

    def __init__(self, now: Now):
        self._now = now
        self._since = float("-inf")
        self._lines = 0
        self.first = ""
        """The first record that got a line."""
        self.unsaid: list[str] = []
        """The records that got none."""

    def is_worth_a_line(self, place: str) -> bool:
        """Return whether a call gets its own line: the first few do, then none for ten seconds."""
        now = self._now()
        if now - self._since >= QUIET_S:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines > _LINES_OF_A_STORM:
            self.unsaid.append(place)
            return False
        self.first = self.first or place
        return True

    def text(self) -> str:
        """Return how many calls got no line, and name some of them."""
        shown = ", ".join(self.unsaid[:8])
        return f"{len(self.unsaid)} more calls ({shown}{', ...' if len(self.unsaid) > 8 else ''})"


class WorkerLog:
    """The log of one worker. Owner: poll thread."""

    def __init__(
        self,
        worker: str,
        logger: logging.Logger,
        now: Now,
        loggable_key: ToldKey = lambda _, key: key,
        handler: str = "",
    ):
        self._worker = worker
        self._logger = logger
        self._loggable_key = loggable_key
        self._handler = handler
        self._repetition = Repetition(now)
        self._now = now
        self._storms: dict[str, LogStorm] = {}
        self._troubles = 0
        self._said_limit = 0
        self._said_cut_short = False

    def info(self, event: LogEvent, text: str, **fields: object) -> None:
        """Write a line that is never suppressed; ``fields`` are data for programs."""
        self._logger.info("%s: %s", self._worker, text, extra={**self._of(event), **fields})

    def warn(self, event: LogEvent, text: str, **fields: object) -> None:
        """Write a warning; the same one at most every ten seconds."""
        self._log(logging.WARNING, event, text, text, **fields)

    def error(self, event: LogEvent, text: str, **fields: object) -> None:
        """Write an error line."""
        self._logger.error("%s: %s", self._worker, text, extra={**self._of(event), **fields})

    def observer_failed(self, error: Exception) -> None:
        """Log that an observer failed; the work continues."""
        text = f"telemetry lost an event ({error!r}); nothing else is affected"
        self.warn(LogEvent.OBSERVER_FAILED, text)

    def trouble(self, error: WindowConsumerError) -> None:
        """Log an error that the client is retrying."""
        text = str(error)
        self._log(logging.WARNING, LogEvent.CLIENT_FAILED, text, _MILLISECONDS.sub("", text))

    def not_copied(self, failed: FailedRecord, error: PublishFailedError) -> None:
        """Log that a record's copy was refused; one line per kind of refusal."""
        what_to_do = (
            "; raise the topic's max.message.bytes, or see retry.on_oversize"
            if error.too_large
            else ""
        )
        text = (
            f"{describe(failed)} stays open, its copy was not taken and is tried again:"
            f" {error}{what_to_do}"
        )
        self._log(logging.WARNING, LogEvent.COPY_REFUSED, text, str(error))

    def not_produced(self, production: Production, index: int, error: PublishFailedError) -> None:
        """Log that a record's result was refused, where it is sent again."""
        if error.refused and not (error.too_large and not production.alone):
            return  # the call counts as failed, and that is logged
        offset = production.messages[0].offset()
        text = (
            f"{production.partition.name}@{offset} stays open, its result for"
            f" {production.results[index].topic} was not taken and is sent again: {error.why}"
        )
        self._log(logging.WARNING, LogEvent.RESULT_REFUSED, text, f"result: {error}")

    def failed(self, records: Iterable[FailedRecord], rules: RetryRules, now: float) -> None:
        """Log failed calls, with one traceback per kind in ten seconds."""
        for failed in records:
            self._log_cut_short(failed, rules)
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
                    **self._place(
                        LogEvent.CALL_FAILED,
                        failed.partition.name,
                        failed.message.offset(),
                        failed.calls,
                    ),
                    **self._whose(failed.message, failed.failure),
                    "error": failed.failure.fault.error_class,
                    "suppressed": unsaid,
                    **_trace(failed.message),
                },
            )

    def _log_cut_short(self, failed: FailedRecord, rules: RetryRules) -> None:
        """Log, once, that a record waits for less time than its handler asked for."""
        error = failed.failure.error
        if self._said_cut_short or not isinstance(error, RetryLater):
            return
        if error.after_s <= rules.longest_later_s:
            return
        self._said_cut_short = True
        longest = f"{rules.longest_later_s:g} s"
        if rules.levels:
            most = f"its last level waits {longest}: add one that fits"
        elif rules.on_failure == "block":
            most = (
                f"with on_failure: block no wait is longer than the upper end of backoff, {longest}"
            )
        else:
            most = (
                f"without retry.levels no wait is longer than the upper end of backoff, {longest},"
                f" and each is one of {rules.attempts} attempts: add a level that waits as long"
            )
        self._logger.warning(
            "%s: %s asked for RetryLater(%g), which is cut short: %s (logged once)",
            self._worker,
            describe(failed),
            error.after_s,
            most,
            extra=self._of(LogEvent.RETRY_SHORTENED),
        )

    def hovering(self, news: Iterable[HeadOfLineBlocked]) -> None:
        """Log start cells that make no progress."""
        for each in news:
            self._logger.warning(
                "%s: %s hovers: its start cell has made no progress for %.0f s; the first open"
                " record is offset %d, attempt %d (SIGUSR1 shows where its handler stands)",
                self._worker,
                each.name,
                each.age_s,
                each.offset,
                each.attempt,
                extra=self._place(LogEvent.HEAD_BLOCKED, each.name, each.offset, each.attempt),
            )

    def passed_over(self, news: Iterable[OutOfOrderRecords]) -> None:
        """Log records that arrived after later ones of their partition."""
        for each in news:
            self._logger.error(
                "%s: %s: records of offsets %d..%d came after later ones and are not handled; the"
                " committed offset may lie beyond them: a bug, please report it",
                self._worker,
                each.name,
                each.offsets.start,
                each.offsets.stop - 1,
                extra=self._of(LogEvent.RECORDS_PASSED_OVER),
            )

    def away(self, news: Sequence[OwnerAway]) -> None:
        """Log that copies wait for the owner of their source's partition."""
        if not news:
            return
        shown = ", ".join(f"{each.name} (its source's is {each.home})" for each in news[:4])
        more = f" and {len(news) - 4} more partitions" if len(news) > 4 else ""
        self._logger.warning(
            "%s: %d copies wait, for %.0f s so far, in %s%s: another member of the group owns the"
            " partition of their source, and a lane has one owner. They continue when all members"
            " read the same topics: give all of them the same retry.levels",
            self._worker,
            sum(each.copies for each in news),
            max(each.seconds for each in news),
            shown,
            more,
            extra=self._of(LogEvent.COPIES_HELD),
        )

    def breaker(self, news: Iterable[BreakerNews]) -> None:
        """Log that the circuit breaker has opened, half opened or closed."""
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
                    extra={**self._of(LogEvent.BREAKER_CHANGED), "state": each.state},
                )

    def limit(self, news: LimitNews | None) -> None:
        """Log that the concurrency has changed by much since its last line."""
        if news is None:
            return
        said = self._said_limit or news.before
        if max(said, news.limit) < MUCH * min(said, news.limit):
            return
        if self._repetition.worth_saying("limit") is not None:
            self._said_limit = news.limit
            self._logger.info(
                "%s: concurrency %d, it was %d: %s",
                self._worker,
                news.limit,
                said,
                news.why,
                extra=self._of(LogEvent.CONCURRENCY_CHANGED),
            )

    def stalled(self, call: Stalled, failure: Failure, ending: Ending) -> None:
        """Log where a call that does not return stands, and what happens to it.

        Of many calls at the same position some get a line, and one line counts the others.
        """
        if len(self._storms) > _MOST_STORMS:
            self._storms.clear()
        kind = f"{failure.fault.fingerprint} {call.is_relief} {call.end} {call.abandon}"
        storm = self._storms.setdefault(kind, LogStorm(self._now))
        if storm.is_worth_a_line(f"{call.name}@{call.offset}"):
            self._stalled(call, failure, ending, storm)

    def calm(self) -> None:
        """Log how many calls got no line; called at the end of a worker."""
        for storm in self._storms.values():
            if storm.unsaid:
                text = f"{storm.text()} hang at the place of {storm.first}"
                self.warn(LogEvent.CALLS_STALLED, text)
        self._storms.clear()

    def _stalled(self, call: Stalled, failure: Failure, ending: Ending, storm: LogStorm) -> None:
        more = f" ({storm.text()} since the last such line)" if storm.unsaid else ""
        storm.unsaid.clear()
        what = "holds up its window, in which all else is done" if call.is_relief else "stalls"
        then = "is only reported"
        if call.end:
            then = _ENDED[ending]
        elif call.abandon:
            then = "is abandoned, its record leaves"
        self._logger.warning(
            "%s: the call for %s@%d (key %r, attempt %d%s) has been running for %.1f s and %s: it"
            " %s%s; it stands at:\n%s",
            self._worker,
            call.name,
            call.offset,
            self._loggable_key(call.name.topic, call.key),
            call.attempt,
            f", handler {failure.handler}" if failure.handler else "",
            call.seconds,
            what,
            then,
            more,
            failure.fault.stack.rstrip(),
            extra={
                **self._place(LogEvent.CALL_STALLED, call.name, call.offset, call.attempt),
                "ended": call.end,
                "abandoned": call.abandon,
                **self._whose(call.slice_.running(), failure),
                **_trace(call.slice_.running()),
            },
        )

    def returned(self, calls: Iterable[AbandonedReturned]) -> None:
        """Log abandoned calls that have ended."""
        for call in calls:
            self._logger.info(
                "%s: the abandoned call for %s@%d has ended after %.1f s; its result is ignored",
                self._worker,
                call.name,
                call.offset,
                call.seconds,
                extra=self._place(LogEvent.CALL_RETURNED, call.name, call.offset),
            )

    def interrupted(
        self,
        calls: Sequence[tuple[TopicPartition, int]],
        go_on: int,
        why: str,
        ending: Ending,
    ) -> None:
        """Log that calls were ended because their partitions are given up."""
        shown = ", ".join(f"{name}@{offset}" for name, offset in calls[:4])
        more = f" and {len(calls) - 4} more" if len(calls) > 4 else ""
        refused = f", {go_on} continue" if go_on else ""
        self._logger.warning(
            "%s: %s: %d calls were %s (%s%s)%s; their records will run again",
            self._worker,
            why,
            len(calls),
            _INTERRUPTED[ending],
            shown,
            more,
            refused,
            extra={**self._of(LogEvent.CALLS_INTERRUPTED), "calls": len(calls)},
        )

    def recalled(self, assigned: Iterable[Assigned]) -> None:
        """Log which lost partitions came back, and that their kept outcomes still count."""
        for each in assigned:
            if each.kept is not None and each.committed is not None:
                finished = each.kept.beyond(each.committed[0])
                self._logger.info(
                    "%s: %s was lost and has come back, and nobody else has committed: %d finished"
                    " records beyond offset %d are not handled again",
                    self._worker,
                    each.name,
                    sum(map(len, finished)),
                    each.committed[0],
                    extra=self._of(LogEvent.PARTITION_REGAINED),
                )

    def outlived(self, calls: Iterable[Outlived]) -> None:
        """Log calls that still run although their partition was given up.

        Many calls that were known to hang share one line, which names each of them.
        """
        calls = list(calls)
        hanging = [each for each in calls if each.hangs]
        if len(hanging) > _MOST_HANGING:
            calls = [each for each in calls if not each.hangs]
            places = ", ".join(
                f"{each.name}@{each.offset} (key {self._loggable_key(each.name.topic, each.key)!r})"
                for each in hanging
            )
            self._logger.warning(
                "%s: %d calls outlived their partitions: they see record.cancelled and their"
                " results will be ignored: %s",
                self._worker,
                len(hanging),
                places,
                extra={**self._of(LogEvent.CALLS_OUTLIVED), "calls": len(hanging)},
            )
        for call in calls:
            event, text = LogEvent.CALL_OUTLIVED, _OUTLIVED
            if call.counts:
                event, text = LogEvent.CALL_OUTLIVED_SOURCE, _OUTLIVED_HOME
            self._logger.warning(
                text,
                self._worker,
                call.name,
                call.offset,
                self._loggable_key(call.name.topic, call.key),
                extra=self._place(event, call.name, call.offset),
            )

    def commits(self, results: CommitResults) -> None:
        """Log refused commits."""
        for name, error in results.items():
            if error is not None:
                event, text = (
                    LogEvent.COMMIT_REFUSED,
                    f"{name}: not committed, trying again: {error}",
                )
                if isinstance(error, GivenUpError):
                    event, text = LogEvent.COMMIT_GIVEN_UP, f"{name}: not committed: {error}"
                self._log(logging.WARNING, event, text, f"commit {error}")

    def _of(self, event: LogEvent) -> dict[str, object]:
        return {"event": event, "worker": self._worker}

    def _place(
        self, event: LogEvent, name: TopicPartition, offset: int, attempt: int | None = None
    ) -> dict[str, object]:
        """Return the same fields that identify a record in handlers' log lines."""
        return {
            **self._of(event),
            "topic": name.topic,
            "partition": name.partition,
            "offset": offset,
            "attempt": attempt,
        }

    def _whose(self, message: Message | None, failure: Failure) -> dict[str, object]:
        """Return the handler and the key, as in handlers' log lines."""
        key = None if message is None else self._loggable_key(message.topic(), message.key())
        return {"handler": failure.handler or self._handler, "key": key_text(key)}

    def _log(self, level: int, event: LogEvent, text: str, kind: str, **fields: object) -> None:
        unsaid = self._repetition.worth_saying(kind)
        if unsaid is not None:
            more = f" ({unsaid} more since the last line)" if unsaid else ""
            self._logger.log(
                level,
                "%s: %s%s",
                self._worker,
                text,
                more,
                extra={**self._of(event), **fields, "event": event},
            )


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
    """Return the limit of attempts in words; crashes have a limit of their own."""
    kind = type(failed.failure.error)
    if kind is ProcessDiedError:
        return f"(crash {failed.deaths} of {rules.crash_attempts})"
    if kind is ProcessCrashedError:
        return "(its crash_attempts are spent)"
    return f"of {failed.hop.attempts + rules.allowed(failed.partition.retry_level.level)}"


def _next_step(failed: FailedRecord, now: float) -> str:
    if failed.reason is None:
        return f"next attempt in {max(0.0, failed.due - now):.1f} s"
    if failed.level is not None:
        return f"it moves to the retry topic of {failed.level.name}"
    why = _WHY.get(failed.reason, "its attempts are spent")
    return f"{why}, it leaves"


def _trace(message: Message | None) -> dict[str, object]:
    """Return the fields of the trace that a record belongs to."""
    trace_id, span_id = (None, None) if message is None else trace_of(message)
    return {"trace_id": trace_id, "span_id": span_id}
