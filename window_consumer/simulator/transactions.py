"""A simulated member's transactions, which end some steps after they were frozen, or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Commit, Copy, Delivery
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.writing.transactions import TransactionEnd
from window_consumer.simulator.schedule import GROUP
from window_consumer.simulator.shared import SharedSimulation
from window_consumer.testing.fakes.group import GroupMember
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.sink import FakeSink, Fate
from window_consumer.testing.fakes.transactions import FakeTransactions


class CommittedRecords(FakeSink):
    """Writes the records of committed transactions. Owner: one thread."""

    def __init__(self, scene: SharedSimulation):
        super().__init__(scene.broker.topics, lambda _copy: Fate.ACKED)
        self._scene = scene

    def append(self, name: TopicPartition, copy: Copy) -> FakeMessage:
        """Append a record, and report it to the history."""
        message = super().append(name, copy)
        self._scene.output_watch(copy).written(name, copy, message)
        return message


class SimulatedTransactions(FakeTransactions):
    """The sink and the transactions of one member. Owner: one thread.

    Writes count as answered at once, and become visible with their transaction. If a broker's
    answer is lost, the transaction is aborted.
    """

    def __init__(self, scene: SharedSimulation, wait: Callable[[float], None]):
        super().__init__(CommittedRecords(scene), scene.broker.group(GROUP))
        self.owner: Any = None
        """Its owner; set when the member is complete."""
        self._scene = scene
        self._wait = wait
        self._ending: TransactionEnd | None = self._ended.popleft()
        self._has_begun = False
        """The first transaction has begun."""
        self._lost: list[Delivery] = []
        """Reports of records that the brokers have not acknowledged."""

    @property
    def unanswered(self) -> int:
        """How many records are in no committed transaction, and whether a transaction is ending."""
        return len(self._written) + (self._ending is not None)

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Write into the open transaction."""
        scene, member = self._scene, self.owner
        fate = scene.broker.fate_of(copy)
        if fate is Fate.QUEUE_FULL:
            on_delivery(PublishFailedError(f"copy to {copy.topic}: the producer's queue is full"))
            return
        if fate is Fate.LOST:
            self._lost.append(on_delivery)
        scene.output_watch(copy).writing(member, copy, lambda _: None)(None)
        scene.transactions.written(copy)
        super().write(copy, on_delivery)

    def end(self, ending: TransactionEnd) -> None:
        """Begin to end the open transaction; ``serve`` completes it."""
        assert self._ending is None
        if ending.member is not None:
            self._scene.commits.sending(self.owner, ending.commits)
        self._ending = ending

    def serve(self, timeout_s: float = 0.0, at_most: int | None = None) -> None:
        """Complete the transaction that is ending."""
        del timeout_s, at_most
        ending, self._ending = self._ending, None
        if ending is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._ended.append(ending)
            return
        super().end(ending)
        self._scene.history.record(f"{self.owner}: a transaction ends: {ending.error or 'done'}")
        self._lost.clear()

    def take(self, timeout_s: float) -> TransactionEnd | None:
        """Return the transactions that have ended; the simulation continues while none has.

        A cancelled transaction ends in any case, because the brokers limit its time.
        """
        if timeout_s and not self._ended:
            if self._ending is not None and self._ending.is_cancelled:
                self.serve()
            else:
                self._wait(timeout_s)
        return super().take(0.0)

    def commit(
        self, commits: Sequence[Commit], member: object, is_cancelled: Callable[[], bool]
    ) -> None:
        """Commit, unless an answer about a record was lost."""
        for on_delivery in self._lost:
            on_delivery(PublishFailedError("no answer in time"))
        is_lost = bool(self._lost)
        super().commit(commits, member, lambda: is_lost or is_cancelled())

    def _show(self, member: GroupMember, copies: Sequence[Copy], commits: Sequence[Commit]) -> None:
        self._scene.transactions.committing(self.owner, copies, commits)
        super()._show(member, copies, commits)
