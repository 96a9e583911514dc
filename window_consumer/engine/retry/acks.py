"""What the broker's acks of copies and results mean for their records."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.retry.call_evidence import CallEvidence
from window_consumer.engine.retry.copy_queue import CopyQueue
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Output, Production
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.retry.turn_decisions import TurnDecisions
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome

SINGLY_SHARE = 0.125
"""If this share of a slice's calls returned results, slices get only one record of a lane each."""


class Acks:
    """Finishes records whose copies or results are acked. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - everything that has a say; made in one place
        self,
        breaker: CircuitBreaker,
        dispatcher: Dispatcher,
        retry_queue: RetryQueue,
        copy_queue: CopyQueue,
        output: Output,
        counters: Counters,
        outcomes: RecordOutcomes,
        turn_decisions: TurnDecisions,
    ):
        self._breaker = breaker
        self._evidence = CallEvidence(breaker)
        self._dispatcher = dispatcher
        self._retry_queue = retry_queue
        self._copy_queue = copy_queue
        self._records = retry_queue.records
        self.output = output
        self._counters = counters
        self._outcomes = outcomes
        self._turn_decisions = turn_decisions
        self.unacked_probes: set[Slice] = set()
        """The breaker's probes whose results are not acked."""

    def copied(self, failed: FailedRecord, error: PublishFailedError | None, now: float) -> None:
        """Finish a record whose copy was acked; otherwise keep it open and retry."""
        partition = failed.partition
        partition.let_go(len(failed.message))
        if error is not None:
            self._copy_queue.not_published(failed, error, now)
            return
        if failed.forward is not None:
            outcome = failed.forward.outcome
            if outcome is not None:
                self._counters.count(outcome, 1)
            self._outcomes.finish_failed(failed, outcome or Outcome.MOVED, now)
        elif failed.level is not None:
            self._counters.count(Outcome.MOVED, 1)
            self._counters.moved_to[failed.level.name] += 1
            self._outcomes.finish_failed(failed, Outcome.MOVED, now)
        else:
            self._counters.dead_by[str(failed.reason)] += 1
            self._outcomes.leave(failed, Outcome.DEAD_LETTERED, now)
        self._outcomes.advance(partition, now)

    def produce(self, slice_: Slice, indices: Sequence[int], returned: RecordsReturned) -> int:
        """Produce a call's results; return how many bytes they count for."""
        if self._breaker.counts_calls:
            self.unacked_probes.add(slice_)
        seqs = [slice_.seqs[index] for index in indices]
        for seq in seqs if slice_.again else ():
            self._records.move(slice_.again[seq], RecordState.PRODUCING)
        return self.output.add(
            slice_.partition,
            returned,
            seqs,
            [slice_.lane_at(index) for index in indices],
            slice_ if slice_ in self.unacked_probes else None,
        )

    def learn(self, slice_: Slice, calls: int, producing: int, size: int) -> None:
        """Update from a slice's calls how much is produced, and by how many of them."""
        self.output.learn(calls, size)
        self._dispatcher.longest = self.output.longest_slice
        # A batch's results are those of one call: its records need not wait for each other.
        singly = producing >= calls * SINGLY_SHARE > 0 and not slice_.is_batch
        slice_.partition.ordering.singly = singly

    def produced(
        self, production: Production, index: int, error: PublishFailedError | None, now: float
    ) -> None:
        """Finish the records of a call once all of its results are acked.

        If one is permanently refused, the call counts as failed.
        """
        output, partition = self.output, production.partition
        if not output.answered(production, index, error):
            return
        if not partition.accepts_results:
            output.over(production)
            self._counters.late += len(production.seqs)
            return
        refusal = output.refusal(production)
        if refusal is None and output.advance(production, now):
            return
        output.over(production)
        if refusal is None:
            self._finish_produced(production, now)
        else:
            self._refused(production, refusal, now)
        production.hold.release()
        if production.source in self.unacked_probes:
            self._breaker.over(production.source)
            self.unacked_probes.remove(production.source)
        self._outcomes.advance(partition, now)

    def _finish_produced(self, production: Production, now: float) -> None:
        """Finish the records of a call whose results are all acked."""
        partition, seqs = production.partition, production.seqs
        is_new = self._outcomes.is_new(partition, seqs)
        failed = self._records.of(partition)
        for seq in seqs:
            if seq in failed:
                self._records.finish(failed[seq])
        self._outcomes.finish(partition, production.messages, seqs, Outcome.DONE, now)
        self._evidence.produced(production, now, is_new=is_new)

    def _refused(self, production: Production, refusal: Failure, now: float) -> None:
        """Move the records of a call up the ladder, unless a rule decides about them."""
        partition = production.partition
        together = self._retry_queue.together() if len(production.seqs) > 1 else None
        is_new = self._outcomes.is_new(partition, production.seqs)
        refused = [
            self._outcomes.fail(*record, refusal, now, together=together)
            for record in production.records
            if not self._turn_decisions.refused(*record, refusal, now)
        ]
        if not refused:
            return
        self._outcomes.drop_spent(refused, now)
        self._evidence.refused(production, refused[0], now, is_new=is_new)
