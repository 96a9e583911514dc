"""Outputs and commits in transactions: the outlet of exactly once.

The poll thread writes into the open transaction. Every ``commit_interval`` it freezes it: it takes
the group's metadata and hands the commits to what ends the transaction and begins another, see
``transactions``. Meanwhile outputs wait, and so do their lanes.

If a transaction fails, nothing of it is visible. All partitions are given up and read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final

from attrs import define, field

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.model.errors import CommitFailedError, NotCommittedError, PublishFailedError
from window_consumer.model.protocols import Clock, Commit, CommitResults, Copy, Sink, Source
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.writing.outlet import OutletListener
from window_consumer.runtime.writing.publisher import Published, ResultAck, copy_of_result
from window_consumer.runtime.writing.transactions import EndTransactions, TransactionEnd

Sent = FailedRecord | Production

MAX_WRITTEN: Final = 50_000
"""Records in one transaction: half of what librdkafka's queue holds."""

MAX_WRITTEN_BYTES: Final = 64 * 1024**2

_REFUSALS: Final = 1_000
_ENDS_S: Final = 10.0
"""How long a revoke waits for commits that may be on their way to the broker."""


@define(eq=False)
class TransactionOutlet:
    """Writes outputs, and the commits that cover them, in transactions. Owner: poll thread."""

    _source: Source
    _engine: Engine
    _sink: Sink
    _ends: EndTransactions
    _completions: SimpleQueue[Any]
    _clock: Clock
    _copy_of: Callable[[FailedRecord], Copy]
    _listener: OutletListener = field(init=False)
    _is_open: bool = field(default=False, init=False)
    """Whether outputs are written now; otherwise they wait for the next transaction."""
    _ending: TransactionEnd | None = field(default=None, init=False)
    """The transaction that is being ended."""
    _frozen_at: float = field(default=0.0, init=False)
    _pending: list[Commit] = field(factory=list, init=False)
    """Commits for the next transaction, which has not begun."""
    _waiting: deque[Sent] = field(factory=deque, init=False)
    _written: int = field(default=0, init=False)
    _written_bytes: int = field(default=0, init=False)
    _failures: deque[tuple[Sent, int, PublishFailedError]] = field(factory=deque, init=False)
    """Outputs that were not written; the thread also adds to it."""
    _refusals: dict[tuple[TopicPartition, int], tuple[int, PublishFailedError]] = field(
        factory=dict, init=False
    )
    """Why the outputs of these records were refused. Their transaction was aborted; when the
    records return, this is the answer."""

    def attach(self, listener: OutletListener) -> None:
        """Set the listener for the ends of transactions."""
        self._listener = listener

    def send(self, decisions: Decisions) -> None:
        """Freeze the transaction if there are commits; write the outputs into it, or the next."""
        if decisions.commit:
            self._freeze(decisions.commit)
        self._waiting += decisions.publish
        self._waiting += decisions.produce
        self._write()

    def advance(self) -> None:
        """Continue after the end of a transaction."""
        ended = self._ends.take(0.0)
        if ended is not None:
            self._on_ended(ended)
            self._write()

    def settle(self, timeout_s: float) -> None:
        """Wait until no transaction is being ended, before the last commits."""
        if self._is_open:
            return
        ended = self._ends.take(max(timeout_s, 0.001))
        if ended is None and self._ending is not None:
            self._ending.is_cancelled = True
            ended = self._ends.take(_ENDS_S)
        if ended is not None:
            self._on_ended(ended)
            if self._pending or not self._is_open:
                self.settle(timeout_s)
        late, self._pending = self._pending, []
        if late:
            error = CommitFailedError("no transaction has begun")
            self._listener.on_committed(dict.fromkeys((each.name for each in late), error))

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Commit partitions that are given up, and all others, and wait for the end."""
        if not self._is_open:
            failed = _failed(commits, "the last transaction has not ended")
            self._listener.on_committed(failed)  # partitions that stay are committed later
            return failed
        self._freeze(commits)
        ended = self._ends.take(max(timeout_s, 0.001))
        if ended is None:
            assert self._ending is not None
            self._ending.is_cancelled = True
            ended = self._ends.take(_ENDS_S)
        if ended is None:
            return _failed(commits, "the transaction did not end in time")
        self._on_ended(ended)
        self._write()
        if ended.error is not None:
            return _failed(commits, str(ended.error))
        return dict.fromkeys(each.name for each in commits)

    def lost(self) -> None:
        """Abort, because output for lost partitions must not become visible."""
        if self._ending is not None:
            self._ending.is_cancelled = True
        elif self._is_open and self._written:
            self._abort("partitions were lost")

    # ---- the end of a transaction

    def _freeze(self, commits: Sequence[Commit]) -> None:
        if not self._is_open:
            self._pending += commits
            return
        self._end(TransactionEnd(commits, self._source.member()))

    def _abort(self, why: str) -> None:
        self._end(TransactionEnd((), error=NotCommittedError(why)))

    def _end(self, ending: TransactionEnd) -> None:
        self._is_open, self._ending = False, ending
        self._frozen_at = self._clock.now()
        self._ends.end(ending)

    def _on_ended(self, ended: TransactionEnd) -> None:
        self._is_open, self._ending = True, None
        self._written = self._written_bytes = 0
        counters = self._engine.counters
        if ended.error is None:
            self._failures.clear()
            if ended.commits:
                counters.transactions += 1
                counters.transactions_s += self._clock.now() - self._frozen_at
                results = dict.fromkeys(each.name for each in ended.commits)
                self._listener.on_committed(results)
            pending, self._pending = self._pending, []
            if pending := [each for each in pending if self._is_current(each)]:
                self._freeze(pending)
            return
        counters.transactions_aborted += 1
        self._remember_refusals()
        self._pending.clear()
        waiting, self._waiting = self._waiting, deque()
        self._listener.on_aborted(ended.error)
        for sent in waiting:
            self._answer(sent)

    def _is_current(self, commit: Commit) -> bool:
        """Return whether a commit is current: its partition has not restarted since."""
        partition = self._engine.partitions.get(commit.name)
        return partition is not None and partition.commit.awaits(commit)

    def _remember_refusals(self) -> None:
        while self._failures:
            sent, index, error = self._failures.popleft()
            if error.refused and len(self._refusals) < _REFUSALS:
                self._refusals[_key_of(sent)] = index, error

    # ---- writing

    def _write(self) -> None:
        """Write waiting outputs into the open transaction."""
        while self._waiting and self._is_open and self._has_room():
            sent = self._waiting.popleft()
            refusal = self._refusals.pop(_key_of(sent), None)
            if refusal is not None:
                self._refuse(sent, *refusal)
                continue
            if sent.partition.accepts_results:
                self._write_all(sent)
            if self._failures:
                # The record is not finished: it runs again.
                self._waiting.appendleft(sent)
                self._abort(str(self._failures[0][2]))
                return
            self._answer(sent)

    def _has_room(self) -> bool:
        return self._written < MAX_WRITTEN and self._written_bytes < MAX_WRITTEN_BYTES

    def _write_all(self, sent: Sent) -> None:
        if isinstance(sent, FailedRecord):
            self._write_copy(sent, 0, self._copy_of(sent))
            return
        for index in sent.to_send:
            self._write_copy(sent, index, copy_of_result(sent.results[index]))

    def _write_copy(self, sent: Sent, index: int, copy: Copy) -> None:
        failures = self._failures

        def report(error: PublishFailedError | None) -> None:
            if error is not None:
                failures.append((sent, index, error))

        self._written += 1
        self._written_bytes += len(copy.value or b"")
        self._sink.write(copy, report)

    def _refuse(self, sent: Sent, refused: int, error: PublishFailedError) -> None:
        """Answer an output that the broker refused in an aborted transaction."""
        if isinstance(sent, FailedRecord):
            self._completions.put(Published(sent, error))
            return
        indices = sent.to_send
        sent.alone = True  # another record cannot have caused its size
        for index in indices:
            self._completions.put(ResultAck(sent, index, error if index == refused else None))

    def _answer(self, sent: Sent) -> None:
        """Finish a record whose outputs are in the open transaction, or that is no longer ours."""
        now = self._clock.now()
        if isinstance(sent, FailedRecord):
            self._engine.on_published(sent, None, now)
            return
        for index in sent.to_send:
            self._engine.on_produced(sent, index, None, now)


def _key_of(sent: Sent) -> tuple[TopicPartition, int]:
    message = sent.message if isinstance(sent, FailedRecord) else sent.messages[0]
    return sent.partition.name, message.offset()


def _failed(commits: Sequence[Commit], why: str) -> dict[TopicPartition, CommitFailedError]:
    error = CommitFailedError(why, retriable=False)
    return dict.fromkeys((each.name for each in commits), error)
