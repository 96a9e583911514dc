"""A Source on a fake broker: one member of one group.

In relevant ways it behaves like the real client. Rebalances, answers to commits and errors are
reported within ``poll``. A pause discards prefetched records. A position is unknown before the
first read. A poll for no records may still return one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from window_consumer.model.errors import (
    BrokerUnavailableError,
    CommitFailedError,
    GivenUpError,
    RunError,
    WindowConsumerError,
)
from window_consumer.model.protocols import (
    Batch,
    Commit,
    CommitResults,
    CommittedOffset,
    SourceListener,
    TopicFacts,
)
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.fetcher import FakeFetcher
from window_consumer.testing.fakes.group import FakeGroup
from window_consumer.testing.fakes.topics import FakeTopics

Results = dict[TopicPartition, CommitFailedError | None]


class FakeSource:
    """One member of a group on a fake broker. Owner: one thread."""

    def __init__(self, topics: FakeTopics, group: FakeGroup):
        self.topics: Sequence[str] = ()
        self.in_callback = False
        """Whether a rebalance callback of the listener is running."""
        self.max_batch: int | None = None
        """The most records that a poll returns, whatever was requested."""
        self.answers_held = False
        """Holds back answers to commits while True."""
        self._cluster = topics
        self._group = group
        self._listener: SourceListener | None = None
        self._fetcher = FakeFetcher(topics)
        self._sent: deque[Commit] = deque()
        self._answers: deque[Results] = deque()
        self._raised: BaseException | None = None

    @property
    def held(self) -> Sequence[TopicPartition]:
        """The assigned partitions that this member knows of."""
        return list(self._fetcher.assigned)

    def is_out_of_range(self, name: TopicPartition) -> bool:
        """Return whether reading has stopped because the position is outside the log."""
        return self._fetcher.stands(name)

    # ---- membership

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics, or change what the group reads."""
        self._listener = listener
        if list(topics) != list(self.topics):
            self.topics = list(topics)
            # An evicted member joins again after it was informed of its loss.
            if self._group.has(self) or not self._fetcher.assigned:
                self._group.join(self)

    def widen(self, counts: Mapping[str, int]) -> None:
        """Do nothing: the group notices new partitions by itself."""

    def _rebalance(self, listener: SourceListener) -> None:
        """Call the listener at most once, as Kafka needs a round trip between two events."""
        if not self._group.has(self):
            self._give_up(listener.on_lost, self.held)
            self._group.join(self)
        elif leaving := self._group.to_give_up(self):
            self._give_up(listener.on_revoked, leaving)
        elif (names := self._group.to_take(self)) is not None:
            self._fetcher.assign(names)
            self._call_listener(listener.on_assigned, names)

    def _give_up(
        self, tell: Callable[[Sequence[TopicPartition]], None], names: Sequence[TopicPartition]
    ) -> None:
        if names:
            self._call_listener(tell, names)
        self._fetcher.release(names)
        self._group.release(self, names)

    def _call_listener(
        self, tell: Callable[[Sequence[TopicPartition]], None], names: Sequence[TopicPartition]
    ) -> None:
        self.in_callback = True
        try:
            tell(names)
        except BaseException as exception:
            self._raised = exception
        finally:
            self.in_callback = False

    # ---- records

    def poll(self, max_records: int, timeout_s: float) -> Sequence[Batch]:  # noqa: ARG002 - waiting brings nothing
        """Return records, a batch for each partition, and serve the listener.

        Like the real client, it may return one record when none was requested.
        """
        listener = self._listener
        if listener is None:
            raise RunError("the source is closed, or has not subscribed yet")
        limit = max(1, max_records)
        batches = self._fetcher.take(
            limit if self.max_batch is None else min(limit, self.max_batch)
        )
        self._fetcher.moved.clear()
        self._flush()
        self._rebalance(listener)
        if self._raised is not None:
            # As with the real client, the records read are lost, and the positions are past them.
            raised, self._raised = self._raised, None
            raise raised
        while self._answers and not self.answers_held:
            listener.on_committed(self._answers.popleft())
        self._report_errors(listener)
        return [batch for batch in batches if batch.name not in self._fetcher.moved]

    def _report_errors(self, listener: SourceListener) -> None:
        while self._fetcher.errors:
            name, error = self._fetcher.errors.popleft()
            if error is not None:
                listener.on_error(error)
            elif self._fetcher.stands(name):
                listener.on_out_of_range(name)

    # ---- positions

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Start reading assigned partitions at these offsets; those with None stay paused."""
        for name, offset in offsets.items():
            self._fetcher.go_to(name, offset)

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Continue reading a partition at this offset, even if it was paused."""
        self._fetcher.go_to(name, offset)

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions; discard prefetched records."""
        self._fetcher.pause(names)

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the position in each partition read since its last start or seek."""
        return self._fetcher.positions(names)

    def log_ends(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends of the logs; works during faults, because it needs no broker."""
        logs = {name: self._cluster.log(name) for name in names}
        return {name: log.end for name, log in logs.items() if log is not None}

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:  # noqa: ARG002 - answers at once
        """Return a log's first offset and its end; RunError during faults."""
        self._cluster.ask(f"log of {name}")
        if name in self._cluster.leaderless:
            raise BrokerUnavailableError(f"log of {name}: it has no leader")
        log = self._cluster.log(name)
        if log is None:
            raise RunError(f"log of {name}: unknown topic or partition")
        return log.start, log.end

    def log_ranges(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, tuple[int, int] | WindowConsumerError]:
        """Return first offset and end of each log, or why they are unknown."""
        found: dict[TopicPartition, tuple[int, int] | WindowConsumerError] = {}
        for name in names:
            try:
                found[name] = self.log_range(name, timeout_s)
            except RunError as error:
                found[name] = error
        return found

    def offsets_at(
        self,
        logs: Mapping[TopicPartition, tuple[int, int]],
        time_ms: int,
        timeout_s: float,  # noqa: ARG002 - answers at once
    ) -> Mapping[TopicPartition, int]:
        """Return each log's first offset whose record is at least this recent, else its end."""
        self._cluster.ask("offsets by time")
        found = {name: end for name, (_, end) in logs.items()}
        for name in logs:
            log = self._cluster.log(name)
            for message in reversed([] if log is None else log.messages):
                if message.timestamp()[1] >= time_ms:
                    found[name] = message.offset()
        return found

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:  # noqa: ARG002 - answers at once
        """Return the cluster's facts about topics; missing topics are omitted."""
        self._cluster.ask("topics")
        found = {topic: self._cluster.facts(topic) for topic in topics}
        return {topic: facts for topic, facts in found.items() if facts is not None}

    # ---- commits

    def commit(self, commits: Sequence[Commit]) -> None:
        """Send commits; a later ``poll`` reports the results to the listener.

        Pending results of earlier commits of these partitions are dropped.
        """
        for answers in self._answers:
            for commit in commits:
                answers.pop(commit.name, None)
        self._sent.extend(commits)

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:  # noqa: ARG002 - answers at once
        """Send commits and wait for the answers; those sent earlier arrive before them.

        The client is served meanwhile: the listener may be informed of a rebalance.
        """
        self._flush()
        results = self._write(commits)
        if commits and self._listener is not None and not self.in_callback:
            before = set(self._fetcher.assigned)
            self._rebalance(self._listener)
            for name in before.difference(self._fetcher.assigned).intersection(results):
                if results[name] is not None:
                    results[name] = GivenUpError()
        return results

    def member(self) -> object:
        """Return this member for a transaction of a fake broker."""
        return self

    def committed(
        self,
        names: Sequence[TopicPartition],
        timeout_s: float,  # noqa: ARG002 - answers at once
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Read committed offsets; raises a RunError if the cluster does not answer."""
        self._cluster.ask("committed offsets")
        return {name: self._group.committed(name) for name in names}

    def _flush(self) -> None:
        """Apply the commits that were sent."""
        if self._sent:
            self._answers.append(self._write(self._sent))
            self._sent.clear()

    def _write(self, commits: Sequence[Commit]) -> Results:
        return {commit.name: self._group.write(self, commit) for commit in commits}

    # ---- the end

    def close(self, timeout_s: float) -> bool:  # noqa: ARG002 - ends at once
        """Leave the group; the listener is not called, as with the real client."""
        self._flush()
        self._listener = None
        self._fetcher.assigned.clear()
        self._group.leave(self)
        return True

    def die(self) -> None:
        """End abruptly, as by kill -9; the group notices when it evicts the member."""
        self._listener = None
        self._sent.clear()
        self._fetcher.assigned.clear()
