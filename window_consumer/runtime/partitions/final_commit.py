"""The last commits of revoked partitions: awaited, and only for the same topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Commit, Source
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.writing.outlet import Outlet

VERIFY_S = 1.0
"""How long a revoke may wait for the topic's id. Without the id nothing is committed."""

LAST_COMMIT_S = 3.0


class FinalCommits:
    """Writes the last commits of partitions. Owner: poll thread."""

    def __init__(
        self,
        source: Source,
        outlet: Outlet,
        assignments: Assignments,
        worker_log: WorkerLog,
        left_s: Callable[[float], float] = lambda most: most,
    ):
        self._source = source
        self._outlet = outlet
        self._assignments = assignments
        self._worker_log = worker_log
        self._left_s = left_s
        """Limits the duration of a step to the remaining time of the stop."""

    def verified(self, names: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions of unchanged topics: commits must not affect recreated topics."""
        known = self._assignments.topic_ids
        with_id = {name for name in names if known.get(name)}
        verified = set(names) - with_id
        if not with_id:
            return verified
        try:
            facts = self._source.facts(
                sorted({name.topic for name in with_id}), self._left_s(VERIFY_S)
            )
        except WindowConsumerError as error:
            self._worker_log.warn(
                LogEvent.COMMIT_SKIPPED,
                f"not committed at the end, the topics cannot be checked: {error}",
            )
            return verified
        there = {name for name in with_id if name.topic in facts}
        return verified | (there - set(self._assignments.made_anew(facts)))

    def write(self, commits: Sequence[Commit]) -> None:
        """Commit and wait for the broker's answers; retry retriable failures once."""
        if not commits:
            return
        results = self._outlet.commit_now(commits, self._left_s(LAST_COMMIT_S))
        again = [each for each in commits if (error := results[each.name]) and error.retriable]
        left_s = self._left_s(LAST_COMMIT_S)
        if again and left_s > 0:
            results = {**results, **self._outlet.commit_now(again, left_s)}
        self._worker_log.commits(results)
