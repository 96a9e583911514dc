"""A worker's place in its group: it acquires partitions, and releases them within time limits.

The running calls of a revoked partition may finish; then comes the last commit of its epoch. A stop
releases all partitions in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import define, field

from window_consumer.engine.commits.commit_metadata import MAX_BYTES
from window_consumer.engine.decisions import Assigned, Outlived
from window_consumer.engine.engine import Engine
from window_consumer.model.errors import NotCommittedError, WindowConsumerError, WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, CommitResults, Source, TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.call_log import what_follows
from window_consumer.runtime.freeze_detector import FreezeDetector
from window_consumer.runtime.mailbox import SERVE_S, WorkerMailbox
from window_consumer.runtime.partitions.assignments import Assignments
from window_consumer.runtime.partitions.final_commit import LAST_COMMIT_S, FinalCommits
from window_consumer.runtime.partitions.offset_reset import OffsetResets
from window_consumer.runtime.pools.pool import Pool
from window_consumer.runtime.worker_log import WorkerLog
from window_consumer.runtime.writing.outlet import Outlet

INTERRUPT_S: Final = 1.0
"""How long cancelled calls may take to end when their partition is revoked."""


@define(eq=False)
class PartitionOwnership:
    """The Source's Listener. Owner: poll thread; any thread may read ``in_group``."""

    topics: list[str]
    """The subscribed topics."""
    _revoke_timeout_s: float
    _source: Source
    _outlet: Outlet
    _engine: Engine
    _pool: Pool
    _assignments: Assignments
    _offset_resets: OffsetResets
    _worker_log: WorkerLog
    _clock: Clock
    _freeze_detector: FreezeDetector
    _mailbox: WorkerMailbox
    _serve: Callable[[], None]
    """Lets other partitions continue."""
    _on_joined: Callable[[], None]
    """Called at each assignment while the worker does not leave."""
    in_group: bool = False
    """Whether the worker is a member of its group. A member may have no partitions."""
    is_leaving: bool = False
    """A stop has begun: further partitions are not started."""
    stop_by: float = float("inf")
    """When handlers must have ended, at a stop."""
    end_by: float = float("inf")
    """When everything must be over, at a stop."""
    _last_commits: FinalCommits = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._mailbox.on_topics = self.on_topics
        self._last_commits = FinalCommits(
            self._source, self._outlet, self._assignments, self._worker_log, self.left_s
        )

    # ---- events of the Source

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        """Resolve where each partition starts and start it."""
        self.in_group = True
        self._count_change(names)
        now = self._clock.now()
        if self.is_leaving:
            self._source.start(dict.fromkeys(names))
            return
        assigned = self._assignments.resolve(names, now)
        self._source.start(
            {**dict.fromkeys(names), **{each.name: each.next_offset for each in assigned}}
        )
        self._engine.on_assigned(assigned, now)
        self._freeze_detector.was_busy()
        self._on_joined()
        self._log_assignment()
        self._worker_log.recalled(assigned)

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        """Finish running calls within bounds, then make the last commit of this epoch."""
        self._count_change(names)
        now = self._clock.now()
        self._engine.on_revoking(names, now)
        self._finish_running(names, min(now + self._revoke_timeout_s, self.stop_by))
        self.give_up(names)
        self._freeze_detector.was_busy()

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        """Give partitions up without a commit, because another member owns them already."""
        self._count_change(names)
        self.in_group = False
        now = self._freeze_detector.notice()
        held = [name for name in names if name in self._engine.partitions]
        suspects = self._freeze_detector.suspects(held)
        for name in held:
            self._assignments.starts.lost(self._engine.partitions[name], now)
        outlived = dict.fromkeys([*self._lose(names, now), *suspects])
        self._outlet.lost()
        if held:
            self._worker_log.warn(
                LogEvent.PARTITIONS_LOST,
                f"lost {_listed(held)}: the session timed out or was fenced",
                partitions=len(held),
            )
        self._worker_log.calls.outlived(outlived)
        self._worker_log.calls.lost(self._engine.losses.take())

    def on_aborted(self, error: NotCommittedError) -> None:
        """Give all partitions up, and reread those that are not being revoked.

        Results of their calls are ignored. Raises WorkerStoppedError if that cannot help.
        """
        if error.metadata_too_large:
            raise WorkerStoppedError(
                f"delivery: exactly_once needs commits with {MAX_BYTES + 1:,} bytes of metadata:"
                f" raise the brokers' offset.metadata.max.bytes ({error})"
            )
        now = self._clock.now()
        partitions = self._engine.partitions
        again = [name for name, each in partitions.items() if each.is_assigned]
        outlived = self._lose(list(partitions), now)
        self._worker_log.warn(
            LogEvent.TRANSACTION_ABORTED,
            f"a transaction was aborted, its records run again: {error}",
        )
        self._worker_log.calls.outlived(outlived)
        assigned = self._assignments.begin_again(again, now)
        started = {each.name for each in assigned}
        if late := [name for name in again if name not in started]:
            self._source.pause(late)
        self._start(assigned, now)

    def _lose(self, names: Sequence[TopicPartition], now: float) -> Sequence[Outlived]:
        """Release partitions without a commit, and end their calls if possible."""
        running = self._engine.work.running(names)
        outlived = self._engine.on_lost(names, now)
        self._remove(names)
        if running:
            self._pool.interrupt(running)
        return outlived

    def _start(self, assigned: Sequence[Assigned], now: float) -> None:
        for each in assigned:
            self._source.seek(each.name, each.next_offset)
        self._engine.on_assigned(assigned, now)

    def retry(self, now: float) -> None:
        """Start partitions that had to wait, and try again to find lost positions."""
        assigned = self._assignments.retry(now)
        self._start(assigned, now)
        if assigned:
            self._log_assignment()
        self._worker_log.recalled(assigned)
        self._offset_resets.retry(now)

    def _log_assignment(self) -> None:
        mine = self._engine.partitions
        text = f"reads {_listed(mine)}"
        self._worker_log.info(LogEvent.PARTITIONS_ASSIGNED, text, partitions=len(mine))

    def on_committed(self, results: CommitResults) -> None:
        """Pass the commit results to the Engine."""
        self._engine.on_committed(results, self._clock.now())
        self._worker_log.commits(results)

    def on_out_of_range(self, name: TopicPartition) -> None:
        """Reset the offset by the configured rule, or stop."""
        self._offset_resets.out_of_range(name, self._clock.now())
        self._freeze_detector.was_busy()

    def on_error(self, error: WindowConsumerError) -> None:
        """Log an error that the client is retrying."""
        self._worker_log.trouble(error)

    def _count_change(self, names: Sequence[TopicPartition]) -> None:
        if names:
            self._engine.on_rebalance(self._clock.now())

    def on_topics(self, facts: Mapping[str, TopicFacts]) -> None:
        """Pass facts about topics on, and subscribe to new topics."""
        now = self._clock.now()
        self._offset_resets.reset_recreated(facts, now)
        counts = {topic: each.partitions for topic, each in facts.items()}
        self._engine.on_topics(counts, now)
        self._freeze_detector.was_busy()
        topics = sorted(facts)
        if topics and topics != sorted(self.topics):
            added, removed = set(topics) - set(self.topics), set(self.topics) - set(topics)
            self._worker_log.info(
                LogEvent.TOPICS_CHANGED, f"topics changed: {len(added)} new, {len(removed)} gone"
            )
            self._assignments.starts.appeared(added)
            self.topics = topics
            self._source.subscribe(topics, self)
        self._source.widen(counts)

    # ---- giving up

    def _finish_running(self, names: Sequence[TopicPartition], deadline: float) -> None:
        """Wait for the calls and copies of these partitions while the others continue."""
        while self._engine.work.busy(names) and (left := deadline - self._clock.now()) > 0:
            self._mailbox.take(min(left, SERVE_S))
            self._serve()
        self.interrupt(names, f"revoke_timeout ({self._revoke_timeout_s:g} s) is over")

    def interrupt(self, names: Sequence[TopicPartition], why: str) -> None:
        """End those calls of these partitions that can be ended, and wait for them."""
        # A queued slice has no call to end.
        calls = {
            each: message.offset()
            for each in self._engine.work.running(names)
            if (message := each.running()) is not None
        }
        if not calls or not self._pool.interrupt(list(calls)):
            return
        deadline = self._clock.now() + self.left_s(INTERRUPT_S)
        while (left := deadline - self._clock.now()) > 0 and self._engine.work.running(names):
            self._mailbox.take(min(left, SERVE_S))
        continuing = len(calls.keys() & set(self._engine.work.running(names)))
        if continuing < len(calls):
            places = [(each.partition.name, offset) for each, offset in calls.items()]
            follows = what_follows(repeats=self._engine.guarantee.repeats)
            self._worker_log.calls.interrupted(places, continuing, why, self._pool.ending, follows)

    def left_s(self, most_s: float) -> float:
        """Return how long a step of giving up may take: ``most_s``, or the rest of a stop."""
        return max(0.0, min(most_s, self.end_by - self._clock.now()))

    def give_up(self, names: Sequence[TopicPartition]) -> Sequence[Outlived]:
        """Make the last commit; return the calls that are still running."""
        self._outlet.settle(self.left_s(LAST_COMMIT_S))
        unverified = set(names) - self._last_commits.verified(names)
        commits, outlived = self._engine.on_revoked(names, self._clock.now())
        self._worker_log.calls.outlived(outlived)
        self._worker_log.calls.lost(self._engine.losses.take())
        if unverified:
            self._outlet.lost()
        self._last_commits.write([each for each in commits if each.name not in unverified])
        self._remove(names)
        return outlived

    def _remove(self, names: Sequence[TopicPartition]) -> None:
        self._assignments.remove(names)
        self._offset_resets.remove(names)


def _listed(names: Sequence[TopicPartition] | Mapping[TopicPartition, object]) -> str:
    if not names:
        return "no partition for now"
    shown = ", ".join(str(name) for name in sorted(names)[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{len(names)} partition{'s' if len(names) > 1 else ''}: {shown}{more}"
