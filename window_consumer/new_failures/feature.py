"""New failures as a feature: a worker's baseline, its rule, log lines and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final

from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import ConfigError
from window_consumer.model.log_events import LogEvent
from window_consumer.new_failures.baseline import FailureBaseline, failure_baseline
from window_consumer.new_failures.metrics import METRICS
from window_consumer.new_failures.rule import NewFailure, NewFailureFigures, NewFailureRule
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.feature import AppStart, Feature
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker

_NO_VERSION: Final = (
    "needs the version of the application, to compare its failures with other versions':"
    ' App(..., version="2.4.0")'
)


class RunningNewFailures(RunningFeature):
    """The rules of the workers that watch for new failures."""

    def __init__(self, start: AppStart):
        self._version = start.version
        self._known: dict[str, FailureBaseline] = {}
        self._rules: dict[str, NewFailureRule] = {}

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Read the newest dead letters of each such worker. Raises the reader's errors."""
        for worker in prepared.workers:
            if is_watched(worker.plan):
                self._known[worker.plan.name] = self._read(worker, prepared)
        yield

    def _read(self, worker: PreparedWorker, prepared: Prepared) -> FailureBaseline:
        ladders = worker.ladders.values()
        topics = [each.dead_letters.topic for each in ladders if each.dead_letters is not None]
        plan = worker.plan
        with TopicReader(plan.consumer, worker.log, oauth_token=prepared.oauth_token) as reader:
            known = failure_baseline(reader, dict.fromkeys(topics), self._version)
        LOGGER.info(
            "%s: versions other than %s have %d fingerprints among the newest %d dead letters",
            plan.name,
            self._version,
            len(known.fingerprints),
            known.dead_letters,
            extra={"event": LogEvent.NEW_FAILURE_KNOWN, "worker": plan.name},
        )
        return known

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return the rule of a worker that watches."""
        plan = worker.plan
        if not is_watched(plan):
            return ()
        config = plan.config.on_new_failure
        rule = self._rules[plan.name] = NewFailureRule(
            config,
            self._known[plan.name].fingerprints,
            partial(_log_found, plan.name, self._version, paused=config.action == "pause"),
            partial(_log_accepted, plan.name, self._version),
            is_batch=plan.is_batch,
        )
        return [rule]

    def figures_of(self, worker: str) -> NewFailureFigures | None:
        """Return the figures of a worker's rule."""
        rule = self._rules.get(worker)
        return None if rule is None else rule.figures


class NewFailuresFeature(Feature):
    """Failures that a version of the application introduces."""

    name = "new_failures"
    metrics = METRICS

    def refuse(self, plan: AppPlan) -> None:
        """Raise ConfigError if the application has no version."""
        problems = [
            f"{plan.where('workers', each.name, 'on_new_failure')}: workers.{each.name}."
            f"on_new_failure: {_NO_VERSION}"
            for each in plan.workers
            if is_watched(each) and not plan.version
        ]
        if problems:
            raise ConfigError("\n".join(problems))

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Watch the workers with this rule. Raises ConfigError without a version."""
        if not any(map(is_watched, start.plan.workers)):
            return nullcontext()
        self.refuse(start.plan)
        return nullcontext(RunningNewFailures(start))


def is_watched(worker: PlannedWorker) -> bool:
    """Return whether a worker looks for new failures."""
    return worker.config.on_new_failure.action is not None


def _log_found(worker: str, version: str, found: NewFailure, *, paused: bool) -> None:
    LOGGER.error(
        "%s: a new failure of version %s: %s; %s",
        worker,
        version,
        found,
        "the worker is paused and nothing leaves: roll back, or accept it with"
        f" `window-consumer resume --worker {worker}`"
        if paused
        else "the worker continues (on_new_failure.action is alert)",
        extra={
            "event": LogEvent.NEW_FAILURE_FOUND,
            "worker": worker,
            "topic": found.last.partition.topic,
            "partition": found.last.partition.partition,
            "offset": found.last.offset,
            "fingerprint": found.fingerprint,
            "error": found.last.error_class,
            "paused": paused,
        },
    )


def _log_accepted(worker: str, version: str, accepted: Sequence[NewFailure]) -> None:
    LOGGER.warning(
        "%s: version %s may fail from now on with %s",
        worker,
        version,
        ", ".join(f"{each.last.error_class} (fingerprint {each.fingerprint})" for each in accepted),
        extra={
            "event": LogEvent.NEW_FAILURE_ACCEPTED,
            "worker": worker,
            "fingerprints": [each.fingerprint for each in accepted],
        },
    )
