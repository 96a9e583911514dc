"""A Source for the records of a Spark task, in place of a group's assignment.

There is no group. The first record of a partition assigns it, nothing is revoked, and commits are
dropped. Outcomes are recorded with the results, for a chunk as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue

from window_consumer.engine.offsets import after
from window_consumer.model.errors import RunError, WindowConsumerError
from window_consumer.model.headers import LostHeaders
from window_consumer.model.protocols import (
    Batch,
    Commit,
    CommitResults,
    CommittedOffset,
    SourceListener,
    TopicFacts,
)
from window_consumer.model.record import Message, TopicPartition

Brought = tuple[TopicPartition, list[Message]]


class BacklogSource:
    """The records of one task. Owner: poll thread, except ``bring`` and ``wake``."""

    def __init__(self, facts: Mapping[str, TopicFacts]):
        self._facts = facts
        self._listener: SourceListener | None = None
        self._incoming: SimpleQueue[Brought | None] = SimpleQueue()
        self._pending: deque[Brought] = deque()
        """Records that have arrived and were not polled yet, in order."""
        self._firsts: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        """The next offset of each partition."""
        self._paused: set[TopicPartition] = set()
        self._answers: list[Commit] = []
        self._brought = 0
        self._polled = 0

    # ---- for the supplier of records

    def bring(self, name: TopicPartition, messages: list[Message]) -> None:
        """Add records of a partition, which follow the earlier ones."""
        self._brought += len(messages)
        self._incoming.put((name, messages))

    def wake(self) -> None:
        """Make a waiting poll return."""
        self._incoming.put(None)

    @property
    def waiting(self) -> int:
        """Roughly how many records are not polled yet."""
        return self._brought - self._polled

    # ---- for the poll loop

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:  # noqa: ARG002 - records of other topics do not come
        """Set the listener."""
        self._listener = listener

    def widen(self, counts: Mapping[str, int]) -> None:
        """Do nothing: the driver decides which partitions a task reads."""

    def poll(self, max_records: int, timeout_s: float) -> Sequence[Batch]:
        """Return records of one partition; assign a new partition first."""
        listener = self._listener
        assert listener is not None
        if self._answers:
            answers, self._answers = self._answers, []
            listener.on_committed(dict.fromkeys(each.name for each in answers))
        if not max_records:
            return []
        self._take(timeout_s)
        found = next(
            ((at, each) for at, each in enumerate(self._pending) if self._reads(each)), None
        )
        if found is None:
            return []
        at, (name, messages) = found
        if name not in self._firsts:
            self._firsts[name] = messages[0].offset()
            listener.on_assigned([name])
        taken, left = messages[:max_records], messages[max_records:]
        if left:
            self._pending[at] = name, left
        else:
            del self._pending[at]
        self._polled += len(taken)
        self._next[name] = after(taken[-1].offset())
        batch = Batch.of(name, taken)
        lost = (each for each in taken if type(each.headers()) is LostHeaders)
        batch.unreadable.extend(each.offset() for each in lost)
        return [batch]

    def _take(self, timeout_s: float) -> None:
        """Take the arrived records; wait if there are none."""
        try:
            if not any(map(self._reads, self._pending)) and timeout_s > 0:
                self._add(self._incoming.get(timeout=timeout_s))
            while True:
                self._add(self._incoming.get_nowait())
        except Empty:
            return

    def _add(self, brought: Brought | None) -> None:
        if brought is not None:
            self._pending.append(brought)

    def _reads(self, brought: Brought) -> bool:
        return brought[0] not in self._paused

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from their first records; those with None stay paused."""
        self._paused.update(name for name, offset in offsets.items() if offset is None)
        self._paused.difference_update(
            name for name, offset in offsets.items() if offset is not None
        )

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Resume a paused partition where it stopped; raises RunError for any other offset."""
        if offset != self._next.get(name, offset):
            raise RunError(f"{name}: a task cannot seek from {self._next[name]} back to {offset}")
        self._paused.discard(name)

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions until ``seek``."""
        self._paused.update(names)

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the next offset of these partitions."""
        return {name: self._next[name] for name in names if name in self._next}

    def log_ends(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:  # noqa: ARG002 - unknown here
        """Return nothing: the end of the log does not matter here."""
        return {}

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:  # noqa: ARG002 - answers at once
        """Return the first and next offset of the partition here, where known."""
        first = self._firsts.get(name, 0)
        return first, self._next.get(name, first)

    def log_ranges(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, tuple[int, int] | WindowConsumerError]:
        """Return the first and next offset of each partition here, where known."""
        return {name: self.log_range(name, timeout_s) for name in names}

    def offsets_at(
        self,
        logs: Mapping[TopicPartition, tuple[int, int]],
        time_ms: int,  # noqa: ARG002 - the driver knows times
        timeout_s: float,  # noqa: ARG002 - answers at once
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset of each partition here."""
        return {name: first for name, (first, _) in logs.items()}

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:  # noqa: ARG002 - answers at once
        """Return the driver's facts about these topics."""
        return {topic: self._facts[topic] for topic in topics if topic in self._facts}

    # ---- commits

    def commit(self, commits: Sequence[Commit]) -> None:
        """Accept commits, and report success in the next poll."""
        self._answers += commits

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:  # noqa: ARG002 - answers at once
        """Accept commits."""
        return dict.fromkeys(each.name for each in commits)

    def member(self) -> object:
        """Return None: a backfill is no member of a group."""
        return None

    def committed(
        self,
        names: Sequence[TopicPartition],
        timeout_s: float,  # noqa: ARG002 - answers at once
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the first offset of each partition here, as if it were committed."""
        return {name: CommittedOffset(self._firsts.get(name, 0), "") for name in names}

    def close(self, timeout_s: float) -> bool:  # noqa: ARG002 - ends at once
        """Deliver nothing more; return True, as nothing has to finish."""
        self._listener = None
        return True
