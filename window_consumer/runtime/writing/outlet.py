"""The outlet: the destination of a worker's copies, results and commits, and their order.

A delivery guarantee has two halves. ``DeliveryGuarantee`` in the engine decides which records a
commit covers; the outlet decides what is written together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model.errors import NotCommittedError
from window_consumer.model.protocols import Commit, CommitResults, Copy, Source
from window_consumer.runtime.writing.publisher import Publisher


class OutletListener(Protocol):
    """Receives an Outlet's reports, for the owner of the partitions."""

    def on_committed(self, results: CommitResults) -> None:
        """Process the results of commits."""

    def on_aborted(self, error: NotCommittedError) -> None:
        """Read uncommitted records again: their outputs are not visible."""


class Outlet(Protocol):
    """Writes the copies, results and commits of an Engine. Owner: poll thread.

    The answer for a copy or a result frees its record's lane and finishes the record, so an outlet
    answers once both are safe: when the broker has acked it, or when it is part of an open
    transaction.
    """

    def attach(self, listener: OutletListener) -> None:
        """Set the listener for commits that bypass the Source, and for aborts."""

    def advance(self) -> None:
        """Report whatever ended meanwhile; called before each tick."""

    def settle(self, timeout_s: float) -> None:
        """Wait for everything that may still be aborted, before partitions are released."""

    def lost(self) -> None:
        """Keep uncommitted output for lost partitions from becoming visible."""

    def send(self, decisions: Decisions) -> None:
        """Send the copies, results and commits of one tick.

        The commits do not cover the records whose copies and results are sent with them. Each copy
        gets one answer (``Engine.on_published``), and so do each result (``Engine.on_produced``)
        and the commits (``SourceListener.on_committed``).
        """

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Commit partitions that are given up and wait for the results, see ``Source``."""


@frozen
class SeparateWrites:
    """Writes copies and results as they come, and commits offsets independently of them."""

    _source: Source
    _publisher: Publisher
    _copy_of: Callable[[FailedRecord], Copy]

    def attach(self, listener: OutletListener) -> None:
        """Do nothing: the Source reports commits, and nothing is aborted."""

    def advance(self) -> None:
        """Do nothing: answers come through the completions queue."""

    def settle(self, timeout_s: float) -> None:
        """Do nothing: acked output stays."""

    def lost(self) -> None:
        """Do nothing: written output is already visible."""

    def send(self, decisions: Decisions) -> None:
        """Send everything at once."""
        for failed in decisions.publish:
            self._publisher.publish(failed, self._copy_of(failed))
        for production in decisions.produce:
            self._publisher.produce(production)
        if decisions.commit:
            self._source.commit(decisions.commit)

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Commit and wait for the results."""
        return self._source.commit_now(commits, timeout_s)
