"""Transactions on a fake broker: records and commits are written together, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from window_consumer.model.errors import NotCommittedError
from window_consumer.model.protocols import Commit, Copy, Delivery
from window_consumer.runtime.writing.transactions import TransactionEnd
from window_consumer.testing.fakes.group import FakeGroup, GroupMember
from window_consumer.testing.fakes.sink import FakeSink


class FakeTransactions:
    """The Sink of a worker, and its transactions, which end at once. Owner: one thread."""

    def __init__(self, sink: FakeSink, group: FakeGroup):
        self._sink = sink
        self._group = group
        self._written: list[tuple[Copy, Delivery]] = []
        """The records of the open transaction."""
        self._ended = deque([TransactionEnd(())])
        self.trouble: str | None = None

    @property
    def has_written(self) -> bool:
        """Whether the open transaction has records."""
        return bool(self._written)

    # ---- the Sink

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Write into the open transaction."""
        self._written.append((copy, on_delivery))

    def serve(self, timeout_s: float) -> None:
        """Do nothing: a record is answered at the end of its transaction."""

    def close(self, timeout_s: float) -> int:
        """Drop the open transaction; return 0."""
        del timeout_s
        self._written.clear()
        return 0

    # ---- the transactions

    def begin(self) -> None:
        """Begin a transaction: there is nothing to prepare."""

    def abort(self) -> None:
        """Drop the records."""
        self._written.clear()

    def commit(
        self, commits: Sequence[Commit], member: object, is_cancelled: Callable[[], bool]
    ) -> None:
        """Write records and commits; raise NotCommittedError if one of them is refused."""
        written, self._written = self._written, []
        refusals = [(each, self._sink.refusal(copy)) for copy, each in written]
        for on_delivery, refusal in refusals:
            on_delivery(refusal)
        first = next((refusal for _, refusal in refusals if refusal is not None), None)
        if first is not None or is_cancelled():
            raise NotCommittedError(str(first or "cancelled"))
        whose: Any = member
        refused = self._group.refusal(whose, commits)
        if refused is None or refused.written:
            self._show(whose, [copy for copy, _ in written], commits)
        if refused is not None:
            error = refused.error
            raise NotCommittedError(str(error), metadata_too_large=error.metadata_too_large)

    def _show(self, member: GroupMember, copies: Sequence[Copy], commits: Sequence[Commit]) -> None:
        """Make records and commits visible together."""
        self._group.store(member, commits)
        for copy in copies:
            self._sink.write(copy, lambda _: None)
        self._sink.serve()

    # ---- what ends them

    def start(self) -> None:
        """Do nothing: the first one is open."""

    def end(self, ending: TransactionEnd) -> None:
        """End the open transaction at once."""
        try:
            if ending.member is None:
                self.abort()
            else:
                self.commit(ending.commits, ending.member, lambda: ending.is_cancelled)
        except NotCommittedError as error:
            ending.error = error
        self._ended.append(ending)

    def take(self, timeout_s: float) -> TransactionEnd | None:
        """Return the transaction that has ended, or None."""
        del timeout_s
        return self._ended.popleft() if self._ended else None

    def stop(self, timeout_s: float) -> int:
        """Drop the open transaction; return 0."""
        return self.close(timeout_s)
