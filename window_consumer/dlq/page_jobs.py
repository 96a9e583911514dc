"""Redrives and purges that people start on the page: each begins with a dry run.

A user confirms a dry run by its number, so only what somebody has reviewed is done.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

import attrs
from attrs import define, evolve, field, frozen

from window_consumer.dlq.page_answers import TIMEOUT_S, DeadLetterAnswers, LetterSelection
from window_consumer.dlq.purge import Before, PurgePoint, cuts_of, purge
from window_consumer.dlq.redrive import RedriveCounts
from window_consumer.dlq.redrive_setup import RedriveRequest, redrive_jobs
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import PageContext
from window_consumer.runtime.log import own_logger

_MOST_KEPT: Final = 20
"""The page lists this many of the latest jobs."""

_log = own_logger()


class JobState(StrEnum):
    """The progress of a job."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@define
class JobPart:
    """The effect of a job on one topic or partition."""

    about: dict[str, Any]
    counts: RedriveCounts | None = None
    """The counts of a redrive, updated while it runs."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return self.about | ({} if self.counts is None else attrs.asdict(self.counts))


class JobWork(Protocol):
    """The work of a job, on its thread."""

    what: ClassVar[str]
    selection: LetterSelection
    dry_run: bool

    def run(self, job: LetterJob) -> bool:
        """Run it; return False if it was stopped before its end."""

    def options(self) -> dict[str, Any]:
        """Return the options, for people."""

    def for_real(self) -> JobWork:
        """Return the real run of this dry run."""


@define
class LetterJob:
    """A redrive or a purge. Its thread writes it; any thread may read it."""

    number: int
    work: JobWork
    by: str
    """The user who started it."""
    state: JobState = JobState.RUNNING
    error: str | None = None
    parts: list[JobPart] = field(factory=list)
    is_confirmed: bool = False
    """Whether the dry run was confirmed."""
    stop: threading.Event = field(factory=threading.Event, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "number": self.number,
            "what": self.work.what,
            "dry_run": self.work.dry_run,
            "topics": list(self.work.selection.topics),
            "where": self.work.selection.where,
            "options": self.work.options(),
            "by": self.by,
            "state": self.state,
            "error": self.error,
            "confirmed": self.is_confirmed,
            "parts": [each.as_json() for each in list(self.parts)],
        }


@frozen
class RedriveWork(JobWork):
    """Puts dead letters back into their groups' own entry topics."""

    what = "redrive"

    context: PageContext = field(repr=False)
    selection: LetterSelection
    request: RedriveRequest

    @property
    def dry_run(self) -> bool:  # type: ignore[override] # only read
        """Whether nothing is written."""
        return self.request.dry_run

    def options(self) -> dict[str, Any]:
        """See JobWork."""
        request = self.request
        return {"rate": request.rate, "max_redrives": request.max_redrives}

    def for_real(self) -> JobWork:
        """See JobWork."""
        return evolve(self, request=evolve(self.request, dry_run=False))

    def run(self, job: LetterJob) -> bool:
        """See JobWork."""
        context = self.context
        found = redrive_jobs(
            context.loaded,
            self.request,
            topics=self.selection.topics,
            oauth_token=context.oauth_token,
            timeout_s=TIMEOUT_S,
        )
        for each in found:
            counts = RedriveCounts()
            job.parts.append(JobPart(each.as_json(), counts))
            if not each.run(counts, job.stop.is_set, context.copy_writers):
                return False
        return True


@frozen
class PurgeWork(JobWork):
    """Deletes the range that a dry run found at the beginning of a topic."""

    what = "purge"

    answers: DeadLetterAnswers = field(repr=False)
    selection: LetterSelection
    before: Before
    partition: int | None
    cuts: list[PurgePoint] = field(factory=list, repr=False)
    """The ranges that the dry run found."""
    dry_run: bool = True

    def options(self) -> dict[str, Any]:
        """See JobWork."""
        return attrs.asdict(self.before) | {"partition": self.partition}

    def for_real(self) -> JobWork:
        """See JobWork."""
        return evolve(self, dry_run=False)

    def run(self, job: LetterJob) -> bool:
        """See JobWork."""
        with self.answers.open(self.selection.topics) as topics:
            if self.dry_run:
                self.cuts.extend(cuts_of(topics.topics, self.before, self.partition))
            else:
                there = {topic.name: topic for topic in topics.topics}
                purge([evolve(cut, topic=there[cut.name.topic]) for cut in self.cuts])
        job.parts.extend(JobPart(cut.as_json()) for cut in self.cuts)
        return True


class LetterJobs:
    """Runs one job at a time, on a separate thread. Owner: the server's event loop."""

    def __init__(self, context: PageContext):
        self._context = context
        self._jobs: list[LetterJob] = []
        self._started = 0

    def listed(self) -> list[dict[str, Any]]:
        """Return the jobs as plain values, the latest first."""
        return [job.as_json() for job in reversed(self._jobs)]

    def start(self, work: JobWork, by: str, **log_fields: str) -> LetterJob:
        """Start a job; raises UsageError while another one runs."""
        if any(job.state is JobState.RUNNING for job in self._jobs):
            raise UsageError("a redrive or purge is already running: wait for its end, or stop it")
        self._started += 1
        job = LetterJob(self._started, work, by)
        self._jobs = [*self._jobs[1 - _MOST_KEPT :], job]
        _log.warning(
            "dead letters: %s starts a %s of %s%s",
            by or "somebody",
            work.what,
            ", ".join(work.selection.topics) or "all topics",
            " (dry run)" if work.dry_run else "",
            extra={"event": LogEvent.DLQ_JOB_STARTED, **_fields(job), **log_fields},
        )
        thread = threading.Thread(target=self._run, args=(job,), name="wc-dlq-job", daemon=True)
        thread.start()
        return job

    def confirm(self, number: int, by: str, **log_fields: str) -> LetterJob:
        """Start the real run of a dry run; raises UsageError if that is impossible."""
        tried = self._of(number)
        is_over = tried.state is JobState.DONE
        if not (tried.work.dry_run and is_over) or tried.is_confirmed:
            raise UsageError("only a finished dry run can be confirmed, and only once")
        job = self.start(tried.work.for_real(), by, **log_fields)
        tried.is_confirmed = True
        return job

    def stop(self, number: int) -> LetterJob:
        """Ask a job to stop at its next batch; raises UsageError."""
        job = self._of(number)
        job.stop.set()
        return job

    def _of(self, number: int) -> LetterJob:
        for job in self._jobs:
            if job.number == number:
                return job
        raise UsageError(f"job {number} no longer exists")

    def _run(self, job: LetterJob) -> None:
        mask = self._context.mask
        try:
            job.state = JobState.DONE if job.work.run(job) else JobState.STOPPED
        except WindowConsumerError as error:
            job.error, job.state = mask(str(error)), JobState.FAILED
        except Exception as error:  # the job ends, and the page shows why
            job.error, job.state = mask(f"{type(error).__name__}: {error}"), JobState.FAILED
            _log.exception(
                "dead letters: job %d failed; please report this bug",
                job.number,
                extra={"event": LogEvent.DLQ_JOB_FAILED, **_fields(job)},
            )
        _log.info(
            "dead letters: job %d is %s",
            job.number,
            job.state,
            extra={"event": LogEvent.DLQ_JOB_ENDED, "state": job.state, **_fields(job)},
        )


def _fields(job: LetterJob) -> dict[str, Any]:
    work = job.work
    return {
        "job": job.number,
        "what": work.what,
        "topics": list(work.selection.topics),
        "where": work.selection.where,
        "dry_run": work.dry_run,
    }
