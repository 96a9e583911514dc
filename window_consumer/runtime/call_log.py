"""The log lines about single calls: those that fail, hang, end or outlive their partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from window_consumer.engine.commits.losses import LostRecords
from window_consumer.engine.decisions import Outlived
from window_consumer.engine.guards.stuck_calls import AbandonedReturned, Ending, Stalled
from window_consumer.engine.offsets import runs_of
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.model.errors import (
    NotCalled,
    ProcessCrashedError,
    ProcessDiedError,
    RetryLater,
)
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message, TopicPartition
from window_consumer.runtime.context import LoggableKey, key_text, trace_of
from window_consumer.runtime.limited_log import LimitedLog, LogStorm

_ENDS = {
    "dead_letter": "it becomes a dead letter",
    "drop": "it is dropped",
    "stop": "the worker stops",
}

_ENDED: Mapping[Ending, str] = {
    "cancelled": "is cancelled",
    "killed": "is killed with its process, which is replaced",
}
_INTERRUPTED: Mapping[Ending, str] = {
    "cancelled": "cancelled",
    "killed": "killed with their processes",
    "expired": "ended with their leases",
}

_MOST_STORMS = 1000
_MOST_HANGING = 8
"""When more hanging calls than these lose their partitions, they share a line."""

_MOST_RUNS = 20
"""The most ranges of lost offsets in one line."""

_OUTLIVED = (
    "%s: the call for %s@%d (key %r) outlived its partition: it sees record.cancelled and its"
    " result will be ignored"
)
_OUTLIVED_HOME = (
    "%s: the call for %s@%d (key %r) outlived its source's partition: another member may call a"
    " record of its lane meanwhile; its result counts"
)

_WHY = {Reason.FATAL: "fatal", Reason.CRASHED: "it is not called again"}


class CallLog:
    """The lines about a worker's calls. Owner: poll thread."""

    def __init__(self, log: LimitedLog, loggable_key: LoggableKey, handler: str):
        self._log = log
        self._loggable_key = loggable_key
        self._handler = handler
        self._storms: dict[str, LogStorm] = {}
        self._said_cut_short = False

    def failed(self, records: Iterable[FailedRecord], rules: RetryRules, now: float) -> None:
        """Log failed calls, with one traceback per kind in ten seconds."""
        for failed in records:
            self._log_cut_short(failed, rules)
            suppressed = self._log.repetition.count_suppressed(failed.failure.fault.fingerprint)
            if suppressed is None:
                continue
            more = f" ({suppressed} more of this kind since the last line)" if suppressed else ""
            self._log.logger.warning(
                "%s: %s %s",
                self._log.worker,
                str(failed),
                _what_became_of(failed, rules, now, more),
                extra={
                    **self._log.place(
                        LogEvent.CALL_FAILED,
                        failed.partition.name,
                        failed.message.offset(),
                        failed.calls,
                    ),
                    **self._whose(failed.message, failed.failure),
                    "error": failed.failure.fault.error_class,
                    "suppressed": suppressed,
                    **_trace(failed.message),
                },
            )

    def _log_cut_short(self, failed: FailedRecord, rules: RetryRules) -> None:
        """Log, once, that a record waits for less time than its handler requested."""
        error = failed.failure.error
        if self._said_cut_short or not isinstance(error, RetryLater):
            return
        if error.after_s <= rules.longest_later_s:
            return
        self._said_cut_short = True
        longest = f"{rules.longest_later_s:g} s"
        if rules.levels:
            most = f"its last level waits {longest}: add a longer one"
        elif rules.on_failure == "block":
            most = (
                f"with on_failure: block no wait is longer than the upper end of backoff, {longest}"
            )
        else:
            most = (
                f"without retry.levels no wait is longer than the upper end of backoff, {longest},"
                f" and each is one of {rules.attempts} attempts: add a level that waits that long"
            )
        self._log.logger.warning(
            "%s: %s asked for RetryLater(%g), which is cut short: %s (logged once)",
            self._log.worker,
            str(failed),
            error.after_s,
            most,
            extra=self._log.fields(LogEvent.RETRY_SHORTENED),
        )

    def stalled(self, call: Stalled, failure: Failure, ending: Ending) -> None:
        """Log the position of a call that does not return, and what happens to it.

        Of many calls at the same position some get a line, and one line counts the others. An
        expired lease gets none: the line about the failed call reports it.
        """
        if ending == "expired":
            return
        if len(self._storms) > _MOST_STORMS:
            self._storms.clear()
        kind = f"{failure.fault.fingerprint} {call.is_relief} {call.end} {call.abandon}"
        storm = self._storms.setdefault(kind, LogStorm(self._log.now))
        if storm.is_worth_a_line(f"{call.name}@{call.offset}"):
            self._stalled(call, failure, ending, storm)

    def calm(self) -> None:
        """Log how many calls got no line; called at the end of a worker."""
        for storm in self._storms.values():
            if storm.suppressed:
                text = f"{storm.text()} hang at the place of {storm.first}"
                self._log.warn(LogEvent.CALLS_STALLED, text)
        self._storms.clear()

    def _stalled(self, call: Stalled, failure: Failure, ending: Ending, storm: LogStorm) -> None:
        more = f" ({storm.text()} since the last such line)" if storm.suppressed else ""
        storm.suppressed.clear()
        what = "holds up its window, where everything else is done" if call.is_relief else "stalls"
        then = "is only reported"
        if call.end:
            then = _ENDED[ending]
        elif call.abandon:
            then = "is abandoned, its record leaves"
        self._log.logger.warning(
            "%s: the call for %s@%d (key %r, attempt %d%s) has been running for %.1f s and %s: it"
            " %s%s; it is at:\n%s",
            self._log.worker,
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
                **self._log.place(LogEvent.CALL_STALLED, call.name, call.offset, call.attempt),
                "ended": call.end,
                "abandoned": call.abandon,
                **self._whose(call.slice_.running(), failure),
                **_trace(call.slice_.running()),
            },
        )

    def returned(self, calls: Iterable[AbandonedReturned]) -> None:
        """Log abandoned calls that have ended."""
        for call in calls:
            self._log.logger.info(
                "%s: the abandoned call for %s@%d has ended after %.1f s; its result is ignored",
                self._log.worker,
                call.name,
                call.offset,
                call.seconds,
                extra=self._log.place(LogEvent.CALL_RETURNED, call.name, call.offset),
            )

    def interrupted(
        self,
        calls: Sequence[tuple[TopicPartition, int]],
        go_on: int,
        why: str,
        ending: Ending,
        follows: str,
    ) -> None:
        """Log that calls were ended because their partitions are given up, and the consequence."""
        shown = ", ".join(f"{name}@{offset}" for name, offset in calls[:4])
        more = f" and {len(calls) - 4} more" if len(calls) > 4 else ""
        refused = f", {go_on} continue" if go_on else ""
        self._log.logger.warning(
            "%s: %s: %d calls were %s (%s%s)%s; %s",
            self._log.worker,
            why,
            len(calls),
            _INTERRUPTED[ending],
            shown,
            more,
            refused,
            follows,
            extra=self._log.fields(LogEvent.CALLS_INTERRUPTED, calls=len(calls)),
        )

    def outlived(self, calls: Iterable[Outlived]) -> None:
        """Log calls that still run although their partition was given up.

        If many calls were known to hang, one line names all of them.
        """
        calls = list(calls)
        hanging = [each for each in calls if each.hangs]
        if len(hanging) > _MOST_HANGING:
            calls = [each for each in calls if not each.hangs]
            places = ", ".join(
                f"{each.name}@{each.offset} (key {self._loggable_key(each.name.topic, each.key)!r})"
                for each in hanging
            )
            self._log.logger.warning(
                "%s: %d calls outlived their partitions: they see record.cancelled and their"
                " results will be ignored: %s",
                self._log.worker,
                len(hanging),
                places,
                extra=self._log.fields(LogEvent.CALLS_OUTLIVED, calls=len(hanging)),
            )
        for call in calls:
            event, text = LogEvent.CALL_OUTLIVED, _OUTLIVED
            if call.counts:
                event, text = LogEvent.CALL_OUTLIVED_SOURCE, _OUTLIVED_HOME
            self._log.logger.warning(
                text,
                self._log.worker,
                call.name,
                call.offset,
                self._loggable_key(call.name.topic, call.key),
                extra=self._log.place(event, call.name, call.offset),
            )

    def lost(self, records: Iterable[LostRecords]) -> None:
        """Log which committed records had not ended when their partitions were given up."""
        for each in records:
            runs = [_shown(run) for run in runs_of(each.offsets)]
            more = f" and {len(runs) - _MOST_RUNS} more ranges" if len(runs) > _MOST_RUNS else ""
            self._log.logger.error(
                "%s: %s: %d records are lost: they were committed, as delivery is at_most_once, and"
                " their calls had not ended: offsets %s%s",
                self._log.worker,
                each.name,
                len(each.offsets),
                ", ".join(runs[:_MOST_RUNS]),
                more,
                extra={
                    **self._log.place(LogEvent.RECORDS_LOST, each.name, each.offsets[0]),
                    "records": len(each.offsets),
                },
            )

    def _whose(self, message: Message | None, failure: Failure) -> dict[str, object]:
        """Return the handler and the key, as in handlers' log lines."""
        key = None if message is None else self._loggable_key(message.topic(), message.key())
        return {"handler": failure.handler or self._handler, "key": key_text(key)}


def what_follows(*, repeats: bool) -> str:
    """Return what happens to records whose calls outlast the worker's partitions."""
    return "their records will run again" if repeats else "their records are lost"


def _shown(run: range) -> str:
    return f"{run.start}" if len(run) == 1 else f"{run.start}-{run.stop - 1}"


def _what_became_of(failed: FailedRecord, rules: RetryRules, now: float, more: str) -> str:
    fault = failed.failure.fault
    if isinstance(failed.failure.error, NotCalled):
        return f"{fault.message}; {_ENDS[failed.end]}{more}"
    stack = f"\n{fault.stack.rstrip()}" if fault.stack else ""
    return (
        f"failed at {_attempt(failed, rules)} with {fault.words};"
        f" {_next_step(failed, now)}{more}{stack}"
    )


def _attempt(failed: FailedRecord, rules: RetryRules) -> str:
    """Return the number of the failed attempt and the limit; crashes have their own limit."""
    kind = type(failed.failure.error)
    if kind is ProcessDiedError:
        return f"attempt {failed.calls} (crash {failed.deaths} of {rules.crash_attempts})"
    if kind is ProcessCrashedError:
        return f"attempt {failed.calls} (its crash_attempts are spent)"
    most = failed.hop.attempts + rules.allowed(failed.partition.retry_level.level)
    attempts = min(failed.calls - failed.spared, most)
    if attempts == failed.calls:
        return f"attempt {attempts} of {most}"
    return (
        f"call {failed.calls} ({attempts} of {most} attempts used: the circuit breaker spared"
        " the others)"
    )


def _next_step(failed: FailedRecord, now: float) -> str:
    if failed.reason is None:
        return f"next attempt in {max(0.0, failed.due - now):.1f} s"
    if failed.level is not None:
        step = f"it moves to the retry topic of {failed.level.name}"
    else:
        step = f"{_WHY.get(failed.reason, 'its attempts are spent')}, {_ENDS[failed.end]}"
    return step if failed.is_decided else f"{step} unless the circuit breaker holds it"


def _trace(message: Message | None) -> dict[str, object]:
    """Return the fields of the trace that a record belongs to."""
    trace_id, span_id = (None, None) if message is None else trace_of(message)
    return {"trace_id": trace_id, "span_id": span_id}
