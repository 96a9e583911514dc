"""What happens to the records of a finished slice: outcomes, next steps, released lanes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.retry.acks import Acks
from window_consumer.engine.retry.call_evidence import CallEvidence, lane_name
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.requeue import call_behind, put_back
from window_consumer.engine.scheduling.batch_bisection import died_on
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane
from window_consumer.engine.scheduling.slice_results import SliceResults
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import HoldCalls
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome


class Completion:
    """Processes slices that slots return or that are taken back from them. Owner: poll thread."""

    def __init__(
        self,
        breaker: CircuitBreaker,
        dispatcher: Dispatcher,
        retry_queue: RetryQueue,
        acks: Acks,
        counters: Counters,
        outcomes: RecordOutcomes,
    ):
        self._evidence = CallEvidence(breaker)
        self._dispatcher = dispatcher
        self._retry_queue = retry_queue
        self._records = retry_queue.records
        self._acks = acks
        self._counters = counters
        self._outcomes = outcomes
        self.held_until = float("-inf")
        """Nothing may start before this time: a call has asked for it."""

    def complete(self, slice_: Slice, now: float) -> None:
        """Process a slice that a slot has finished."""
        partition = slice_.partition
        if slice_.plain:
            partition.finish(slice_.seqs, Outcome.DONE, slice_.bytes, now)
            self._counters.count(Outcome.DONE, len(slice_.messages))
            self._evidence.returned(slice_, range(len(slice_.messages)), now)
            if slice_.hold is not NO_HOLD:
                slice_.hold.release()
            observer = self._outcomes.observer
            if observer is not None:
                observer.finished(partition, slice_.messages, Outcome.DONE, slice_, now)
            if self._acks.output.produces:
                self._acks.learn(slice_, len(slice_.messages), 0, 0)
        else:
            self._settle(slice_, now)
            slice_.hold.release()
        self._outcomes.advance(partition, now)

    def take_back(self, slice_: Slice, now: float) -> int:
        """Take a slice's unclaimed records back; return how many there were."""
        partition = slice_.partition
        past, unclaimed, seqs = self._dispatcher.split(slice_)
        # Later records of a lane go back first, so that earlier ones end up in front.
        if unclaimed and partition.gives_out:
            self._dispatcher.release_halves(partition)
            if slice_.call.attempt == 1:
                partition.ordering.put_back(unclaimed, seqs)
            else:
                self._retry_queue.not_called([slice_.again[seq] for seq in seqs])
        if past.messages:
            self._settle(past, now)
        slice_.hold.keep({slice_.lane_at(index) for index in range(len(slice_.messages))})
        self._outcomes.advance(partition, now)
        return len(unclaimed)

    def abandon(self, slice_: Slice, failure: Failure, now: float) -> None:
        """Let the record of an abandoned call leave; its lane is busy until the call returns."""
        partition = slice_.partition
        self.take_back(slice_, now)
        self._dispatcher.abandon(slice_)
        if slice_.is_batch:
            self._abandon_batch(slice_, failure, now)
            return
        lane = slice_.lane_at(len(slice_.messages) - 1)
        *held, message = slice_.messages
        *held_seqs, seq = slice_.seqs
        if held:
            partition.ordering.put_back(held, held_seqs)
        slice_.messages, slice_.seqs = [message], [seq]
        slice_.settled += 1
        self._outcomes.abandon(
            partition, message, seq, lane, failure, now, called_at=slice_.started
        )
        slice_.hold.keep({lane})
        self._outcomes.advance(partition, now)

    def _abandon_batch(self, slice_: Slice, failure: Failure, now: float) -> None:
        """Let all records of a batch leave: it is unknown which of them its call hangs on."""
        partition = slice_.partition
        together = self._retry_queue.together()
        slice_.settled += len(slice_.messages)
        for index, (message, seq) in enumerate(zip(slice_.messages, slice_.seqs, strict=True)):
            lane = slice_.lane_at(index)
            self._outcomes.abandon(
                partition, message, seq, lane, failure, now, together, slice_.started
            )
        self._outcomes.advance(partition, now)

    def lane_of_running(self, slice_: Slice) -> Hashable:
        """Return the name of the lane of the record that a slot is running; None without order."""
        index = max(0, slice_.claimed() - 1)
        lane = slice_.lane_at(index) if index < len(slice_.messages) else None
        return lane_name(slice_.partition, lane)

    def release(self, slice_: Slice, now: float) -> None:
        """Free the lane of an abandoned call that has returned."""
        slice_.hold.release()
        self._outcomes.advance(slice_.partition, now)

    def _settle(self, slice_: Slice, now: float) -> None:
        """Give each record of a finished slice its outcome or its next step."""
        partition = slice_.partition
        messages, seqs = slice_.messages, slice_.seqs
        if died_on(slice_) and not self._retry_queue.is_final:
            # The death shows nothing about a single record, so the breaker does not count it.
            self._dispatcher.bisect(slice_)
            return
        results = slice_.results()
        together = self._retry_queue.together() if slice_.is_batch and results.failed else None
        failed: list[FailedRecord] = []
        behind: dict[Lane | None, FailedRecord] = {}
        for index, failure in results.failed:
            lane = slice_.lane_at(index)
            if lane in behind:
                continue
            if isinstance(failure.error, HoldCalls):
                self._hold(failure, now + failure.error.after_s, now)
            each = self._outcomes.fail(
                partition,
                messages[index],
                seqs[index],
                lane,
                failure,
                now,
                together=together,
                called_at=slice_.started,
            )
            # Where a call names the records that failed, others of its batch are done.
            each.in_batch = slice_.is_batch and len(messages) > 1 and not results.done
            failed.append(each)
            waits = lane is not None and each.reason is None
            if together is not None and waits and self._retry_queue.blocks:
                behind[lane] = each
        if behind:
            results = call_behind(slice_, behind, self._retry_queue, now)
        self._outcomes.drop_spent(failed, now)
        self._finish_called(slice_, results, now)
        self._evidence.called(slice_, [done for done, _ in results.done], failed, now)
        if results.returned or self._acks.output.produces:
            size = sum(self._acks.produce(slice_, *each) for each in results.returned)
            calls = len(messages) - len(results.held)
            producing = sum(len(each) for each, _ in results.returned)
            self._acks.learn(slice_, calls, producing, size)
        if results.held and partition.gives_out:
            self._dispatcher.release_halves(partition)
            put_back(slice_, results.held, failed, self._retry_queue, now)

    def _hold(self, failure: Failure, until: float, now: float) -> None:
        """Start nothing before the time that a call has asked for."""
        if until > self.held_until:
            self.held_until = until
            if self._outcomes.observer is not None:
                self._outcomes.observer.held(failure, until, now)

    def _finish_called(self, slice_: Slice, results: SliceResults, now: float) -> None:
        """Finish the records whose handler returned or skipped them."""
        partition, messages, seqs = slice_.partition, slice_.messages, slice_.seqs
        for done, returned in results.done:
            self._outcomes.finish(partition, returned, done, Outcome.DONE, now, slice_)
            if slice_.again:
                self._resolve(slice_, done)
        skipped: dict[Outcome, list[int]] = {}
        for index, outcome in results.skipped.items():
            skipped.setdefault(outcome, []).append(index)
        for outcome, indices in skipped.items():
            own = [seqs[index] for index in indices]
            left = [messages[index] for index in indices]
            self._outcomes.finish(partition, left, own, outcome, now, slice_)
            if slice_.again:
                self._resolve(slice_, own)

    def _resolve(self, slice_: Slice, seqs: Iterable[int]) -> None:
        """Let go of records that had failed before and now have their outcomes."""
        for seq in seqs:
            self._records.finish(slice_.again[seq])
