"""Sends the ticks of schedules: each is acked by its topic before it is recorded as the last one.

So a kill repeats ticks, with the same id, and loses none. Schedules do not wait for each other. No
threads and no clocks: the caller passes the times, and serves the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from attrs import define, field, frozen

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy, Sink
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.schedules.schedule import LastTick, Schedule, moment_of, text_of

_AGAIN_S: Final = (1.0, 60.0)
"""The first and the longest wait after a failure; each doubles the last."""


@frozen
class ScheduleFigures:
    """The figures of a process's schedules."""

    sent: int
    """Ticks that their topics have acknowledged."""
    failing: int
    """Schedules of this process whose due ticks could not be sent yet."""


@frozen
class UnsentTicks:
    """A schedule whose due ticks could not be sent; they are retried."""

    schedule: str
    topic: str
    """The topic that refused a record: its target, or the topic of the last ticks."""
    why: str


@define(eq=False)
class _ScheduleRun:
    """One schedule while it is ours."""

    schedule: Schedule
    since: datetime
    """Its ticks up to here are sent."""
    next: datetime | None = field(init=False)
    is_kept: bool = True
    """Whether the topic records that."""
    unanswered: int = 0
    error: PublishFailedError | None = None
    """The first of the records written together."""
    failures: int = 0
    refused: UnsentTicks | None = None
    """The last failure, while ``failures`` counts."""
    again_at: float = 0.0
    """When it continues after a failure, in monotonic seconds."""

    def __attrs_post_init__(self) -> None:
        self.advance(self.since)

    def advance(self, last: datetime) -> None:
        """Continue after a tick."""
        self.since = last
        self.next = next(self.schedule.cron.after(last), None)


class TickSender:
    """Runs schedules while this process owns them. Owner: one thread; any may read figures."""

    def __init__(
        self, schedules: Sequence[Schedule], topic: str, sink: Sink, ticks: Sink | None = None
    ):
        """``topic`` keeps the last ticks. ``ticks`` is the sink of all other records."""
        self._schedules = schedules
        self._topic = topic
        self._sink = sink
        self._ticks = sink if ticks is None else ticks
        self._runs: list[_ScheduleRun] = []
        self._sent = 0

    def begin(self, last: Mapping[str, LastTick], wall_ms: float) -> None:
        """Take over the schedules; ``last`` is from the topic."""
        now = moment_of(wall_ms)
        self._runs = [
            _ScheduleRun(each, each.begin(last.get(each.name), now)) for each in self._schedules
        ]
        for run in self._runs:
            run.is_kept = run.since != now  # kept at once, so that an outage is noticed

    def end(self) -> None:
        """Begin nothing more: another process owns the schedules."""
        self._runs = []

    def advance(self, now: float, wall_ms: float) -> bool:
        """Write due ticks; return whether there were any. ``now`` is in monotonic seconds."""
        moment = moment_of(wall_ms)
        wrote = False
        for run in self._runs:
            if run.error is not None and not run.unanswered:
                self._postpone(run, run.error, now)
            if run.unanswered or run.again_at > now:
                continue
            if not run.is_kept:
                self._keep(run)
                wrote = True
            elif run.next is not None and run.next <= moment:
                self._send(run, moment)
                wrote = True
        return wrote

    def wait_s(self, now: float, wall_ms: float, longest_s: float) -> float:
        """Return the seconds until something is due, at most ``longest_s``."""
        moment = moment_of(wall_ms)
        found = [longest_s]
        for run in self._runs:
            due_s = 0.0
            if run.is_kept:
                due_s = longest_s if run.next is None else (run.next - moment).total_seconds()
            found.append(max(0.0, due_s, run.again_at - now))
        return min(found)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer of the sink is missing."""
        return any(run.unanswered for run in self._runs)

    def figures(self) -> ScheduleFigures:
        """Return the figures."""
        return ScheduleFigures(self._sent, sum(run.failures > 0 for run in self._runs))

    def unsent(self) -> Sequence[UnsentTicks]:
        """Return the schedules of this process that cannot send."""
        return [run.refused for run in self._runs if run.failures and run.refused is not None]

    # ---- one schedule

    def _send(self, run: _ScheduleRun, moment: datetime) -> None:
        due = run.schedule.due(run.since, moment)
        if due is None:
            return
        if due.left_out and not run.failures:
            LOGGER.warning(
                "schedules.%s: ticks between %s and %s were missed and are omitted"
                " (schedules.%s.missed is %s)",
                run.schedule.name,
                text_of(run.since),
                text_of(due.last),
                run.schedule.name,
                run.schedule.config.missed,
                extra={"event": LogEvent.SCHEDULE_TICKS_MISSED, "schedule": run.schedule.name},
            )

        def sent() -> None:
            self._sent += len(due.sent)
            run.failures = 0
            run.advance(due.last)
            run.is_kept = False
            self._keep(run)

        self._write(run, self._ticks, [run.schedule.record(tick) for tick in due.sent], sent)

    def _keep(self, run: _ScheduleRun) -> None:
        def kept() -> None:
            run.failures = 0
            run.is_kept = True

        self._write(run, self._sink, [run.schedule.state_record(self._topic, run.since)], kept)

    def _write(
        self, run: _ScheduleRun, sink: Sink, copies: Sequence[Copy], on_acked: Callable[[], None]
    ) -> None:
        """Write copies, and call ``on_acked`` once all are acked and the schedule is still ours."""
        run.unanswered = len(copies)

        def answer(error: PublishFailedError | None) -> None:
            run.unanswered -= 1
            run.error = run.error or error
            if not run.unanswered and run.error is None and run in self._runs:
                on_acked()

        for copy in copies:
            sink.write(copy, answer)
        if not copies:
            on_acked()

    def _postpone(self, run: _ScheduleRun, error: PublishFailedError, now: float) -> None:
        """Continue later, and then check again which ticks are due."""
        run.error = None
        first_s, longest_s = _AGAIN_S
        wait_s = min(first_s * 2**run.failures, longest_s)
        run.failures += 1
        topic = run.schedule.config.to if run.is_kept else self._topic
        run.refused = UnsentTicks(run.schedule.name, topic, str(error))
        run.again_at = now + wait_s
        LOGGER.error(
            "schedules.%s: a tick cannot be sent, retrying in %g s: %s",
            run.schedule.name,
            wait_s,
            error,
            extra={"event": LogEvent.SCHEDULE_NOT_SENT, "schedule": run.schedule.name},
        )
