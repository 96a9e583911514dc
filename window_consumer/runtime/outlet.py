"""The outlet: where a worker's copies, results and commits go, and in which order.

A delivery guarantee has two halves. ``DeliveryGuarantee`` in the engine decides which records a
commit covers; the outlet decides what is written together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model.protocols import Commit, CommitResults, Copy, Source
from window_consumer.runtime.publisher import Publisher


class Outlet(Protocol):
    """Writes what an Engine has decided to write. Owner: poll thread.

    The answer for a copy or a result frees its record's lane and finishes the record, so an outlet
    gives it when both may happen: when the broker has acked it, or when it is part of an open
    transaction.
    """

    def send(self, decisions: Decisions) -> None:
        """Send the copies, results and commits of one tick.

        The commits do not cover the records whose copies and results are sent with them. One answer
        follows for each copy (``Engine.on_published``), for each result (``Engine.on_produced``)
        and for the commits (``SourceListener.on_committed``).
        """

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Commit partitions that are given up and wait for the results, see ``Source``."""


@frozen
class SeparateWrites:
    """Writes copies and results as they come, and commits offsets independently of them."""

    _source: Source
    _publisher: Publisher
    _copy_of: Callable[[FailedRecord], Copy]

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
