"""The log lines of a running worker, limited to stay readable when much fails at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import (
    Assigned,
    HeadOfLineBlocked,
    OutOfOrderRecords,
    OwnerAway,
)
from window_consumer.engine.guards.breaker_state import BreakerNews, BreakerState
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitNews
from window_consumer.model.errors import GivenUpError, PublishFailedError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.outcome import OUTCOMES, counters
from window_consumer.model.protocols import CommitResults
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.call_log import CallLog
from window_consumer.runtime.context import LoggableKey
from window_consumer.runtime.limited_log import LimitedLog, Now

_NOW = {
    BreakerState.HOLDING: "nothing leaves until the cause is known",
    BreakerState.POISON: "everything runs, and a record leaves if others succeed beside it",
    BreakerState.OVERLOAD: "fewer calls run at once, and nothing leaves",
    BreakerState.OPEN: "single calls test whether the outage is over, and nothing leaves",
    BreakerState.PAUSED: "nothing starts and no attempt is spent until then",
    BreakerState.HALF_OPEN: "the number of calls doubles while they succeed; nothing leaves",
    BreakerState.CLOSED: "work resumes",
}

MUCH = 1.25
"""A concurrency change below this factor gets no line."""

_MILLISECONDS = re.compile(r"\b\d+ ?ms\b")
"""The client's texts contain the duration of each attempt, which would make every line unique."""

_SUMMARY = ("produced", "retried", *counters(progress=True))
"""The counters that the last line has as fields."""

_RARE = {row.words: row.counter for row in OUTCOMES if row.is_progress and not row.is_common}
"""The counters that it names only if they are not 0, by their word."""


class WorkerLog(LimitedLog):
    """The log of one worker. Owner: poll thread."""

    def __init__(
        self,
        worker: str,
        logger: logging.Logger,
        now: Now,
        loggable_key: LoggableKey = lambda _, key: key,
        handler: str = "",
    ):
        super().__init__(worker, logger, now)
        self.calls = CallLog(self, loggable_key, handler)
        """The lines about single calls."""
        self._logged_limit = 0

    def observer_failed(self, error: Exception) -> None:
        """Log that an observer failed; the work continues."""
        text = f"telemetry lost an event ({error!r}); nothing else is affected"
        self.warn(LogEvent.OBSERVER_FAILED, text)

    def trouble(self, error: WindowConsumerError) -> None:
        """Log an error that the client is retrying."""
        text = str(error)
        self.limited(logging.WARNING, LogEvent.CLIENT_FAILED, text, _MILLISECONDS.sub("", text))

    def not_copied(self, failed: FailedRecord, error: PublishFailedError) -> None:
        """Log that a record's copy was refused; one line per kind of refusal."""
        what_to_do = (
            "; raise the topic's max.message.bytes, or see retry.on_oversize"
            if error.too_large
            else ""
        )
        text = f"{failed} stays open: its copy was refused and is retried: {error}{what_to_do}"
        self.limited(logging.WARNING, LogEvent.COPY_REFUSED, text, str(error))

    def not_produced(self, production: Production, index: int, error: PublishFailedError) -> None:
        """Log that a record's result was refused, if it is sent again."""
        if error.refused and not (error.too_large and not production.alone):
            return  # the call counts as failed, and that is logged
        offset = production.messages[0].offset()
        text = (
            f"{production.partition.name}@{offset} stays open: its result for"
            f" {production.results[index].topic} was refused and is sent again: {error.why}"
        )
        self.limited(logging.WARNING, LogEvent.RESULT_REFUSED, text, f"result: {error}")

    def hovering(self, news: Iterable[HeadOfLineBlocked]) -> None:
        """Log start cells that make no progress."""
        for each in news:
            self.logger.warning(
                "%s: %s hovers: its start cell has made no progress for %.0f s; the first open"
                " record is offset %d, attempt %d (SIGUSR1 shows its handler's stack)",
                self.worker,
                each.name,
                each.age_s,
                each.offset,
                each.attempt,
                extra=self.place(LogEvent.HEAD_BLOCKED, each.name, each.offset, each.attempt),
            )

    def passed_over(self, news: Iterable[OutOfOrderRecords]) -> None:
        """Log records that arrived after later ones of their partition."""
        for each in news:
            self.logger.error(
                "%s: %s: records with offsets %d..%d arrived after later ones and are not handled;"
                " the committed offset may lie beyond them: this is a bug, please report it",
                self.worker,
                each.name,
                each.offsets.start,
                each.offsets.stop - 1,
                extra=self.fields(LogEvent.RECORDS_PASSED_OVER),
            )

    def away(self, news: Sequence[OwnerAway]) -> None:
        """Log that copies wait for the owner of their source's partition."""
        if not news:
            return
        shown = ", ".join(f"{each.name} (its source's is {each.home})" for each in news[:4])
        more = f" and {len(news) - 4} more partitions" if len(news) > 4 else ""
        self.logger.warning(
            "%s: %d copies wait, for %.0f s so far, in %s%s: another member of the group owns the"
            " partition of their source, and a lane has one owner. They continue when all members"
            " read the same topics: give all members the same retry.levels",
            self.worker,
            sum(each.copies for each in news),
            max(each.seconds for each in news),
            shown,
            more,
            extra=self.fields(LogEvent.COPIES_HELD),
        )

    def breaker(self, news: Iterable[BreakerNews]) -> None:
        """Log that the circuit breaker has opened, half opened or closed."""
        for each in news:
            if each.worth_a_line:
                level = logging.WARNING if each.state is BreakerState.OPEN else logging.INFO
                self.logger.log(
                    level,
                    "%s: breaker %s: %s; %s",
                    self.worker,
                    each.state,
                    each.why,
                    _NOW[each.state],
                    extra=self.fields(LogEvent.BREAKER_CHANGED, state=each.state),
                )

    def limit(self, news: LimitNews | None) -> None:
        """Log that the concurrency has changed by much since its last line."""
        if news is None:
            return
        logged = self._logged_limit or news.before
        if max(logged, news.limit) < MUCH * min(logged, news.limit):
            return
        if self.repetition.count_suppressed("limit") is not None:
            self._logged_limit = news.limit
            self.logger.info(
                "%s: concurrency %d, it was %d: %s",
                self.worker,
                news.limit,
                logged,
                news.why,
                extra=self.fields(LogEvent.CONCURRENCY_CHANGED),
            )

    def recalled(self, assigned: Iterable[Assigned]) -> None:
        """Log which lost partitions came back, and that their kept outcomes still count."""
        for each in assigned:
            if each.kept is not None and each.committed is not None:
                finished = each.kept.beyond(each.committed[0])
                self.logger.info(
                    "%s: %s was lost and returned, and nobody else has committed: %d finished"
                    " records beyond offset %d are not handled again",
                    self.worker,
                    each.name,
                    sum(map(len, finished)),
                    each.committed[0],
                    extra=self.fields(LogEvent.PARTITION_REGAINED),
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
                self.limited(logging.WARNING, event, text, f"commit {error}")

    def stopped(
        self,
        did: Counters,
        unfinished: int,
        first: Sequence[tuple[TopicPartition, int]],
        *,
        moves: bool,
    ) -> None:
        """Log what the worker has done; ``moves`` if it has retry topics.

        ``first`` are the first unfinished records, one of each partition.
        """
        self.calls.calm()
        # Only if there are any: most workers skip nothing and nothing expires.
        more = "".join(
            f" {number} {words}," for words, name in _RARE.items() if (number := getattr(did, name))
        )
        produced = f"{did.produced} produced, " if did.produced else ""
        moved = f"{did.moved} moved to retry topics, " if moves else ""
        self.info(
            LogEvent.WORKER_STOPPED,
            f"stopped: {did.processed} processed, {produced}{did.retried} retried, {moved}"
            f"{did.dead_lettered} dead-lettered,{more} {unfinished} unfinished{_from_where(first)}",
            **{name: getattr(did, name) for name in _SUMMARY},
            unfinished=unfinished,
        )


def _from_where(first: Sequence[tuple[TopicPartition, int]]) -> str:
    """Name the first unfinished records."""
    if not first:
        return ""
    shown = ", ".join(f"{name}@{offset}" for name, offset in first[:4])
    more = f" and in {len(first) - 4} more partitions" if len(first) > 4 else ""
    return f" (from {shown} on{more})"
