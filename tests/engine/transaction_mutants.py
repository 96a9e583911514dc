"""Outlets with one planted bug each in their transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Production
from window_consumer.model.errors import NotCommittedError
from window_consumer.model.protocols import Commit, CommitResults
from window_consumer.runtime.writing.exactly_once import TransactionOutlet
from window_consumer.runtime.writing.transactions import TransactionEnd


class OffsetsWithoutCopies(TransactionOutlet):
    """Commits a record that left, without its copy."""

    def _write_all(self, sent: FailedRecord | Production) -> None:
        if not isinstance(sent, FailedRecord):
            super()._write_all(sent)


class OutputInTheNextTransaction(TransactionOutlet):
    """Writes an output after the transaction that counts its record as finished."""

    _kept: tuple[FailedRecord | Production, ...] = ()

    def _write_all(self, sent: FailedRecord | Production) -> None:
        kept, self._kept = self._kept, (sent,)
        for each in kept:
            super()._write_all(each)


class CommitsAfterRevoke(TransactionOutlet):
    """Does not wait for the transaction in flight before it gives a partition up."""

    def settle(self, timeout_s: float) -> None: ...


class ForgetsLanes(TransactionOutlet):
    """Leaves outputs that wait without an answer when a transaction was aborted."""

    def _on_ended(self, ended: TransactionEnd) -> None:
        if ended.error is not None:
            self._waiting.clear()
        super()._on_ended(ended)


class ShowsLost(TransactionOutlet):
    """Commits records written for a lost partition."""

    def lost(self) -> None: ...


OUTLETS: Final = (
    OffsetsWithoutCopies,
    OutputInTheNextTransaction,
    CommitsAfterRevoke,
    ForgetsLanes,
    ShowsLost,
)
"""Those that show in a random schedule of one member."""


class ForgetsOtherPartitions(TransactionOutlet):
    """Leaves the commits of partitions that stay without an answer, where there is no transaction.

    They are never committed again.
    """

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        listener, self._listener = self._listener, _Silent()
        if self._is_open:
            self._listener = listener
        try:
            return super().commit_now(commits, timeout_s)
        finally:
            self._listener = listener


class _Silent:
    def on_committed(self, results: CommitResults) -> None: ...

    def on_aborted(self, error: NotCommittedError) -> None: ...


class CommitsWhatBeganElsewhere(TransactionOutlet):
    """Sends commits that waited for a transaction, whatever became of their partitions."""

    def _is_current(self, commit: Commit) -> bool:
        del commit
        return True


class PlainMarks(TransactionOutlet):
    """Commits beside the transaction what needs none: start offsets, marks, ends of empty windows.

    The transaction with the next commit of such a partition may end before.
    """

    def send(self, decisions: Decisions) -> None:
        if not self._written:
            self._source.commit(decisions.commit)
            decisions = evolve(decisions, commit=[])
        super().send(decisions)


class PlainLastCommits(TransactionOutlet):
    """Commits the clean ends of partitions beside a transaction that is being ended."""

    def settle(self, timeout_s: float) -> None: ...

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        if self._is_open:
            return super().commit_now(commits, timeout_s)
        return self._source.commit_now(commits, timeout_s)
